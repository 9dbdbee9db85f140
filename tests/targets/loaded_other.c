// cflags: -O2 -shared -fPIC
// The code of `loaded` at other addresses.
#define LOADED(name) other_##name
#define NAME(name) "other_" name
__attribute__((used)) static int before(int x) { return x * 77; }
#include "loaded.c"
__attribute__((used)) static char room[300000] = {1};
