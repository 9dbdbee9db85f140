// cflags: -O2 -pthread
// masked HOW: a thread that blocks SIGTRAP calls a function on which only a trap byte fits. HOW is what blocks SIGTRAP:
// mask (the thread's own mask), sigsuspend, ppoll, pselect, epoll (the mask of a SIGUSR1 handler that interrupts this
// call), handler (the mask that a handler's return restores). With `mask` there are many threads, so that some are
// preempted inside the trap's handler.
#include "common.h"
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>

enum { THREADS = 40 };
static volatile int over, inside, stays;
static volatile uint64_t calls;
static sigset_t everything, waiting;
static const char *how;
static int events;

__asm__(".text\n.type trapped, @function\n.globl trapped\n"
        "trapped: mov $1, %eax\n1: mov $2, %edx\n dec %eax\n jnz 1b\n ret\n.size trapped, . - trapped");
extern void trapped(void);

static void call(void) {
    trapped();
    __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED);
}

static void on_usr1(int number) {
    (void)number;
    inside = 1;
    while (stays);
    call();
}

static int is(const char *name) { return strcmp(how, name) == 0; }

static void sleep_once(void) {
    struct timespec long_ = {1000, 0};
    struct epoll_event event;
    if (is("ppoll")) ppoll(NULL, 0, &long_, &waiting);
    else if (is("pselect")) pselect(0, NULL, NULL, NULL, &long_, &waiting);
    else if (is("epoll")) epoll_pwait(events, &event, 1, -1, &waiting);
    else sigsuspend(&waiting);
}

static void *run(void *unused) {
    sigset_t now;
    while (!over) {
        if (!is("mask")) sleep_once();
        call();
    }
    CHECK(pthread_sigmask(SIG_SETMASK, NULL, &now) == 0);
    CHECK(sigismember(&now, SIGTRAP) && sigismember(&now, SIGILL) && sigismember(&now, SIGUSR1));
    return unused;
}

int main(int argc, char **argv) {
    pthread_t id, more[THREADS];
    char line[64];
    struct sigaction action = {.sa_handler = on_usr1};
    CHECK(argc > 1);
    how = argv[1];
    CHECK((events = epoll_create1(0)) >= 0);
    sigfillset(&everything);
    sigfillset(&waiting);
    sigdelset(&waiting, SIGUSR1);
    sigfillset(&action.sa_mask);
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    CHECK(pthread_sigmask(SIG_SETMASK, &everything, NULL) == 0);
    CHECK(pthread_create(&id, NULL, run, NULL) == 0);
    for (int i = 0; is("mask") && i < THREADS; i++) CHECK(pthread_create(&more[i], NULL, run, NULL) == 0);
    if (is("handler")) {
        stays = 1;
        CHECK(pthread_kill(id, SIGUSR1) == 0);
        while (!inside);
    }
    puts("ready");
    fflush(stdout);
    while (read(0, line, sizeof line) > 0) {
        uint64_t before = calls;
        stays = 0;
        if (!is("mask")) CHECK(pthread_kill(id, SIGUSR1) == 0);
        while (calls < before + 2);
        puts("called");
        fflush(stdout);
    }
    over = 1;
    if (!is("mask")) CHECK(pthread_kill(id, SIGUSR1) == 0);
    CHECK(pthread_join(id, NULL) == 0);
    for (int i = 0; is("mask") && i < THREADS; i++) CHECK(pthread_join(more[i], NULL) == 0);
    expect("trapped", calls);
    return 0;
}
