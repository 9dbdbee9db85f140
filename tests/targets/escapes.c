// cflags: -O2 -pthread
// escapes jump|cancel: a thread's waits end only by a handler's siglongjmp or by cancellation.
#include "common.h"
#include <poll.h>
#include <setjmp.h>
#include <stdatomic.h>

static sigjmp_buf back;
static volatile int over;
static uint64_t escapes;
static atomic_int waits;

PROBED int escaped(int x) { KEEP(); return x + 1; }

static void on_signal(int signal) { (void)signal; siglongjmp(back, 1); }

static void *jumps(void *unused) {
    sigset_t signals;
    CHECK(sigemptyset(&signals) == 0 && sigaddset(&signals, SIGUSR1) == 0);
    while (!over) {
        if (sigsetjmp(back, 1) == 0) {
            CHECK(pthread_sigmask(SIG_UNBLOCK, &signals, NULL) == 0);
            for (;;) pause();
        }
        CHECK(pthread_sigmask(SIG_BLOCK, &signals, NULL) == 0 && escaped(1) == 2);
        escapes++;
    }
    return unused;
}

static void *waits_for_its_end(void *unused) {
    atomic_store(&waits, 1);
    for (;;) pause();
    return unused;
}

// This thread must not wait, because only the other thread's waits are counted.
static int is_over(void) {
    struct pollfd input = {.fd = 0, .events = POLLIN};
    return over = poll(&input, 1, 0) > 0;
}

int main(int argc, char **argv) {
    pthread_t id;
    sigset_t signals;
    CHECK(argc == 2 && signal(SIGUSR1, on_signal) != SIG_ERR);
    CHECK(sigemptyset(&signals) == 0 && sigaddset(&signals, SIGUSR1) == 0);
    CHECK(pthread_sigmask(SIG_BLOCK, &signals, NULL) == 0);
    puts("ready");
    fflush(stdout);
    if (strcmp(argv[1], "jump") == 0) {
        CHECK(pthread_create(&id, NULL, jumps, NULL) == 0);
        while (!is_over()) CHECK(pthread_kill(id, SIGUSR1) == 0);
        (void)pthread_kill(id, SIGUSR1); // it may have ended
        CHECK(pthread_join(id, NULL) == 0);
    } else {
        while (!is_over()) {
            void *result;
            atomic_store(&waits, 0);
            CHECK(pthread_create(&id, NULL, waits_for_its_end, NULL) == 0);
            while (!atomic_load(&waits)) {}
            CHECK(pthread_cancel(id) == 0 && pthread_join(id, &result) == 0 && result == PTHREAD_CANCELED);
            CHECK(escaped(1) == 2);
            escapes++;
        }
    }
    expect("escaped", escapes);
    return 0;
}
