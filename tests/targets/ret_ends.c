// cflags: -O2 -pthread
// ret_ends MODE [wait]: processes and threads fork, exec or end inside probed frames. The printed truth has only this
// process's calls.
#include "ret_common.h"
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>

extern char **environ;
enum { CHILDREN = 50 };
CALLS(around); CALLS(inner); CALLS(leaf);
static int in_child;
static uint64_t inside;

PROBED int leaf(int x) { ENTER(leaf); KEEP(); LEAVE(leaf); return x + 1; }
PROBED int inner(int (*how)(int), int x) {
    ENTER(inner);
    int result = how(x) + leaf(x) - x - 1;
    LEAVE(inner);
    return result;
}
PROBED int around(int (*how)(int), int x) {
    ENTER(around);
    int result = inner(how, x) + leaf(x) - x - 1;
    LEAVE(around);
    return result;
}

static void tell(void) {
    TELL_INSIDE(around, inside);
    TELL_INSIDE(inner, inside);
    TELL(leaf);
}

static int forks(int x) {
    pid_t pid = x % 2 ? fork() : (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    CHECK(pid >= 0);
    in_child = pid == 0;
    if (pid) {
        int status;
        CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == x % 50);
    }
    return x;
}
static int nothing(int x) { return x; }
static void fork_inside(void) {
    for (int i = 0; i < CHILDREN; i++) {
        CHECK(around(forks, i) == i);
        if (!in_child) continue;
        for (int k = 0; k < 100; k++) CHECK(around(nothing, k) == k);
        if (i % 3 == 0) exit(i % 50);
        _exit(i % 50);
    }
}

static int vforks(int x) {
    char *arguments[] = {(char *)"ret_ends", (char *)"child", NULL};
    int status;
    pid_t pid = vfork();
    if (pid == 0) {
        if (x % 2) execve("/proc/self/exe", arguments, environ);
        _exit(x % 2 ? 98 : 0);
    }
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
    return x;
}
static int spawns(int x) {
    char *arguments[] = {(char *)"ret_ends", (char *)"child", NULL};
    int status;
    pid_t pid;
    CHECK(posix_spawn(&pid, "/proc/self/exe", NULL, NULL, arguments, environ) == 0);
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    return x;
}
static void vfork_inside(void) { for (int i = 0; i < CHILDREN; i++) CHECK(around(vforks, i) == i); }
static void spawn_inside(void) { for (int i = 0; i < CHILDREN; i++) CHECK(around(spawns, i) == i); }

// The next image's calls must not be counted.
static int becomes(int x) {
    inside = 1;
    tell();
    execl("/proc/self/exe", "ret_ends", "child", NULL);
    return x;
}
static int leaves(int x) { inside = 1; tell(); fflush(stdout); x ? exit(0) : _exit(0); }
static void exec_inside(void) { CHECK(around(nothing, 1) == 1); around(becomes, 1); }
static void exit_inside(void) { CHECK(around(nothing, 1) == 1); around(leaves, 1); }
static void quick_inside(void) { CHECK(around(nothing, 1) == 1); around(leaves, 0); }

static sem_t ended, within;
static volatile pid_t last;
static int thread_exits(int x) { last = gettid(); sem_post(&ended); pthread_exit(NULL); return x; }
static int raw_exits(int x) {
    sem_post(&ended);
    syscall(SYS_exit, 0);
    return x;
}
static void *run(void *how) {
    CHECK(around(nothing, 1) == 1);
    around((int (*)(int))how, 1);
    return NULL;
}
static void ends(int (*how)(int), int detached) {
    pthread_t id;
    for (int i = 0; i < CHILDREN; i++) {
        if (detached) {
            start_detached(run, (void *)how);
        } else {
            CHECK(pthread_create(&id, NULL, run, (void *)how) == 0);
            CHECK(pthread_join(id, NULL) == 0);
        }
        CHECK(sem_wait(&ended) == 0);
    }
    CHECK(around(nothing, 2) == 2);
    // A detached thread may still be ending.
    while (detached && tgkill(getpid(), last, 0) == 0) usleep(1000);
}
static void thread_exit(void) { ends(thread_exits, 0); }
static void detached_exit(void) { ends(thread_exits, 1); }
static void raw_exit(void) { ends(raw_exits, 0); }

static int stays(int x) {
    sem_post(&within);
    for (;;) pause();
    return x;
}
static void others_inside(void) {
    pthread_t id;
    inside = 4;
    for (uint64_t i = 0; i < inside; i++) CHECK(pthread_create(&id, NULL, run, (void *)stays) == 0);
    for (uint64_t i = 0; i < inside; i++) CHECK(sem_wait(&within) == 0);
}

static void child(void) {
    for (int i = 0; i < 10; i++) CHECK(around(nothing, i) == i);
    exit(0);
}

static const struct mode modes[] = {
    {"fork", fork_inside}, {"vfork", vfork_inside}, {"spawn", spawn_inside}, {"exec", exec_inside},
    {"exit", exit_inside}, {"_exit", quick_inside}, {"thread_exit", thread_exit},
    {"detached", detached_exit}, {"raw_exit", raw_exit}, {"others", others_inside}, {"child", child},
};

int main(int argc, char **argv) {
    CHECK(sem_init(&ended, 0, 0) == 0 && sem_init(&within, 0, 0) == 0);
    int status = RUN(modes, argc, argv);
    if (status == 0) tell();
    return status;
}
