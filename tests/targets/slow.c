// cflags: -O2 -shared -fPIC
// A library whose constructor says `ready` and returns when a line comes: what `loading` opens.
#include "common.h"

__attribute__((constructor)) static void begin(void) {
    char line[64];
    puts("ready");
    fflush(stdout);
    CHECK(read(0, line, sizeof line) > 0);
}
