// cflags: -O2 -shared -fPIC
// `loading` loads this library, whose constructor returns at a line of stdin.
#include "common.h"

__attribute__((constructor)) static void begin(void) {
    char line[64];
    puts("ready");
    fflush(stdout);
    CHECK(read(0, line, sizeof line) > 0);
}
