// cflags: -O2 -pthread
// ret_clock MODE [wait]: a thread forbids itself to read the time stamp counter (PR_SET_TSC). A tracer's reading
// must not kill the program.
#include "ret_common.h"
#include <sys/syscall.h>
#include <sys/wait.h>

enum { CALLS_EACH = 100 };
CALLS(outer); CALLS(inner); CALLS(leaf);

static int is_own;

static void may_read(int may) {
    int how = may ? PR_TSC_ENABLE : PR_TSC_SIGSEGV;
    if (is_own) CHECK(own_call(SYS_prctl, PR_SET_TSC, how, 0, 0, 0) == 0);
    else CHECK(prctl(PR_SET_TSC, how) == 0);
}
static int asked(void) {
    int now = 0;
    CHECK(prctl(PR_GET_TSC, &now) == 0);
    return now;
}
// No hook sees this call, because its number comes from another register.
static void forbid_unseen(void) {
    long result;
    __asm__ volatile("mov %k1, %%eax\n syscall" : "=&a"(result) : "b"(SYS_prctl), "D"(PR_SET_TSC), "S"(PR_TSC_SIGSEGV) : "rcx", "r11", "memory");
    CHECK(result == 0);
}

PROBED int leaf(int x) { ENTER(leaf); KEEP(); LEAVE(leaf); return x + 1; }
PROBED int inner(void (*what)(void)) { ENTER(inner); what(); KEEP(); LEAVE(inner); return 1; }
PROBED int outer(void (*what)(void)) { ENTER(outer); int x = inner(what); KEEP(); LEAVE(outer); return x + 1; }

static void calls(void) {
    for (int i = 0; i < CALLS_EACH; i++) CHECK(leaf(i) == i + 1);
}
static void forbid(void) { may_read(0); }
static void allow(void) { may_read(1); }
static void forbid_and_call(void) { may_read(0); calls(); }

static void inside(void) {
    calls();
    CHECK(outer(calls) == 2);
    CHECK(outer(forbid_and_call) == 2);
    calls();
    CHECK(outer(calls) == 2);
    CHECK(outer(allow) == 2);
    calls();
    CHECK(outer(forbid) == 2 && outer(forbid) == 2 && outer(allow) == 2);
    CHECK(prctl(PR_SET_TSC, 77) == -1 && asked() == PR_TSC_ENABLE);
    calls();
}

static void *inherits(void *expected) {
    CHECK(asked() == *(int *)expected);
    calls();
    CHECK(outer(calls) == 2);
    return NULL;
}
static pthread_barrier_t barrier;
static void meet(void) { pthread_barrier_wait(&barrier); }
static void *independent(void *unused) {
    CHECK(outer(meet) == 2);
    CHECK(outer(meet) == 2);
    CHECK(asked() == PR_TSC_ENABLE);
    calls();
    return unused;
}
static void start_and_join(int expected) {
    pthread_t id;
    CHECK(pthread_create(&id, NULL, inherits, &expected) == 0 && pthread_join(id, NULL) == 0);
}
static void threads(void) {
    pthread_t id;
    CHECK(pthread_barrier_init(&barrier, NULL, 2) == 0);
    CHECK(pthread_create(&id, NULL, independent, NULL) == 0);
    meet();
    CHECK(outer(forbid) == 2);
    meet();
    CHECK(pthread_join(id, NULL) == 0);
    start_and_join(PR_TSC_SIGSEGV);
    may_read(1);
    start_and_join(PR_TSC_ENABLE);
}

static int is_child;
static void fork_and_forbid(void) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        is_child = 1;
        forbid_unseen();
    }
}
static void forks(void) {
    int status;
    CHECK(outer(fork_and_forbid) == 2);
    if (is_child) {
        calls();
        _exit(0);
    }
    CHECK(wait(&status) > 0);
    printf("child %d\n", status);
    calls();
}

static void before(void) {
    forbid_unseen();
    calls();
    CHECK(outer(calls) == 2);
}

// The tracer detaches while the thread is inside.
static void outlived_by_calls(void) {
    char line[64];
    puts("inside");
    fflush(stdout);
    CHECK(read(0, line, sizeof line) > 0);
    forbid_unseen();
}
static void outlived(void) {
    CHECK(outer(outlived_by_calls) == 2);
    calls();
}

static void own(void) {
    is_own = 1;
    inside();
}

static const struct mode modes[] = {
    {"inside", inside}, {"own", own}, {"threads", threads}, {"forks", forks}, {"before", before}, {"outlived", outlived},
};

int main(int argc, char **argv) {
    int status = RUN(modes, argc, argv);
    if (status) return status;
    TELL(outer); TELL(inner); TELL(leaf);
    return 0;
}
