// cflags: -O2 -pthread -Wl,-z,now shapes.S
// masks MODE [wait]: waits for SIGTRAP and SIGILL, also under masks, while functions are probed. `held` sets its masks
// before it waits for a line.
#include "common.h"
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

int shape_head_at_four(int);
void shape_ret_first(void);

static const int SIGNALS[] = {SIGTRAP, SIGILL};
static volatile sig_atomic_t seen[65];
static volatile uint64_t calls;
static char *self;

PROBED int called(int x) { KEEP(); return x + 1; }

static void hit(void) {
    for (int i = 0; i < 10; i++) {
        CHECK(called(i) == i + 1);
        CHECK(shape_head_at_four(i) == i + 1);
        shape_ret_first();
    }
    __atomic_fetch_add(&calls, 10, __ATOMIC_RELAXED);
}

static void count(int signal) { seen[signal]++; hit(); }

static void install(int signal, int flags) {
    CHECK(sigaction(signal, &(struct sigaction){.sa_handler = count, .sa_flags = flags}, NULL) == 0);
}

static sigset_t just(int signal) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signal);
    return set;
}

static sigset_t all_but(int signal) {
    sigset_t set;
    sigfillset(&set);
    sigdelset(&set, signal);
    return set;
}

static int blocks(int signal) {
    sigset_t now;
    return pthread_sigmask(SIG_BLOCK, NULL, &now) == 0 && sigismember(&now, signal);
}

static int pending(int signal) {
    sigset_t now;
    return sigpending(&now) == 0 && sigismember(&now, signal);
}

static void mask(int how, int signal) {
    sigset_t set = just(signal);
    CHECK(pthread_sigmask(how, &set, NULL) == 0);
}

static int by_sigsuspend(const sigset_t *mask, int ms) { (void)ms; return sigsuspend(mask); }
static struct timespec time_of(int ms) { return (struct timespec){ms / 1000, ms % 1000 * 1000000}; }
static int by_ppoll(const sigset_t *mask, int ms) {
    struct timespec time = time_of(ms);
    return ppoll(NULL, 0, &time, mask);
}
static int by_pselect(const sigset_t *mask, int ms) {
    struct timespec time = time_of(ms);
    return pselect(0, NULL, NULL, NULL, &time, mask);
}
static int epoll(void) {
    static int fd;
    if (!fd) fd = epoll_create1(EPOLL_CLOEXEC);
    return fd;
}
static int by_epoll_pwait(const sigset_t *mask, int ms) {
    struct epoll_event event;
    return epoll_pwait(epoll(), &event, 1, ms, mask);
}
static int by_epoll_pwait2(const sigset_t *mask, int ms) {
    struct timespec time = time_of(ms);
    struct epoll_event event;
    return epoll_pwait2(epoll(), &event, 1, &time, mask);
}
static int by_syscall(const sigset_t *mask, int ms) {
    struct timespec time = time_of(ms);
    return syscall(SYS_ppoll, NULL, 0, &time, mask, 8);
}
static int (*const ways[])(const sigset_t *, int) = {
    by_sigsuspend, by_ppoll, by_pselect, by_epoll_pwait, by_epoll_pwait2, by_syscall,
};
enum { WAYS = sizeof ways / sizeof ways[0], LONG = 60000 };

// epoll may return EINTR for another thread's signal, so the wait is repeated if no handler ran.
static int waits(int way, const sigset_t *mask, int ms) {
    int before = seen[SIGTRAP], epolls = ways[way] == by_epoll_pwait || ways[way] == by_epoll_pwait2, result;
    do result = ways[way](mask, ms);
    while (epolls && result == -1 && errno == EINTR && seen[SIGTRAP] == before);
    return result;
}

static int sender_way;
static volatile int wanted, stop;
static pthread_t waiter;

static void *send_when_wanted(void *unused) {
    for (int n = 0; !stop; n++) {
        if (!__atomic_exchange_n(&wanted, 0, __ATOMIC_ACQ_REL)) { sched_yield(); continue; }
        for (volatile int spin = 0; spin < n * 37 % 4000; spin++) {}
        if (sender_way) pthread_kill(waiter, SIGTRAP); else kill(getpid(), SIGTRAP);
    }
    return unused;
}

static void want(void) { __atomic_store_n(&wanted, 1, __ATOMIC_RELEASE); }
// The sender's thread may get the signal while the thread starts. Then the signal is pending only after tiptoe's
// library has held it back.
static int becomes_pending(int signal) {
    while (!pending(signal)) sched_yield();
    return 1;
}

