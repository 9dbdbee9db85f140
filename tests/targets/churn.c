// cflags: -O2 -pthread
// churn THREADS [wait]: short threads, which end by return, pthread_exit, cancellation, or a bare exit system call.
#include "common.h"
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>

static uint64_t threads;

PROBED int churned(int x) { KEEP(); return x + 1; }

static void *live(void *how) {
    for (int i = 0; i < 3; i++) CHECK(churned(i) == i + 1);
    switch ((uint64_t)how % 4) {
    case 1: pthread_exit(how);
    case 2: pthread_cancel(pthread_self()); pthread_testcancel(); abort();
    case 3: syscall(SYS_exit, 0);
    }
    return how;
}

static void *create(void *unused) {
    (void)unused;
    for (uint64_t i = 0; i < threads / 2; i++) {
        pthread_t id;
        CHECK(pthread_create(&id, NULL, live, (void *)i) == 0);
        CHECK(pthread_join(id, NULL) == 0);
    }
    return NULL;
}

int main(int argc, char **argv) {
    struct timespec from, to;
    pthread_t second;
    threads = number(argc, argv, 1, 2000) / 2 * 2;
    wait_for_start(argc, argv);
    clock_gettime(CLOCK_MONOTONIC, &from);
    CHECK(pthread_create(&second, NULL, create, NULL) == 0);
    create(NULL);
    CHECK(pthread_join(second, NULL) == 0);
    clock_gettime(CLOCK_MONOTONIC, &to);
    double seconds = (double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec) / 1e9;
    fprintf(stderr, "%.0f threads a second\n", (double)threads / seconds);
    expect("churned", 3 * threads);
    return 0;
}
