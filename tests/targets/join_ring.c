// cflags: -O2 -pthread
// join_ring [wait]: the first thread holds a priority-inheriting mutex and joins the second, which waits for the mutex.
#include "common.h"
#include <pthread.h>
#include <sys/syscall.h>

pthread_mutex_t ring_lock;
static pid_t waits_for_lock;

PROBED void take(pthread_mutex_t *lock) {
    int taken = pthread_mutex_lock(lock);
    CHECK(taken == 0);
    KEEP();
}

static void *second(void *none) {
    prctl(PR_SET_NAME, "second");
    __atomic_store_n(&waits_for_lock, (pid_t)syscall(SYS_gettid), __ATOMIC_SEQ_CST);
    take(&ring_lock);
    return none;
}

static void *speaker(void *none) {
    char byte;
    while (!__atomic_load_n(&waits_for_lock, __ATOMIC_SEQ_CST)) usleep(100);
    until_asleep(waits_for_lock, SYS_futex, &ring_lock, sizeof ring_lock);
    until_asleep(getpid(), SYS_futex, NULL, 0);
    puts("stuck");
    fflush(stdout);
    while (read(0, &byte, 1) > 0) {}
    _exit(0);
    return none;
}

PROBED void wait_for_end(pthread_t thread) {
    pthread_join(thread, NULL);
    KEEP();
}

int main(int argc, char **argv) {
    pthread_mutexattr_t inheriting;
    pthread_t threads[2];
    wait_for_start(argc, argv);
    CHECK(pthread_mutexattr_init(&inheriting) == 0);
    CHECK(pthread_mutexattr_setprotocol(&inheriting, PTHREAD_PRIO_INHERIT) == 0);
    CHECK(pthread_mutex_init(&ring_lock, &inheriting) == 0);
    take(&ring_lock);
    prctl(PR_SET_NAME, "first");
    CHECK(pthread_create(&threads[0], NULL, second, NULL) == 0);
    CHECK(pthread_create(&threads[1], NULL, speaker, NULL) == 0);
    wait_for_end(threads[0]);
    return 0;
}
