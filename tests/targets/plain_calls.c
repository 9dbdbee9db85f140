// cflags: -O2
// plain_calls ROUNDS [wait]: calls libc functions that are only a system call. Signals interrupt its reads, which must
// be restarted.
#include "common.h"
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>

static volatile uint64_t signals;
static void on_alarm(int signal) { (void)signal; signals++; }

static void feed(int to, int rounds) {
    for (int i = 0; i < rounds; i++) {
        char byte = (char)i;
        usleep(300);
        if (write(to, &byte, 1) != 1) _exit(1);
    }
    _exit(0);
}

int main(int argc, char **argv) {
    int rounds = (int)number(argc, argv, 1, 1000), ends[2], status;
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    struct itimerval often = {{0, 100}, {0, 100}}, never = {{0, 0}, {0, 0}};
    FILE *file = tmpfile();
    CHECK(file && pipe(ends) == 0);
    wait_for_start(argc, argv);
    pid_t own = getpid(), child = fork();
    if (child == 0) feed(ends[1], rounds);
    CHECK(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &often, NULL) == 0);
    for (int i = 0; i < rounds; i++) {
        char byte;
        CHECK(read(ends[0], &byte, 1) == 1 && byte == (char)i);
        CHECK(lseek(fileno(file), i, SEEK_SET) == i);
        CHECK(getpid() == own);
        errno = 0;
        CHECK(dup(-1) == -1 && errno == EBADF);
    }
    CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(signals > 0);
    expect("read", (uint64_t)rounds);
    expect("lseek", (uint64_t)rounds);
    expect("dup", (uint64_t)rounds);
    return 0;
}
