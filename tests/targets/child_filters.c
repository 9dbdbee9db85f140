// cflags: -O2 -fcf-protection=none
// child_filters MODE CALLS [wait]: calls two functions, also in a forked child. In one only a trap byte fits. MODE:
// `unseen`: the child enters strict seccomp by a system call that no hook sees;
// `filter`: a filter allows only write and exit_group, not even a handler's return;
// `traced`: the parent must see only the stop that the child raises;
// `exec`: the filter allows execve, but no change of the signal mask.
#include "common.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define ALLOW(number) \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

PROBED int turned(int x) { KEEP(); return x + 1; }
__attribute__((noipa)) int fixed(void) { return 7; }

static void call(int calls) {
    for (int i = 0; i < calls; i++) CHECK(turned(i) == i + 1 && fixed() == 7);
    CHECK(turned(calls) == calls + 1);
}

static long raw(long number, long a, long b) {
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "0"(number), "D"(a), "S"(b), "d"(0L) : "rcx", "r11", "memory");
    return result;
}

static void be_child(const char *mode, int calls, char *self) {
    struct sock_filter allowed[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)), ALLOW(SYS_write), ALLOW(SYS_exit_group),
        ALLOW(strcmp(mode, "exec") ? SYS_write : SYS_execve), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)};
    struct sock_fprog program = {sizeof allowed / sizeof *allowed, allowed};
    char *arguments[] = {self, NULL};
    if (!strcmp(mode, "unseen")) {
        CHECK(raw(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_STRICT) == 0);
    } else if (!strcmp(mode, "traced")) {
        CHECK(ptrace(PTRACE_TRACEME, 0, 0, 0) == 0);
        raise(SIGSTOP);
    } else {
        CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
        CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
    }
    call(calls);
    if (!strcmp(mode, "exec")) execve("/nowhere", arguments, NULL);
    if (!strcmp(mode, "unseen")) raw(SYS_exit, 0, 0);
    _exit(0);
}

int main(int argc, char **argv) {
    CHECK(argc >= 3);
    int calls = atoi(argv[2]), status, stops = 0;
    wait_for_start(argc, argv);
    call(calls);
    pid_t child = fork();
    if (child == 0) be_child(argv[1], calls, argv[0]);
    while (waitpid(child, &status, 0) == child && WIFSTOPPED(status)) {
        stops++;
        CHECK(WSTOPSIG(status) == SIGSTOP && ptrace(PTRACE_CONT, child, 0, 0) == 0);
    }
    CHECK(status == 0 && stops == !strcmp(argv[1], "traced"));
    expect("turned", (uint64_t)calls + 1);
    expect("fixed", (uint64_t)calls);
    return 0;
}
