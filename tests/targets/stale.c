// stale PID: the agent's thread (of tiptoe's library) gives up a session (trace) and replaces the session's memory.
// Makes the thread sleep before that call, until stdin ends. Prints the thread's id once it sleeps untraced.
#include "agent_thread.h"
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>

static void seize(pid_t thread) {
    int status;
    CHECK(ptrace(PTRACE_SEIZE, thread, 0, PTRACE_O_TRACESYSGOOD) == 0 && ptrace(PTRACE_INTERRUPT, thread, 0, 0) == 0);
    CHECK(waitpid(thread, &status, __WALL) == thread && WIFSTOPPED(status));
}

int main(int argc, char **argv) {
    struct user_regs_struct call, asleep;
    int status;
    CHECK(argc > 1);
    pid_t thread = agent_thread(argv[1]);
    CHECK(thread > 0);
    seize(thread);
    puts("seized");
    fflush(stdout);
    do {
        CHECK(ptrace(PTRACE_SYSCALL, thread, 0, 0) == 0);
        CHECK(waitpid(thread, &status, __WALL) == thread && WIFSTOPPED(status));
        CHECK(ptrace(PTRACE_GETREGS, thread, 0, &call) == 0);
    } while (call.orig_rax != SYS_mremap || !(call.r10 & MREMAP_FIXED));
    asleep = call;
    asleep.orig_rax = SYS_ppoll;
    asleep.rdi = asleep.rsi = asleep.rdx = asleep.r10 = 0;
    CHECK(ptrace(PTRACE_SETREGS, thread, 0, &asleep) == 0 && ptrace(PTRACE_DETACH, thread, 0, 0) == 0);
    printf("%d\n", (int)thread);
    fflush(stdout);
    while (getchar() != EOF) continue;
    seize(thread);
    call.rax = call.orig_rax;
    call.orig_rax = (unsigned long long)-1;
    call.rip -= 2;
    CHECK(ptrace(PTRACE_SETREGS, thread, 0, &call) == 0 && ptrace(PTRACE_DETACH, thread, 0, 0) == 0);
    return 0;
}
