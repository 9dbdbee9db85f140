// cflags: -O2 -pthread -rdynamic
// ret_trace MODE [wait]: prints its stack inside probed frames as object and offset. The output must be the same with
// probes. The truth of `profiled` and `profiled_threads` varies.
#include "ret_common.h"
#include <dlfcn.h>
#include <execinfo.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdexcept>
#include <string>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unwind.h>

extern "C" {
CALLS(looks); CALLS(tail_looks); CALLS(nests); CALLS(handles); CALLS(thrower); CALLS(worker); CALLS(skips);
CALLS(fills);
typedef void look(void);
static look *volatile looker;

static void print_frame(int index, void *address) {
    Dl_info info;
    if (address == NULL) {
        printf("  %d nothing\n", index);
        return;
    }
    CHECK(dladdr(address, &info));
    const char *slash = strrchr(info.dli_fname, '/');
    printf("  %d %s+0x%lx\n", index, slash ? slash + 1 : info.dli_fname,
           (unsigned long)((char *)address - (char *)info.dli_fbase));
}

static __attribute__((noinline)) void by_backtrace(void) {
    void *frames[256];
    int count = backtrace(frames, 256);
    printf("backtrace %d\n", count);
    for (int i = 0; i < count; i++) print_frame(i, frames[i]);
}

static __attribute__((noinline)) void by_symbols(void) {
    void *frames[64];
    int count = backtrace(frames, 64);
    char **names = backtrace_symbols(frames, count);
    CHECK(names);
    for (int i = 0; i < count; i++) {
        const char *slash = strrchr(names[i], '/');
        printf("  %.*s\n", (int)strcspn(slash ? slash : names[i], "["), slash ? slash : names[i]);
    }
    free(names);
}

struct walk { int index; uintptr_t last; };
static _Unwind_Reason_Code frame(struct _Unwind_Context *context, void *data) {
    struct walk *walk = static_cast<struct walk *>(data);
    int before = 0;
    uintptr_t ip = _Unwind_GetIPInfo(context, &before), cfa = _Unwind_GetCFA(context);
    void *start = _Unwind_FindEnclosingFunction((void *)(ip - !before));
    CHECK(cfa >= walk->last);
    walk->last = cfa;
    print_frame(walk->index++, (void *)ip);
    print_frame(-1, start);
    return _URC_NO_REASON;
}
static __attribute__((noinline)) void by_unwind(void) {
    struct walk walk = {0, 0};
    printf("_Unwind_Backtrace %d\n", _Unwind_Backtrace(frame, &walk));
}

static _Unwind_Reason_Code third(struct _Unwind_Context *context, void *data) {
    int *seen = static_cast<int *>(data);
    if (++*seen < 3) return _URC_NO_REASON;
    print_frame(*seen, (void *)_Unwind_GetIP(context));
    return _URC_NORMAL_STOP;
}
static __attribute__((noinline)) void by_third(void) {
    int seen = 0;
    printf("stopped with %d", _Unwind_Backtrace(third, &seen));
    printf(" after %d\n", seen);
}

PROBED void fills(void) {
    void *frames[4] = {NULL, NULL, NULL, &frames};
    ENTER(fills);
    CHECK(backtrace(frames, 3) == 3 && frames[3] == &frames);
    for (int i = 0; i < 3; i++) print_frame(i, frames[i]);
    LEAVE(fills);
}

PROBED int looks(int x) {
    ENTER(looks);
    looker();
    KEEP();
    LEAVE(looks);
    return x + 1;
}
PROBED int tail_looks(int x) {
    ENTER(tail_looks);
    LEAVE(tail_looks);
    return looks(x);
}
PROBED int nests(int depth) {
    ENTER(nests);
    int result = depth ? nests(depth - 1) : looks(1) + tail_looks(2);
    KEEP();
    LEAVE(nests);
    return result + 1;
}
PROBED void handles(int signal) {
    ENTER(handles);
    CHECK(nests(1) == 7 && signal == SIGUSR1);
    LEAVE(handles);
}
struct Guard { ~Guard() { looks(3); } };
PROBED void thrower(int x) {
    ENTER(thrower);
    Guard guard;
    if (x) throw std::runtime_error("seen");
    LEAVE(thrower);
}
PROBED void *worker(void *unused) {
    ENTER(worker);
    CHECK(nests(2) == 8);
    LEAVE(worker);
    return unused;
}
// Without frame pointers and probes, only unwinding data leads to the caller's frame.
PROBED void skips(void) {
    ENTER(skips);
    CHECK(nests(3) == 9);
    fills();
    LEAVE(skips);
}

static void everywhere(void) {
    struct sigaction action = {};
    action.sa_handler = handles;
    pthread_t id;
    CHECK(looks(1) == 2 && tail_looks(1) == 2);
    skips();
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0 && raise(SIGUSR1) == 0);
    try {
        thrower(1);
    } catch (const std::runtime_error &error) {
        printf("caught %s\n", error.what());
        looks(4);
    }
    CHECK(pthread_create(&id, NULL, worker, NULL) == 0 && pthread_join(id, NULL) == 0);
}
static void with_backtrace(void) { looker = by_backtrace; everywhere(); }
static void with_symbols(void) { looker = by_symbols; everywhere(); }
static void with_unwind(void) { looker = by_unwind; everywhere(); }
static void with_third(void) { looker = by_third; everywhere(); }
static void deep(void) { looker = by_backtrace; CHECK(nests(100) == 106); looker = by_unwind; nests(300); }

