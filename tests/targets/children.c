// cflags: -O2 -pthread
// children MODE CALLS [wait]: starts 20 children by MODE (fork, _Fork, clone, vfork, posix_spawn) while two threads
// call the probed function. Only the parent's calls may be counted.
#include "common.h"
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>

extern char **environ;
enum { CHILDREN = 20 };
static uint64_t calls;

PROBED int family(int x) { KEEP(); return x + 1; }

static void *call(void *unused) {
    (void)unused;
    for (uint64_t i = 0; i < calls; i++) CHECK(family((int)i) == (int)i + 1);
    return NULL;
}

// Forks in a thread that already has counters.
static void be_child(void) {
    int status;
    call(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        call(NULL);
        _exit(0);
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    _exit(0);
}

static pid_t spawn(const char *mode, char *self) {
    char number[32];
    char *arguments[] = {self, "child", number, NULL};
    pid_t pid;
    snprintf(number, sizeof number, "%llu", (unsigned long long)calls);
    if (!strcmp(mode, "fork")) {
        pid = fork();
    } else if (!strcmp(mode, "_Fork")) {
        pid = _Fork();
    } else if (!strcmp(mode, "clone")) {
        pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    } else if (!strcmp(mode, "vfork")) {
        pid = vfork();
        if (pid == 0) {
            call(NULL);
            execve(self, arguments, environ);
            _exit(98);
        }
        return pid;
    } else {
        CHECK(!strcmp(mode, "posix_spawn"));
        posix_spawn_file_actions_t actions;
        CHECK(posix_spawn_file_actions_init(&actions) == 0);
        CHECK(posix_spawn_file_actions_adddup2(&actions, 1, 2) == 0);
        CHECK(posix_spawn(&pid, self, &actions, NULL, arguments, environ) == 0);
        CHECK(posix_spawn_file_actions_destroy(&actions) == 0);
        return pid;
    }
    if (pid == 0) be_child();
    return pid;
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "fork";
    pthread_t threads[2];
    calls = number(argc, argv, 2, 1000);
    if (!strcmp(mode, "child")) be_child();
    wait_for_start(argc, argv);
    call(NULL);
    for (int i = 0; i < 2; i++) CHECK(pthread_create(&threads[i], NULL, call, NULL) == 0);
    for (int i = 0; i < CHILDREN; i++) {
        int status;
        pid_t pid = spawn(mode, "/proc/self/exe");
        CHECK(pid > 0);
        CHECK(waitpid(pid, &status, 0) == pid);
        CHECK(status == 0);
        call(NULL);
    }
    for (int i = 0; i < 2; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    expect("family", (3 + CHILDREN) * calls);
    return 0;
}