// A signal unblocked only during the wait must end the wait.
static void awaited(void) {
    sigset_t open = all_but(SIGTRAP);
    install(SIGTRAP, 0);
    pthread_t sender;
    mask(SIG_BLOCK, SIGTRAP);
    waiter = pthread_self();
    CHECK(pthread_create(&sender, NULL, send_when_wanted, NULL) == 0);
    int expected = 0;
    for (int way = 0; way < WAYS; way++) {
        for (sender_way = 0; sender_way < 2; sender_way++) {
            CHECK(kill(getpid(), SIGTRAP) == 0 && becomes_pending(SIGTRAP));
            CHECK(waits(way, &open, LONG) == -1 && errno == EINTR && seen[SIGTRAP] == ++expected);
            for (int i = 0; i < 300; i++) {
                want();
                CHECK(waits(way, &open, LONG) == -1 && errno == EINTR);
                CHECK(seen[SIGTRAP] == ++expected && blocks(SIGTRAP) && !pending(SIGTRAP));
            }
        }
    }
    for (int i = 0; i < 300; i++) {
        sigset_t set = just(SIGTRAP);
        siginfo_t info;
        want();
        CHECK(sigwaitinfo(&set, &info) == SIGTRAP && info.si_pid == getpid() && info.si_signo == SIGTRAP);
    }
    CHECK(seen[SIGTRAP] == expected && !pending(SIGTRAP));
    stop = 1;
    CHECK(pthread_join(sender, NULL) == 0);
}

static volatile int turns;

static void *wait_beside(void *unused) {
    sigset_t open = all_but(SIGTRAP), set = just(SIGTRAP);
    for (int way = 0; way <= WAYS; way++) {
        for (int i = 0; i < 100; i++) {
            __atomic_fetch_add(&turns, 1, __ATOMIC_RELEASE);
            if (way == WAYS) CHECK(sigwaitinfo(&set, NULL) == SIGTRAP);
            else CHECK(waits(way, &open, LONG) == -1 && errno == EINTR && seen[SIGTRAP] == way * 100 + i + 1);
        }
    }
    __atomic_fetch_add(&turns, 1, __ATOMIC_RELEASE);
    return unused;
}

static void another_waits(void) {
    pthread_t beside;
    install(SIGTRAP, 0);
    mask(SIG_BLOCK, SIGTRAP);
    CHECK(pthread_create(&beside, NULL, wait_beside, NULL) == 0);
    for (int turn = 1; turn <= (WAYS + 1) * 100; turn++) {
        while (__atomic_load_n(&turns, __ATOMIC_ACQUIRE) < turn) sched_yield();
        for (volatile int spin = 0; spin < turn * 37 % 4000; spin++) {}
        CHECK(kill(getpid(), SIGTRAP) == 0);
    }
    CHECK(pthread_join(beside, NULL) == 0 && !pending(SIGTRAP));
}

// A handler hits probes while all signals are blocked. The wait must still restore the mask.
static void full_masks(void) {
    sigset_t mostly = all_but(SIGUSR1), old;
    install(SIGUSR1, 0);
    mask(SIG_BLOCK, SIGUSR1);
    for (int way = 0; way < WAYS; way++) {
        CHECK(kill(getpid(), SIGUSR1) == 0);
        CHECK(ways[way](&mostly, LONG) == -1 && errno == EINTR && seen[SIGUSR1] == way + 1);
        CHECK(pthread_sigmask(SIG_BLOCK, NULL, &old) == 0);
        CHECK(sigismember(&old, SIGUSR1) && !sigismember(&old, SIGTRAP) && !sigismember(&old, SIGUSR2));
        hit();
    }
}

static void *send_later(void *to) {
    usleep(20000);
    CHECK(pthread_kill(*(pthread_t *)to, SIGTRAP) == 0 && kill(getpid(), SIGILL) == 0);
    return NULL;
}

static void not_for_them(void) {
    pthread_t self = pthread_self(), sender;
    sigset_t full;
    sigfillset(&full);
    for (int s = 0; s < 2; s++) { install(SIGNALS[s], 0); mask(SIG_BLOCK, SIGNALS[s]); }
    for (int way = 1; way < WAYS; way++) {
        CHECK(pthread_create(&sender, NULL, send_later, &self) == 0);
        CHECK(waits(way, &full, 100) == 0);
        CHECK(pthread_join(sender, NULL) == 0 && pending(SIGTRAP) && pending(SIGILL));
        CHECK(seen[SIGTRAP] == way - 1 && seen[SIGILL] == way - 1);
        for (int s = 0; s < 2; s++) { mask(SIG_UNBLOCK, SIGNALS[s]); mask(SIG_BLOCK, SIGNALS[s]); }
        CHECK(seen[SIGTRAP] == way && seen[SIGILL] == way && !pending(SIGTRAP));
    }
}

