// cflags: -O2 -pthread
// swift: stops its parent, tiptoe, until this program has ended, so that tiptoe never sees it alive.
#include "common.h"
#include <sys/syscall.h>

pthread_mutex_t swift_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic pid_t waiter;

PROBED void swift_wait(void) {
    CHECK(pthread_mutex_lock(&swift_lock) == 0);
    CHECK(pthread_mutex_unlock(&swift_lock) == 0);
}

static void *waits(void *none) {
    waiter = (pid_t)syscall(SYS_gettid);
    swift_wait();
    return none;
}

int main(void) {
    pid_t tiptoe = getppid(), own = getpid();
    char path[64], name[16] = "";
    snprintf(path, sizeof path, "/proc/%d/comm", (int)tiptoe);
    int file = open(path, O_RDONLY);
    CHECK(file >= 0 && read(file, name, sizeof name - 1) > 0 && strcmp(name, "tiptoe\n") == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        while (getppid() == own) usleep(1000);
        kill(tiptoe, SIGCONT);
        _exit(0);
    }
    CHECK(kill(tiptoe, SIGSTOP) == 0);
    pthread_t thread;
    CHECK(pthread_mutex_lock(&swift_lock) == 0);
    CHECK(pthread_create(&thread, NULL, waits, NULL) == 0);
    while (waiter == 0) usleep(1000);
    until_asleep(waiter, SYS_futex, &swift_lock, sizeof swift_lock);
    CHECK(pthread_mutex_unlock(&swift_lock) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    return 0;
}
