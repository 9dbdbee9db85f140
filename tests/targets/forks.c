// cflags: -O2
// forks FORKS [wait]: starts children in each way; FORKS of them get a copy of the parent's memory.
#include "common.h"
#include <spawn.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>

extern char **environ;

PROBED int called(int x) { KEEP(); return x + 1; }

static void end_of(pid_t child) {
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

static void forked(pid_t child) {
    if (child == 0) _exit(called(1) == 2 ? 0 : 1);
    end_of(child);
}

int main(int argc, char **argv) {
    uint64_t forks = number(argc, argv, 1, 20);
    wait_for_start(argc, argv);
    for (uint64_t i = 0; i + 1 < forks; i++) forked(fork());
    forked((pid_t)syscall(SYS_fork));
    for (int i = 0; i < 3; i++) {
        pid_t child = vfork();
        if (child == 0) _exit(0);
        end_of(child);
        char *const program[] = {"true", NULL};
        CHECK(posix_spawnp(&child, "true", NULL, NULL, program, environ) == 0);
        end_of(child);
    }
    for (int i = 0; i < 10; i++) CHECK(called(i) == i + 1);
    expect("called", 10);
    return 0;
}
