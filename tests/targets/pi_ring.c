// cflags: -O2 -pthread
// pi_ring [wait]: two threads wait for each other's priority-inheriting mutex. The kernel refuses the second wait.
#include "common.h"
#include <pthread.h>
#include <sys/syscall.h>

pthread_mutex_t pi_a, pi_b;
static pid_t tids[2];
static pthread_barrier_t both_hold;

PROBED void take(pthread_mutex_t *lock) {
    int taken = pthread_mutex_lock(lock);
    CHECK(taken == 0);
    KEEP();
}

static void *first(void *none) {
    prctl(PR_SET_NAME, "first");
    take(&pi_a);
    pthread_barrier_wait(&both_hold);
    __atomic_store_n(&tids[0], (pid_t)syscall(SYS_gettid), __ATOMIC_SEQ_CST);
    take(&pi_b);
    return none;
}

static void *second(void *none) {
    prctl(PR_SET_NAME, "second");
    take(&pi_b);
    pthread_barrier_wait(&both_hold);
    while (!__atomic_load_n(&tids[0], __ATOMIC_SEQ_CST)) usleep(100);
    until_asleep(tids[0], SYS_futex, &pi_b, sizeof pi_b);
    __atomic_store_n(&tids[1], (pid_t)syscall(SYS_gettid), __ATOMIC_SEQ_CST);
    take(&pi_a);
    return none;
}

int main(int argc, char **argv) {
    pthread_mutexattr_t inheriting;
    pthread_t threads[2];
    char byte;
    wait_for_start(argc, argv);
    CHECK(pthread_mutexattr_init(&inheriting) == 0);
    CHECK(pthread_mutexattr_setprotocol(&inheriting, PTHREAD_PRIO_INHERIT) == 0);
    CHECK(pthread_mutex_init(&pi_a, &inheriting) == 0);
    CHECK(pthread_mutex_init(&pi_b, &inheriting) == 0);
    CHECK(pthread_barrier_init(&both_hold, NULL, 2) == 0);
    CHECK(pthread_create(&threads[0], NULL, first, NULL) == 0);
    CHECK(pthread_create(&threads[1], NULL, second, NULL) == 0);
    while (!__atomic_load_n(&tids[1], __ATOMIC_SEQ_CST)) usleep(100);
    until_asleep(tids[1], SYS_futex, NULL, 0);
    puts("stuck");
    fflush(stdout);
    while (read(0, &byte, 1) > 0) {}
    _exit(0);
}
