// freeze PID: stops an agent's thread (of tiptoe's library), as a debugger does, until stdin ends.
#include "agent_thread.h"
#include <sys/ptrace.h>
#include <sys/wait.h>

int main(int argc, char **argv) {
    int status;
    CHECK(argc > 1);
    pid_t thread = agent_thread(argv[1]);
    CHECK(thread > 0);
    CHECK(ptrace(PTRACE_SEIZE, thread, 0, 0) == 0 && ptrace(PTRACE_INTERRUPT, thread, 0, 0) == 0);
    CHECK(waitpid(thread, &status, __WALL) == thread && WIFSTOPPED(status));
    puts("frozen");
    fflush(stdout);
    while (getchar() != EOF) continue;
    CHECK(ptrace(PTRACE_DETACH, thread, 0, 0) == 0);
    return 0;
}
