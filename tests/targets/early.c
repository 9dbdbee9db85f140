// cflags: -O2 -shared -fPIC -Wl,-soname,libearly.so
// A library whose constructor's calls, before main, must be counted.
#include "common.h"

int early_calls;

PROBED int early_work(int x) { early_calls++; return x + 1; }

__attribute__((constructor)) static void construct(void) {
    for (int i = 0; i < 7; i++) CHECK(early_work(i) == i + 1);
}