static volatile int cleaned;
static void clean(void *unused) { cleaned += unused == NULL; }

static void *wait_for_ever(void *way) {
    sigset_t full, set = just(SIGTRAP);
    sigfillset(&full);
    pthread_cleanup_push(clean, NULL);
    __atomic_fetch_add(&turns, 1, __ATOMIC_RELEASE);
    if ((intptr_t)way == WAYS) sigwaitinfo(&set, NULL);
    else if (ways[(intptr_t)way] == by_syscall) usleep(LONG * 1000);
    else ways[(intptr_t)way](&full, LONG);
    pthread_cleanup_pop(0);
    return NULL;
}

static void cancelled(void) {
    mask(SIG_BLOCK, SIGTRAP);
    for (intptr_t way = 0; way <= WAYS; way++) {
        pthread_t thread;
        void *result;
        CHECK(pthread_create(&thread, NULL, wait_for_ever, (void *)way) == 0);
        while (__atomic_load_n(&turns, __ATOMIC_ACQUIRE) <= way) sched_yield();
        usleep(2000);
        CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0);
        CHECK(result == PTHREAD_CANCELED && cleaned == way + 1);
        hit();
    }
}

static int readable(int fd) {
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    return poll(&poll_fd, 1, 0) == 1 && poll_fd.revents == POLLIN;
}

static void read_one(int fd, int signal) {
    struct signalfd_siginfo info;
    CHECK(readable(fd) && pending(signal));
    CHECK(read(fd, &info, sizeof info) == sizeof info);
    CHECK((int)info.ssi_signo == signal && (int)info.ssi_pid == getpid() && info.ssi_uid == getuid());
    CHECK(!readable(fd) && !pending(signal) && read(fd, &info, sizeof info) == -1 && errno == EAGAIN);
}

static void by_signalfd(void) {
    for (int s = 0; s < 2; s++) {
        int signal = SIGNALS[s];
        sigset_t set = just(signal);
        siginfo_t got;
        install(signal, 0);
        mask(SIG_BLOCK, signal);
        int fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
        CHECK(fd == 3 + s && !readable(fd));
        CHECK(kill(getpid(), signal) == 0); hit(); read_one(fd, signal);
        CHECK(raise(signal) == 0); hit(); read_one(fd, signal);
        CHECK(pthread_kill(pthread_self(), signal) == 0); read_one(fd, signal);
        // Two signals of a kind are one, which only one reader may get.
        CHECK(kill(getpid(), signal) == 0 && kill(getpid(), signal) == 0);
        CHECK(sigwaitinfo(&set, &got) == signal && got.si_pid == getpid() && !readable(fd));
        CHECK(kill(getpid(), signal) == 0 && readable(fd));
        mask(SIG_UNBLOCK, signal);
        CHECK(seen[signal] == 1 && !readable(fd));
    }
}

static void raw_calls(void) {
    struct { void *handler; unsigned long flags; void *restorer; uint64_t mask; } action, old;
    uint64_t trap = 1 << (SIGTRAP - 1), was = 0;
    siginfo_t info;
    install(SIGTRAP, 0);
    CHECK(syscall(SYS_rt_sigaction, SIGTRAP, NULL, &old, 8) == 0 && old.handler == count);
    action = old;
    action.mask = trap;
    CHECK(syscall(SYS_rt_sigaction, SIGUSR1, &action, NULL, 8) == 0);
    CHECK(syscall(SYS_rt_sigaction, SIGUSR1, NULL, &old, 8) == 0 && old.mask == trap);
    CHECK(syscall(SYS_rt_sigprocmask, SIG_BLOCK, &trap, NULL, 8) == 0);
    CHECK(syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, &was, 8) == 0 && was == trap);
    hit();
    CHECK(raise(SIGUSR1) == 0 && seen[SIGUSR1] == 1);
    CHECK(syscall(SYS_tgkill, getpid(), gettid(), SIGTRAP) == 0);
    CHECK(syscall(SYS_rt_sigpending, &was, 8) == 0 && was == trap);
    CHECK(syscall(SYS_rt_sigtimedwait, &trap, &info, NULL, 8) == SIGTRAP && info.si_code == SI_TKILL);
    int fd = syscall(SYS_signalfd4, -1, &trap, 8, SFD_NONBLOCK);
    CHECK(raise(SIGTRAP) == 0);
    read_one(fd, SIGTRAP);
    CHECK(syscall(SYS_getpid) == getpid() && syscall(SYS_rt_sigprocmask, 7, &trap, NULL, 8) == -1 && errno == EINVAL);
    hit();
}

