// cflags: -O2 -pthread
// deadlock [wait]: two threads that wait for each other, and one that waits for both.
#include "common.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>

pthread_mutex_t lock_a = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t lock_b = PTHREAD_MUTEX_INITIALIZER;
static atomic_int holding;
static pid_t tids[3];

PROBED void take(pthread_mutex_t *lock) {
    int taken = pthread_mutex_lock(lock);
    CHECK(taken == 0);
    KEEP();
}

static void *crossing(void *second) {
    prctl(PR_SET_NAME, second ? "second" : "first");
    tids[second ? 1 : 0] = (pid_t)syscall(SYS_gettid);
    take(second ? &lock_b : &lock_a);
    for (atomic_fetch_add(&holding, 1); atomic_load(&holding) < 2;) usleep(100);
    take(second ? &lock_a : &lock_b);
    return NULL;
}

static void *third(void *none) {
    prctl(PR_SET_NAME, "third");
    __atomic_store_n(&tids[2], (pid_t)syscall(SYS_gettid), __ATOMIC_SEQ_CST);
    take(&lock_a);
    return none;
}

int main(int argc, char **argv) {
    pthread_t threads[3];
    char byte;
    wait_for_start(argc, argv);
    CHECK(pthread_create(&threads[0], NULL, crossing, NULL) == 0);
    CHECK(pthread_create(&threads[1], NULL, crossing, &threads) == 0);
    while (atomic_load(&holding) < 2) usleep(100);
    CHECK(pthread_create(&threads[2], NULL, third, NULL) == 0);
    while (!__atomic_load_n(&tids[2], __ATOMIC_SEQ_CST)) usleep(100);
    for (int i = 0; i < 3; i++) {
        pthread_mutex_t *lock = i == 0 ? &lock_b : &lock_a;
        until_asleep(tids[i], SYS_futex, lock, sizeof *lock);
    }
    usleep(50000); // for the test of how long they have slept
    puts("stuck");
    fflush(stdout);
    while (read(0, &byte, 1) > 0) {}
    _exit(0);
}
