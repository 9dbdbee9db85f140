// cflags: -O1 -g -pthread
// trapping MODE: uses SIGTRAP for itself, and stores to `total`.
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define KEPT __attribute__((noinline))

volatile long total;
static volatile int traps;

KEPT static void on_trap(int signal) {
    (void)signal;
    traps++;
    total++;
}

// An `int1` saves the address of the next instruction, but under KVM on AMD its own address.
static void on_int1(int signal, siginfo_t *info, void *context) {
    greg_t *rip = &((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
    (void)info;
    if (*(unsigned char *)*rip == 0xf1) ++*rip;
    on_trap(signal);
}

KEPT static void add(void) { total++; }

static void handled(void) {
    signal(SIGTRAP, on_trap);
    for (int i = 0; i < 1000; i++) {
        add();
        if (i % 10 == 0) __asm__ volatile("int3");
        if (i % 10 == 5) raise(SIGTRAP);
    }
}

static void blocked(void) {
    sigset_t set, now;
    sigemptyset(&set);
    sigaddset(&set, SIGTRAP);
    sigprocmask(SIG_BLOCK, &set, NULL);
    for (int i = 0; i < 1000; i++) add();
    sigprocmask(SIG_BLOCK, NULL, &now);
    if (!sigismember(&now, SIGTRAP)) exit(3);
}

static long mask(long how, unsigned long *set) {
    long result;
    register long size __asm__("r10") = sizeof *set;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(SYS_rt_sigprocmask), "D"(how), "S"(set), "d"(0L), "r"(size)
                     : "rcx", "r11", "memory");
    return result;
}

// No hook sees this inline system call.
static void hidden(void) {
    unsigned long set = 1ul << (SIGTRAP - 1);
    if (mask(SIG_BLOCK, &set)) exit(3);
    for (int i = 0; i < 1000; i++) add();
    if (mask(SIG_UNBLOCK, &set)) exit(3);
    for (int i = 0; i < 10; i++) add();
}

static void strays(void) {
    siginfo_t info = {.si_signo = SIGTRAP, .si_code = TRAP_BRKPT};
    for (int i = 0; i < 5; i++) {
        add();
        if (syscall(SYS_rt_tgsigqueueinfo, getpid(), getpid(), SIGTRAP, &info)) exit(3);
    }
    sigaction(SIGTRAP, &(struct sigaction){.sa_sigaction = on_int1, .sa_flags = SA_SIGINFO}, NULL);
    __asm__ volatile("int1");
}

// While tiptoe's library has a thread, the thread prevents a new user namespace.
static void unshared(void) {
    for (int i = 0; i < 10; i++) add();
    if (unshare(CLONE_NEWUSER)) exit(3);
    for (int i = 0; i < 10; i++) add();
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    if (!strcmp(argv[1], "handled")) handled();
    if (!strcmp(argv[1], "blocked")) blocked();
    if (!strcmp(argv[1], "hidden")) hidden();
    if (!strcmp(argv[1], "strays")) strays();
    if (!strcmp(argv[1], "unshared")) unshared();
    printf("total %ld traps %d\n", total, traps);
    return 0;
}
