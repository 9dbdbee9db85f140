// cflags: -O2 -pthread
// under MODE [wait]: calls `leaf` and `step` inside `serves` and elsewhere, and prints how many were inside.
#include "common.h"
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/wait.h>
#include <thread>
#include <ucontext.h>

// Counts this thread's running calls of `serves`. Destructors and the code after a jump decrement it.
static thread_local int depth;
static uint64_t leaves, steps;
struct Inside {
    Inside() { depth++; }
    ~Inside() { depth--; }
};

extern "C" {
PROBED int leaf(int x) {
    if (depth > 0) __atomic_fetch_add(&leaves, 1, __ATOMIC_RELAXED);
    KEEP();
    return x + 1;
}
PROBED int step(int x) {
    volatile char room[400];
    if (depth > 0) __atomic_fetch_add(&steps, 1, __ATOMIC_RELAXED);
    room[x % 8] = 1;
    CHECK(leaf(x) == x + 1);
    return x + room[x % 8] + 1;
}
PROBED int serves(int how, int more);
}

static thread_local sigjmp_buf place;
static ucontext_t home, other;
static void start_thread_inside();
static void fork_inside();
static void wait_inside();

struct Leaf {
    ~Leaf() { leaf(1); }
};

extern "C" __attribute__((noinline)) int deeper(int how, int levels) {
    volatile char room[64] = {};
    if (levels > 0) return deeper(how, levels - 1) + room[levels % 64] + step(levels);
    Leaf last;
    switch (how) {
    case 1: throw how;
    case 2: siglongjmp(place, 1);
    case 3: raise(SIGUSR1); break;
    case 4: pthread_exit(nullptr);
    case 5: start_thread_inside(); break;
    case 6: fork_inside(); break;
    case 7: swapcontext(&other, &home); break;
    case 8: wait_inside(); break;
    default: break;
    }
    return step(how);
}

extern "C" PROBED int serves(int how, int more) {
    Inside inside;
    Leaf last;
    step(how);
    int result = more > 0 ? serves(how, more - 1) : deeper(how, how % 4 + 2);
    return result + leaf(more);
}

static void outside() {
    int before = depth;
    CHECK(before == 0 && step(3) == 5 && leaf(1) == 2);
}

static void plain() {
    for (int i = 0; i < 2000; i++) { serves(0, i % 5); outside(); }
}

static __attribute__((noinline)) void catches(int more) {
    Leaf last;
    try {
        Leaf first;
        serves(1, more);
        CHECK(false);
    } catch (int how) {
        CHECK(how == 1);
        step(how);
    }
}
static void throws() {
    for (int i = 0; i < 2000; i++) { catches(i % 4); outside(); }
}

static __attribute__((noinline)) void jumps_over(int how, int more) {
    int now = depth;
    if (sigsetjmp(place, 1) == 0) serves(how, more);
    depth = now;
    outside();
}
static void jumps() {
    for (int i = 0; i < 2000; i++) jumps_over(2, i % 4);
}
static void from_handler(int) { leaf(2); siglongjmp(place, 2); }
static void handler() {
    struct sigaction action = {};
    action.sa_handler = from_handler;
    CHECK(sigaction(SIGUSR1, &action, nullptr) == 0);
    for (int i = 0; i < 500; i++) jumps_over(3, i % 4);
}

static void *all_of_it(void *) { plain(); throws(); jumps(); return nullptr; }
static void together(void *(*run)(void *), int count) {
    pthread_t ids[8];
    for (int i = 0; i < count; i++) CHECK(pthread_create(&ids[i], nullptr, run, nullptr) == 0);
    for (int i = 0; i < count; i++) CHECK(pthread_join(ids[i], nullptr) == 0);
}
static void threads() { together(all_of_it, 4); }

// A thread ends inside `serves`; the next thread may reuse its counters.
static void *ends(void *) { serves(4, 2); return nullptr; }
static void *never(void *) { for (int i = 0; i < 50; i++) outside(); return nullptr; }
static void thread_ends() {
    for (int i = 0; i < 100; i++) { together(ends, 2); together(never, 2); }
}

static void start_thread_inside() { together(never, 1); step(1); }
static void starts() {
    for (int i = 0; i < 100; i++) { serves(5, 1); outside(); }
}

// The child is not traced; the parent must still be inside.
static void fork_inside() {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) { step(1); _exit(0); }
    int status = 0;
    for (int i = 0; i < 5; i++) step(i);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}
static void forks() {
    for (int i = 0; i < 20; i++) { serves(6, 1); outside(); }
}

static char stack[1 << 16];
static void coroutine() { serves(7, 1); swapcontext(&other, &home); }
static void begin() {
    CHECK(getcontext(&other) == 0);
    other.uc_stack.ss_sp = stack;
    other.uc_stack.ss_size = sizeof stack;
    makecontext(&other, coroutine, 0);
    CHECK(swapcontext(&home, &other) == 0);
}
static void coroutines() {
    for (int i = 0; i < 200; i++) {
        outside();
        begin();
        CHECK(depth == 2);
        step(i);
        CHECK(swapcontext(&home, &other) == 0);
        outside();
    }
}
// The call of `serves` begins on one thread and returns on another. Neither thread is inside afterwards.
static void *resumes(void *) {
    depth = 0;
    CHECK(swapcontext(&home, &other) == 0);
    depth = 0;
    for (int i = 0; i < 10; i++) outside();
    return nullptr;
}
static void travels() {
    for (int i = 0; i < 50; i++) {
        begin();
        together(resumes, 1);
        depth = 0;
        for (int j = 0; j < 10; j++) outside();
        serves(0, 1);
    }
}

// The next tracer has not seen `serves` begin, so it must not count calls inside.
static void wait_inside() {
    char line[64];
    puts("inside");
    fflush(stdout);
    CHECK(read(0, line, sizeof line) > 0);
    depth = -1000;
    leaves = steps = 0;
}
static void *idles(void *) { for (;;) pause(); }
static void spans() {
    pthread_t id;
    CHECK(pthread_create(&id, nullptr, idles, nullptr) == 0);
    serves(8, 2);
    depth = 0;
    for (int i = 0; i < 100; i++) { outside(); serves(0, 1); }
}

struct mode { const char *name; void (*run)(); };
static const struct mode modes[] = {
    {"plain", plain}, {"throws", throws}, {"jumps", jumps}, {"handler", handler}, {"threads", threads},
    {"thread_ends", thread_ends}, {"starts", starts}, {"forks", forks}, {"coroutines", coroutines},
    {"travels", travels}, {"spans", spans},
};

int main(int argc, char **argv) {
    const char *asked = argc > 1 && strcmp(argv[1], "wait") ? argv[1] : "plain";
    wait_for_start(argc, argv);
    for (const mode &mode : modes) {
        if (strcmp(mode.name, asked)) continue;
        mode.run();
        expect("leaf", leaves);
        expect("step", steps);
        return 0;
    }
    return 97;
}
