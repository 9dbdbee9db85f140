// cflags: -O2 -shared -fPIC
// A library that `dlopens` and `busy` open and close.
#include "common.h"

static _Thread_local int calls;

PROBED int plugin_work(int x) { calls++; return x * 3; }
