// cflags: -O2
// workers: forks three workers, and ends when stdin closes.
#include "common.h"

PROBED int work(int x) { KEEP(); return x + 1; }

int main(void) {
    char byte;
    int living[2];
    CHECK(pipe(living) == 0);
    for (int i = 0; i < 3; i++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child) continue;
        die_with_parent();
        close(living[0]), close(living[1]);
        for (;;) pause();
    }
    // Waits for each worker's prctl, because a worker could otherwise outlive its parent.
    close(living[1]);
    CHECK(read(living[0], &byte, 1) == 0);
    puts("ready");
    fflush(stdout);
    while (read(0, &byte, 1) > 0) CHECK(work(1) == 2);
    return 0;
}