// A handler must see its mask as set, and no trap inside the handler may kill the program.
static void handler_masks(void) {
    struct sigaction action = {.sa_handler = count}, old;
    sigfillset(&action.sa_mask);
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    CHECK(raise(SIGUSR1) == 0 && seen[SIGUSR1] == 1);
    CHECK(sigaction(SIGUSR1, NULL, &old) == 0 && sigismember(&old.sa_mask, SIGTRAP) && sigismember(&old.sa_mask, SIGILL));
    CHECK(sigaction(SIGTRAP, &action, NULL) == 0 && raise(SIGTRAP) == 0 && seen[SIGTRAP] == 1);
    CHECK(sigaction(SIGTRAP, NULL, &old) == 0 && sigismember(&old.sa_mask, SIGTRAP) && !blocks(SIGTRAP));
}

static char *low, *high;
static volatile int depth, deepest, times;

static void nest(int signal) {
    char here;
    CHECK(&here > low && &here < high);
    CHECK(blocks(signal) == 0);
    deepest = ++depth > deepest ? depth : deepest;
    hit();
    if (depth < 3) CHECK(raise(signal) == 0);
    depth--;
}

static void after(int signal) {
    char here;
    CHECK(&here > low && &here < high && blocks(signal));
    deepest = ++depth > deepest ? depth : deepest;
    if (++seen[signal] < times) CHECK(raise(signal) == 0);
    depth--;
}

// SA_ONSTACK must hold on a small stack. The build has `-z now`, because lazy binding needs more room. With
// SA_NODEFER handlers must nest.
static void flags(void) {
    size_t frame = signal_frame(), sizes[] = {frame + 2048, 6 * frame};
    for (int s = 0; s < 2; s++) {
        for (int large = 0; large < 2; large++) {
            low = use_guarded_stack(sizes[large]);
            high = low + sizes[large];
            struct sigaction action = {.sa_handler = after, .sa_flags = SA_ONSTACK}, old;
            seen[SIGNALS[s]] = deepest = 0;
            times = large ? 50 : 1;
            CHECK(sigaction(SIGNALS[s], &action, NULL) == 0 && raise(SIGNALS[s]) == 0);
            CHECK(seen[SIGNALS[s]] == times && deepest == 1 && !blocks(SIGNALS[s]));
            if (!large) continue;
            action = (struct sigaction){.sa_handler = nest, .sa_flags = SA_ONSTACK | SA_NODEFER};
            CHECK(sigaction(SIGNALS[s], &action, NULL) == 0 && raise(SIGNALS[s]) == 0 && deepest == 3);
            action = (struct sigaction){.sa_handler = after, .sa_flags = SA_ONSTACK | SA_RESETHAND};
            seen[SIGNALS[s]] = 50;
            CHECK(sigaction(SIGNALS[s], &action, NULL) == 0 && raise(SIGNALS[s]) == 0 && seen[SIGNALS[s]] == 51);
            CHECK(sigaction(SIGNALS[s], NULL, &old) == 0 && old.sa_handler == SIG_DFL);
        }
    }
    hit();
}

static sigjmp_buf out;
static void leave(int signal) { hit(); seen[signal]++; siglongjmp(out, 1); }

static void jumps_out(void) {
    for (int s = 0; s < 2; s++) {
        struct sigaction action = {.sa_handler = leave};
        CHECK(sigaction(SIGNALS[s], &action, NULL) == 0);
        for (volatile int i = 0; i < 50; i++) {
            if (sigsetjmp(out, 1) == 0) {
                if (i % 2) raise(SIGNALS[s]); else if (s) __asm__ volatile("ud2"); else __asm__ volatile("int3");
                CHECK(!"the handler leaves");
            }
            CHECK(!blocks(SIGNALS[s]) && seen[SIGNALS[s]] == i + 1);
            hit();
        }
        // siglongjmp without a saved mask leaves the signal blocked.
        if (sigsetjmp(out, 0) == 0) raise(SIGNALS[s]);
        CHECK(blocks(SIGNALS[s]));
        hit();
    }
}