// A profiler's timer stops each thread at any instruction. Every walk must lead to the thread's start.
enum { SAMPLES = 500, THREADS = 3 };
static volatile int samples, whole, strange;
#define ADD(counter) __atomic_fetch_add(&counter, 1, __ATOMIC_RELAXED)

// No jump fits, because a loop branches to the second instruction.
CALLS(trapped);
void trapped(void);
asm(".text\n.globl trapped\n.type trapped, @function\ntrapped:\n.cfi_startproc\n"
    "mov $1, %eax\n1: mov $2, %edx\ndec %eax\njne 1b\nret\n.cfi_endproc\n.size trapped, .-trapped\n");

static void sample(int) {
    void *frames[64];
    Dl_info info;
    int count = backtrace(frames, 64), reached = 0, unknown = 0;
    for (int i = 0; i < count; i++) {
        unknown |= !dladdr(frames[i], &info) || strstr(info.dli_fname, "tiptoe");
        reached |= !unknown && info.dli_sname && (!strcmp(info.dli_sname, "main") || !strcmp(info.dli_sname, "sampled"));
    }
    ADD(samples);
    if (reached) ADD(whole);
    if (unknown) ADD(strange);
}
static void nothing(void) {}
static void work(void) {
    CHECK(nests(3) == 9);
    ENTER(trapped);
    trapped();
    LEAVE(trapped);
}
static void start_profile(void) {
    struct sigaction action = {};
    void *frames[1];
    action.sa_handler = sample;
    looker = nothing;
    backtrace(frames, 1);
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
}
static void tell_profile(void) {
    printf("whole %d strange %d\n", samples - whole, strange);
}
static void profiled(void) {
    start_profile();
    while (samples < SAMPLES) {
        struct itimerval timer = {{0, 0}, {0, 20 + samples % 60}};
        int before = samples;
        CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0);
        while (samples == before) work();
    }
    tell_profile();
}
void *sampled(void *unused) {
    struct sigevent event = {};
    timer_t timer;
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = SIGALRM;
    event._sigev_un._tid = (pid_t)syscall(SYS_gettid);
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    for (int i = 0; i < SAMPLES; i++) {
        struct itimerspec when = {{0, 0}, {0, 20000 + i % 60 * 1000}};
        CHECK(timer_settime(timer, 0, &when, NULL) == 0);
        do {
            work();
            CHECK(timer_gettime(timer, &when) == 0);
        } while (when.it_value.tv_nsec != 0);
    }
    return unused;
}
static void profiled_threads(void) {
    pthread_t ids[THREADS];
    start_profile();
    for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&ids[i], NULL, sampled, NULL) == 0);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(ids[i], NULL) == 0);
    CHECK(samples > SAMPLES);
    tell_profile();
}

static const struct mode modes[] = {
    {"backtrace", with_backtrace}, {"symbols", with_symbols}, {"unwind", with_unwind}, {"third", with_third},
    {"deep", deep}, {"profiled", profiled}, {"profiled_threads", profiled_threads},
};

int main(int argc, char **argv) {
    int status = RUN(modes, argc, argv);
    if (status) return status;
    TELL(looks); TELL(tail_looks); TELL(nests); TELL(handles); TELL(thrower); TELL(worker); TELL(skips);
    TELL(fills); TELL(trapped);
    return 0;
}
}
