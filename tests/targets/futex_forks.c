// cflags: -O2
// futex_forks CALLS: makes futex calls of each kind. A child's calls must not be counted.
#include "common.h"
#include <linux/futex.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

static int word;

PROBED long wait_here(const struct timespec *limit, int value) {
    return syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, limit, NULL, 0);
}

PROBED long wake_here(void) {
    return syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void call(uint64_t calls) {
    const struct timespec soon = {0, 1000000};
    for (uint64_t i = 0; i < calls; i++) {
        CHECK(wait_here(NULL, 1) == -1 && errno == EAGAIN);
        CHECK(wake_here() == 0);
    }
    CHECK(wait_here(&soon, 0) == -1 && errno == ETIMEDOUT);
}

int main(int argc, char **argv) {
    uint64_t calls = number(argc, argv, 1, 100);
    int status;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        call(2 * calls);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    call(calls);
    expect("waits", calls + 1);
    expect("wakes", calls);
    return 0;
}
