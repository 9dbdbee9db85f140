// cflags: -O2 -pthread
// short_waiters [wait]: successive threads each wait once for a lock that the first thread holds.
#include "common.h"
#include <pthread.h>
#include <sys/syscall.h>

enum { THREADS = 6 };

static pthread_mutex_t short_lock = PTHREAD_MUTEX_INITIALIZER;
static pid_t waiter;

static void *waits(void *number) {
    char name[16];
    snprintf(name, sizeof name, "short%d", (int)(intptr_t)number);
    prctl(PR_SET_NAME, name);
    __atomic_store_n(&waiter, (pid_t)syscall(SYS_gettid), __ATOMIC_SEQ_CST);
    CHECK(pthread_mutex_lock(&short_lock) == 0);
    CHECK(pthread_mutex_unlock(&short_lock) == 0);
    return NULL;
}

int main(int argc, char **argv) {
    wait_for_start(argc, argv);
    for (intptr_t i = 0; i < THREADS; i++) {
        pthread_t thread;
        waiter = 0;
        CHECK(pthread_mutex_lock(&short_lock) == 0);
        CHECK(pthread_create(&thread, NULL, waits, (void *)i) == 0);
        while (!__atomic_load_n(&waiter, __ATOMIC_SEQ_CST)) usleep(100);
        until_asleep(waiter, SYS_futex, &short_lock, sizeof short_lock);
        CHECK(pthread_mutex_unlock(&short_lock) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
    }
    return 0;
}
