// cflags: -O2
// hooked CALLS [wait]: calls libc functions that the agent (tiptoe's library) patches (hooks). Without a hook the
// agent's thread would prevent a new namespace.
#include "common.h"
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static int leave(void *status) { _exit(*(int *)status); }

static void call_all(void) {
    static char stack[65536] __attribute__((aligned(16)));
    char *words[] = {"nothing", NULL};
    struct sigaction action;
    sigset_t set;
    int zero = 0, status;
    CHECK(sigemptyset(&set) == 0 && sigaddset(&set, SIGUSR1) == 0);
    CHECK(execve("/nonexistent/nothing", words, words) == -1 && errno == ENOENT);
    int file = signalfd(-1, &set, 0);
    CHECK(file >= 0 && close(file) == 0);
    CHECK(sigaction(SIGUSR2, NULL, &action) == 0);
    CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0 && sigprocmask(SIG_UNBLOCK, &set, NULL) == 0);
    CHECK(prctl(PR_SET_NAME, "hooked") == 0);
    CHECK(syscall(SYS_getpid) == getpid());
    CHECK(sigpending(&set) == 0 && unshare(0) == 0);
    pid_t id = clone(leave, stack + sizeof stack, SIGCHLD, &zero);
    CHECK(id > 0 && waitpid(id, &status, 0) == id && status == 0);
}

int main(int argc, char **argv) {
    uint64_t calls = number(argc, argv, 1, 20);
    const char *once[] = {"execve", "signalfd", "sigaction", "prctl", "syscall", "sigpending", "unshare", "clone"};
    wait_for_start(argc, argv);
    for (uint64_t i = 0; i < calls; i++) call_all();
    CHECK(unshare(CLONE_NEWUSER) == 0);
    for (unsigned i = 0; i < sizeof once / sizeof *once; i++) expect(once[i], calls + !strcmp(once[i], "unshare"));
    expect("sigprocmask", 2 * calls);
    return 0;
}
