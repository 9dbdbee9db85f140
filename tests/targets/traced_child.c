// cflags: -O2 -fcf-protection=none
// traced_child MODE CALLS [wait]: calls a function on which only a trap byte fits, also in a child that this process
// traces. The child asks to be traced (`traceme`; `own`, by an inline system call), or this process attaches (`seize`,
// `attach`). Prints the child's stops for signals but SIGSTOP.
#include "common.h"
#include "only_trap.h"
#include <sys/ptrace.h>
#include <sys/wait.h>

static void call(int calls) {
    for (int i = 0; i < calls; i++) CHECK(only_trap(3) == 7);
}

static void trace(const char *mode, pid_t child) {
    if (!strcmp(mode, "seize")) CHECK(ptrace(PTRACE_SEIZE, child, 0, 0) == 0);
    if (!strcmp(mode, "attach")) CHECK(ptrace(PTRACE_ATTACH, child, 0, 0) == 0);
}

int main(int argc, char **argv) {
    CHECK(argc >= 3);
    int calls = atoi(argv[2]), status, go[2], other = 0;
    char byte = 0;
    wait_for_start(argc, argv);
    if (*(volatile unsigned char *)only_trap == 0xcc) puts("trapped");
    call(calls);
    CHECK(pipe(go) == 0);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        if (!strcmp(argv[1], "traceme")) {
            CHECK(ptrace(PTRACE_TRACEME, 0, 0, 0) == 0);
            raise(SIGSTOP);
        }
        if (!strcmp(argv[1], "own")) {
            CHECK(own_call(SYS_ptrace, PTRACE_TRACEME, 0, 0, 0, 0) == 0);
            raise(SIGSTOP);
        }
        CHECK(read(go[0], &byte, 1) == 1);
        call(calls);
        _exit(0);
    }
    trace(argv[1], child);
    CHECK(write(go[1], &byte, 1) == 1);
    while (waitpid(child, &status, __WALL) == child && WIFSTOPPED(status)) {
        int signal = WSTOPSIG(status);
        // A trap byte in the child would stop it for SIGTRAP.
        other += signal != SIGSTOP;
        CHECK(ptrace(PTRACE_CONT, child, 0, signal == SIGSTOP ? 0 : signal) == 0);
    }
    CHECK(status == 0);
    printf("foreign stops %d\n", other);
    expect("only_trap", (uint64_t)calls);
    return 0;
}
