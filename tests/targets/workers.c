// cflags: -O2
// workers: forks three workers of itself, prints `ready`, and ends when its stdin closes.
#include "common.h"

PROBED int work(int x) { KEEP(); return x + 1; }

int main(void) {
    char byte;
    const pid_t parent = getpid();
    for (int i = 0; i < 3; i++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child) continue;
        die_with_parent();
        // The parent may have ended before that, and would leave a worker that keeps the test's pipes open.
        if (getppid() != parent) return 0;
        for (;;) pause();
    }
    puts("ready");
    fflush(stdout);
    while (read(0, &byte, 1) > 0) CHECK(work(1) == 2);
    return 0;
}
