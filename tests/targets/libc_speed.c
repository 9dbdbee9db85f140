// cflags: -O2
// libc_speed [wait]: prints the ns of putc and malloc, which are fast only while libc knows of one thread.
#include "common.h"
#include <time.h>

PROBED int called(int x) { KEEP(); return x + 1; }

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec * 1e9 + (double)at.tv_nsec;
}

int main(int argc, char **argv) {
    enum { CALLS = 2000000 };
    FILE *null = fopen("/dev/null", "w");
    CHECK(null != NULL);
    wait_for_start(argc, argv);
    double from = now();
    for (int i = 0; i < CALLS; i++) putc('x', null);
    double putc_ns = (now() - from) / CALLS;
    from = now();
    for (int i = 0; i < CALLS; i++) {
        void *block = malloc(3000);
        __asm__ volatile("" : : "r"(block) : "memory");
        free(block);
    }
    double malloc_ns = (now() - from) / CALLS;
    printf("putc %.2f malloc %.2f\n", putc_ns, malloc_ns);
    for (int i = 0; i < 1000; i++) CHECK(called(i) == i + 1);
    expect("called", 1000);
    return 0;
}
