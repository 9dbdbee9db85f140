// cflags: -O2 -pthread shapes.S
// signals MODE [wait]: uses SIGTRAP and SIGILL, which trap bytes raise too, while probed functions run.
#include "common.h"
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>

int shape_head_at_four(int);
void shape_ret_first(void);
extern char trap_here[], illegal_here[];

static const int SIGNALS[] = {SIGTRAP, SIGILL};
static volatile sig_atomic_t seen[65];
static void *volatile fault_at;
static uint64_t calls;

PROBED int called(int x) { KEEP(); return x + 1; }

static void hit(void) {
    for (int i = 0; i < 100; i++) {
        CHECK(called(i) == i + 1);
        CHECK(shape_head_at_four(i) == i + 1);
        shape_ret_first();
    }
    calls += 100;
}

PROBED void own_trap(void) { __asm__ volatile(".globl trap_here\ntrap_here: int3"); }
PROBED void own_illegal(void) { __asm__ volatile(".globl illegal_here\nillegal_here: ud2"); }

static void handle(int signal, siginfo_t *info, void *context) {
    greg_t *rip = &((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
    seen[signal]++;
    fault_at = (void *)*rip;
    if (signal == SIGILL && info->si_code > 0) *rip += 2;
}

static void simple(int signal) { seen[signal]++; }

static void install(int signal, int flags) {
    struct sigaction action = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO | flags};
    CHECK(sigaction(signal, &action, NULL) == 0);
}

// sigaction and signal must return what the program set, flags and mask included.
static void old_handler(void) {
    struct sigaction action = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO | SA_NODEFER}, old;
    sigaddset(&action.sa_mask, SIGUSR2);
    for (int s = 0; s < 2; s++) {
        CHECK(sigaction(SIGNALS[s], NULL, &old) == 0 && old.sa_handler == SIG_DFL);
        CHECK(sigaction(SIGNALS[s], &action, &old) == 0 && old.sa_handler == SIG_DFL);
        hit();
        CHECK(sigaction(SIGNALS[s], NULL, &old) == 0 && old.sa_sigaction == handle);
        CHECK((old.sa_flags & (SA_SIGINFO | SA_NODEFER | SA_ONSTACK | SA_RESETHAND)) == (SA_SIGINFO | SA_NODEFER));
        CHECK(sigismember(&old.sa_mask, SIGUSR2) && !sigismember(&old.sa_mask, SIGUSR1));
        CHECK(signal(SIGNALS[s], simple) == (void (*)(int))(void *)handle);
        CHECK(signal(SIGNALS[s], SIG_IGN) == simple);
        CHECK(signal(SIGNALS[s], SIG_DFL) == SIG_IGN);
    }
}

// The program's handlers must get raised signals and its own faults, with the right address.
static void own_faults(void) {
    for (int s = 0; s < 2; s++) install(SIGNALS[s], 0);
    for (int i = 1; i <= 10; i++) {
        hit();
        own_trap();
        CHECK(seen[SIGTRAP] == i && fault_at == trap_here + 1);
        own_illegal();
        CHECK(seen[SIGILL] == i && fault_at == illegal_here);
    }
    CHECK(raise(SIGTRAP) == 0 && raise(SIGILL) == 0);
    CHECK(seen[SIGTRAP] == 11 && seen[SIGILL] == 11);
}

static void on_its_stack(void) {
    use_alternate_stack();
    install(SIGTRAP, SA_ONSTACK | SA_RESETHAND);
    hit();
    own_trap();
    struct sigaction old;
    CHECK(seen[SIGTRAP] == 1 && sigaction(SIGTRAP, NULL, &old) == 0 && old.sa_handler == SIG_DFL);
    hit();
}

static void blocked(void) {
    sigset_t set, old, pending;
    sigemptyset(&set);
    for (int s = 0; s < 2; s++) { sigaddset(&set, SIGNALS[s]); install(SIGNALS[s], 0); }
    CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
    hit();
    CHECK(sigprocmask(SIG_SETMASK, NULL, &old) == 0);
    CHECK(sigismember(&old, SIGTRAP) && sigismember(&old, SIGILL) && !sigismember(&old, SIGUSR1));
    CHECK(sigpending(&pending) == 0 && !sigismember(&pending, SIGTRAP));
    CHECK(kill(getpid(), SIGTRAP) == 0);
    hit();
    CHECK(seen[SIGTRAP] == 0);
    CHECK(sigpending(&pending) == 0 && sigismember(&pending, SIGTRAP));
    CHECK(sigprocmask(SIG_UNBLOCK, &set, &old) == 0 && sigismember(&old, SIGTRAP));
    CHECK(seen[SIGTRAP] == 1);
    hit();
}

static void *inherit(void *unused) {
    sigset_t mask;
    CHECK(pthread_sigmask(SIG_BLOCK, NULL, &mask) == 0 && sigismember(&mask, SIGTRAP));
    hit();
    return unused;
}

static void blocked_thread(void) {
    sigset_t all, old;
    pthread_t id;
    sigfillset(&all);
    CHECK(pthread_sigmask(SIG_SETMASK, &all, &old) == 0);
    CHECK(pthread_create(&id, NULL, inherit, NULL) == 0 && pthread_join(id, NULL) == 0);
    CHECK(pthread_sigmask(SIG_SETMASK, &old, NULL) == 0);
}

static void ignored(void) {
    struct sigaction old;
    for (int s = 0; s < 2; s++) {
        CHECK(signal(SIGNALS[s], SIG_IGN) == SIG_DFL);
        hit();
        CHECK(raise(SIGNALS[s]) == 0);
        CHECK(sigaction(SIGNALS[s], NULL, &old) == 0 && old.sa_handler == SIG_IGN);
    }
}

static void waited(void) {
    struct timespec brief = {0, 20000000};
    siginfo_t got;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTRAP);
    CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
    hit();
    CHECK(sigtimedwait(&set, &got, &brief) == -1 && errno == EAGAIN);
    CHECK(kill(getpid(), SIGTRAP) == 0);
    hit();
    CHECK(sigwaitinfo(&set, &got) == SIGTRAP && got.si_pid == getpid());
}

static int dies_of(void (*fault)(void)) {
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        called(1);
        fault();
        _exit(0);
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void deadly(void) {
    hit();
    CHECK(dies_of(own_trap) == SIGTRAP);
    CHECK(dies_of(own_illegal) == SIGILL);
    sigset_t set;
    sigfillset(&set);
    CHECK(sigprocmask(SIG_SETMASK, &set, NULL) == 0);
    CHECK(dies_of(own_illegal) == SIGILL);
    hit();
}

static void dies(void) { hit(); expect("called", calls); own_illegal(); }

static const struct { const char *name; void (*run)(void); } modes[] = {
    {"old_handler", old_handler}, {"own_faults", own_faults}, {"on_its_stack", on_its_stack},
    {"blocked", blocked}, {"blocked_thread", blocked_thread}, {"ignored", ignored},
    {"waited", waited}, {"deadly", deadly}, {"dies", dies},
};

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "old_handler";
    wait_for_start(argc, argv);
    for (size_t m = 0; m < sizeof modes / sizeof modes[0]; m++) {
        if (strcmp(modes[m].name, mode)) continue;
        modes[m].run();
        expect("called", calls);
        expect("shape_head_at_four", calls);
        expect("shape_ret_first", calls);
        return 0;
    }
    return 97;
}
