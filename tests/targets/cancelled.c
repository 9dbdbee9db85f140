// cflags: -O2 -pthread
// cancelled [wait]: cancels a thread that waits for a condition.
#include "common.h"
#include <sys/syscall.h>

pthread_mutex_t cancel_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t cancel_never = PTHREAD_COND_INITIALIZER;
static _Atomic pid_t waiter;

static void unlock(void *none) {
    (void)none;
    CHECK(pthread_mutex_unlock(&cancel_lock) == 0);
}

PROBED void wait_in_vain(void) {
    CHECK(pthread_mutex_lock(&cancel_lock) == 0);
    pthread_cleanup_push(unlock, NULL);
    for (;;) pthread_cond_wait(&cancel_never, &cancel_lock);
    pthread_cleanup_pop(1);
}

static void *waits(void *none) {
    waiter = (pid_t)syscall(SYS_gettid);
    wait_in_vain();
    return none;
}

int main(int argc, char **argv) {
    pthread_t thread;
    char byte;
    wait_for_start(argc, argv);
    CHECK(pthread_create(&thread, NULL, waits, NULL) == 0);
    while (waiter == 0) usleep(1000);
    until_asleep(waiter, SYS_futex, &cancel_never, sizeof cancel_never);
    CHECK(pthread_cancel(thread) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    puts("cancelled");
    fflush(stdout);
    while (read(0, &byte, 1) > 0) {}
    return 0;
}
