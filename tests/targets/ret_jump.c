// cflags: -O2 -pthread
// ret_jump MODE [wait]: longjmp and siglongjmp over probed frames.
#include "ret_common.h"
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>

CALLS(deeper); CALLS(jumps); CALLS(lands); CALLS(between); CALLS(steady); CALLS(faults); CALLS(handles);
static __thread sigjmp_buf place;
static __thread jmp_buf outer_place;
static uint64_t landed;

PROBED int steady(int x) { ENTER(steady); KEEP(); LEAVE(steady); return x + 1; }

PROBED int jumps(int value) {
    ENTER(jumps);
    CHECK(steady(value) == value + 1);
    if (value) siglongjmp(place, value);
    LEAVE(jumps);
    return value;
}

PROBED int deeper(int depth, int value) {
    ENTER(deeper);
    int result = depth == 0 ? jumps(value) : deeper(depth - 1, value);
    KEEP();
    LEAVE(deeper);
    return result + 1;
}

// The frame must return normally after the jump into it.
PROBED int lands(int depth, int value) {
    ENTER(lands);
    int got = sigsetjmp(place, 1);
    if (got == 0) {
        int result = deeper(depth, value);
        CHECK(value == 0 && result == depth + 1);
    }
    CHECK(got == value && steady(got) == got + 1);
    landed += got != 0;
    LEAVE(lands);
    return got;
}

PROBED int between(int depth, int value) {
    ENTER(between);
    lands(depth, value);
    lands(depth + 3, 0);
    if (value % 2) longjmp(outer_place, value);
    LEAVE(between);
    return value;
}

static void deep(void) {
    for (volatile int depth = 0; depth < 200; depth++)
        if (sigsetjmp(place, 0) == 0) deeper(depth, depth % 5); else landed++;
}
// No call returns between the jumps, so no return shows a tracer that frames have ended.
static void repeated(void) {
    volatile int i = 0;
    sigsetjmp(place, 1);
    if (++i <= 20000) { landed++; deeper(2, i); }
}
static void within(void) {
    for (int i = 0; i < 2000; i++) CHECK(lands(i % 20, i % 7) == i % 7);
}
static void layered(void) {
    for (volatile int i = 0; i < 2000; i++) {
        int got = setjmp(outer_place);
        if (got == 0) CHECK(between(i % 10, i % 4) % 2 == 0); else CHECK(got == i % 4);
    }
}
static void *thread(void *unused) { layered(); within(); return unused; }
static void threads(void) {
    pthread_t ids[4];
    for (int i = 0; i < 4; i++) CHECK(pthread_create(&ids[i], NULL, thread, NULL) == 0);
    for (int i = 0; i < 4; i++) CHECK(pthread_join(ids[i], NULL) == 0);
}

static void *jumps_last(void *unused) {
    if (sigsetjmp(place, 0) == 0) deeper(5, 1);
    return unused;
}
static void last(void) {
    pthread_t id;
    CHECK(pthread_create(&id, NULL, jumps_last, NULL) == 0 && pthread_join(id, NULL) == 0);
    jumps_last(NULL);
}

static void *builtin_place[5];
static __attribute__((noinline)) void builtin_jump(void) { __builtin_longjmp(builtin_place, 1); }
static volatile int *volatile nowhere;
PROBED void faults(int how) {
    ENTER(faults);
    if (how == 0) builtin_jump();
    if (how == 1) raise(SIGUSR1);
    if (how == 2) *nowhere = 1;
    LEAVE(faults);
}
static __attribute__((noinline)) void builtin_once(void) {
    if (__builtin_setjmp(builtin_place) == 0) faults(0); else landed++;
}
static void builtin(void) {
    for (int i = 0; i < 1000; i++) { builtin_once(); CHECK(steady(i) == i + 1); }
}

PROBED void handles(int signal) {
    ENTER(handles);
    CHECK(steady(signal) == signal + 1);
    siglongjmp(place, signal);
}
static void handled(int flags) {
    struct sigaction action = {.sa_handler = handles, .sa_flags = flags};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0 && sigaction(SIGSEGV, &action, NULL) == 0);
    for (volatile int i = 0; i < 2000; i++) {
        int got = sigsetjmp(place, 1);
        if (got == 0) faults(i % 3 ? i % 3 : 3); else landed++;
        CHECK(got == (i % 3 == 0 ? 0 : i % 3 == 1 ? SIGUSR1 : SIGSEGV));
    }
}
static void handler(void) { handled(0); }
static void altstack(void) {
    use_alternate_stack();
    handled(SA_ONSTACK);
}

static const struct mode modes[] = {
    {"deep", deep}, {"repeated", repeated}, {"within", within}, {"layered", layered}, {"threads", threads},
    {"builtin", builtin}, {"handler", handler}, {"altstack", altstack}, {"last", last},
};

int main(int argc, char **argv) {
    int status = RUN(modes, argc, argv);
    if (status) return status;
    TELL(deeper); TELL(jumps); TELL(lands); TELL(between); TELL(steady); TELL(faults); TELL(handles);
    return 0;
}
