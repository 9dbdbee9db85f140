// cflags: -O2 -shared -fPIC -Wl,-soname,libearly.so
// A library whose constructor runs before the program's own; its calls must be counted too.
#include "common.h"

int early_calls;

PROBED int early_work(int x) { early_calls++; return x + 1; }

__attribute__((constructor)) static void construct(void) {
    for (int i = 0; i < 7; i++) CHECK(early_work(i) == i + 1);
}
