// cflags: -O2
// workers: forks three workers of itself, prints `ready`, and ends when its stdin closes.
#include "common.h"

PROBED int work(int x) { KEEP(); return x + 1; }

int main(void) {
    char byte;
    for (int i = 0; i < 3; i++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child) continue;
        die_with_parent();
        for (;;) pause();
    }
    puts("ready");
    fflush(stdout);
    while (read(0, &byte, 1) > 0) CHECK(work(1) == 2);
    return 0;
}