static int inherited(void) {
    struct sigaction old;
    return blocks(SIGTRAP) && !blocks(SIGILL) && sigaction(SIGILL, NULL, &old) == 0 && old.sa_handler == SIG_IGN ? 0 : 98;
}

static int ends(pid_t pid) {
    int status;
    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void new_programs(void) {
    char *arguments[] = {self, "inherited", NULL}, *none[] = {NULL};
    struct sigaction old;
    pid_t pid;
    install(SIGTRAP, 0);
    CHECK(signal(SIGILL, SIG_IGN) == SIG_DFL);
    mask(SIG_BLOCK, SIGTRAP);
    CHECK(execve("/nowhere", arguments, none) == -1 && errno == ENOENT);
    hit();
    if ((pid = fork()) == 0) { called(1); execve(self, arguments, none); _exit(97); }
    CHECK(ends(pid) == 0);
    if ((pid = vfork()) == 0) { execve(self, arguments, none); _exit(97); }
    CHECK(ends(pid) == 0);
    CHECK(posix_spawn(&pid, self, NULL, NULL, arguments, none) == 0 && ends(pid) == 0);
    CHECK(sigaction(SIGTRAP, NULL, &old) == 0 && old.sa_handler == count);
    CHECK(raise(SIGTRAP) == 0 && pending(SIGTRAP));
    if ((pid = fork()) == 0) { CHECK(!pending(SIGTRAP) && blocks(SIGTRAP)); _exit(0); }
    CHECK(ends(pid) == 0);
    mask(SIG_UNBLOCK, SIGTRAP);
    CHECK(seen[SIGTRAP] == 1);
    hit();
}

static int gate[2];
static void *blocked_and_reading(void *unused) {
    char byte;
    mask(SIG_BLOCK, SIGILL);
    CHECK(write(gate[1], "!", 1) == 1);
    CHECK(read(gate[0], &byte, 1) == 1);
    CHECK(blocks(SIGTRAP) && blocks(SIGILL));
    hit();
    return unused;
}

static void block_early(pthread_t *thread) {
    char byte;
    int back[2];
    install(SIGTRAP, 0);
    mask(SIG_BLOCK, SIGTRAP);
    CHECK(pipe(gate) == 0 && pipe(back) == 0);
    int main_side = gate[1];
    gate[1] = back[1];
    CHECK(pthread_create(thread, NULL, blocked_and_reading, NULL) == 0);
    CHECK(read(back[0], &byte, 1) == 1);
    gate[1] = main_side;
}

static void held(pthread_t thread) {
    CHECK(blocks(SIGTRAP) && !blocks(SIGILL));
    hit();
    CHECK(raise(SIGTRAP) == 0 && kill(getpid(), SIGTRAP) == 0 && pending(SIGTRAP) && seen[SIGTRAP] == 0);
    CHECK(write(gate[1], "!", 1) == 1 && pthread_join(thread, NULL) == 0);
    CHECK(seen[SIGTRAP] == 0 && pending(SIGTRAP));
    mask(SIG_UNBLOCK, SIGTRAP);
    CHECK(seen[SIGTRAP] == 2 && !pending(SIGTRAP));
}

static void stays(pthread_t thread) {
    char line[64];
    CHECK(raise(SIGTRAP) == 0 && kill(getpid(), SIGTRAP) == 0);
    mask(SIG_BLOCK, SIGUSR2);
    puts("blocked");
    fflush(stdout);
    CHECK(read(0, line, sizeof line) > 0);
    CHECK(pending(SIGTRAP));
    held(thread);
}

#define MODE(name) {#name, name}
static const struct { const char *name; void (*run)(void); } modes[] = {
    MODE(awaited), MODE(another_waits), MODE(full_masks), MODE(not_for_them), MODE(cancelled), {"signalfd", by_signalfd},
    MODE(raw_calls), MODE(handler_masks), MODE(flags), MODE(jumps_out), MODE(new_programs),
};

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "awaited";
    pthread_t thread;
    self = argv[0];
    if (!strcmp(mode, "inherited")) return inherited();
    int early = !strcmp(mode, "held") || !strcmp(mode, "stays");
    if (early) block_early(&thread);
    wait_for_start(argc, argv);
    if (!strcmp(mode, "held")) held(thread);
    if (!strcmp(mode, "stays")) stays(thread);
    for (size_t m = 0; m < sizeof modes / sizeof modes[0]; m++) {
        if (!strcmp(modes[m].name, mode)) modes[m].run();
    }
    expect("called", calls);
    expect("shape_head_at_four", calls);
    expect("shape_ret_first", calls);
    return 0;
}
