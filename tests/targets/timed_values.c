// cflags: -O2 -pthread
// timed_values [wait]: calls with known arguments that return, recurse, or end by longjmp or on another thread.
#include "ret_common.h"
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <ucontext.h>

enum { THREADS = 4, ROUNDS = 100, MANY = 500 };
static __thread jmp_buf place;
static ucontext_t fiber, starter, finisher;
static char stack[1 << 18];
static sem_t begun, ended;

PROBED long works(long value, int how) {
    KEEP();
    if (how == 1) longjmp(place, 1);
    if (how == 2) usleep(20000);
    return value;
}

PROBED long sinks(long depth) {
    long below = depth ? sinks(depth - 1) : 0;
    __asm__ volatile("" : "+r"(below));  // otherwise the recursion becomes a loop
    return below + depth;
}

PROBED long many(long value) { KEEP(); return value; }

PROBED long moves(long value) {
    CHECK(swapcontext(&fiber, &starter) == 0);
    return works(value, 0);
}

static void handler(int signal) { works(signal + 1000, 0); }

static void *runs(void *number) {
    long thread = (long)(intptr_t)number;
    for (long i = 0; i < ROUNDS; i++) {
        CHECK(works(i % 10, 0) == i % 10);
        CHECK(works((thread + 1) << 20, 0) == (thread + 1) << 20);
        if (setjmp(place) == 0) works(i % 2 ? -1 : 3, 1);
        CHECK(sinks(4) == 10);
    }
    raise(SIGUSR1);
    return NULL;
}

static void fiber_body(void) {
    CHECK(moves(1 << 20) == 1 << 20);
    CHECK(swapcontext(&fiber, &finisher) == 0);
}
static void *starts(void *nothing) {
    (void)nothing;
    // Gives this thread other indexes for values than the thread on which `moves` ends.
    for (long i = 0; i < 20; i++) CHECK(works(i << 20, 0) == i << 20);
    CHECK(swapcontext(&starter, &fiber) == 0);
    CHECK(sem_post(&begun) == 0 && sem_wait(&ended) == 0);
    return NULL;
}

int main(int argc, char **argv) {
    wait_for_start(argc, argv);
    CHECK(signal(SIGUSR1, handler) != SIG_ERR);
    pthread_t ids[THREADS];
    for (intptr_t i = 0; i < THREADS; i++) CHECK(pthread_create(&ids[i], NULL, runs, (void *)i) == 0);
    for (intptr_t i = 0; i < THREADS; i++) CHECK(pthread_join(ids[i], NULL) == 0);
    works(7, 2);
    for (long i = 0; i < MANY; i++) CHECK(many(i * 4096) == i * 4096);

    CHECK(getcontext(&fiber) == 0);
    fiber.uc_stack.ss_sp = stack;
    fiber.uc_stack.ss_size = sizeof stack;
    makecontext(&fiber, fiber_body, 0);
    CHECK(sem_init(&begun, 0, 0) == 0 && sem_init(&ended, 0, 0) == 0);
    CHECK(pthread_create(&ids[0], NULL, starts, NULL) == 0 && sem_wait(&begun) == 0);
    CHECK(swapcontext(&finisher, &fiber) == 0);
    CHECK(sem_post(&ended) == 0 && pthread_join(ids[0], NULL) == 0);

    uint64_t rounds = THREADS * ROUNDS;
    truth("works", 3 * rounds + THREADS + 1 + 20 + 1, rounds, 0);
    truth("sinks", 5 * rounds, 0, 0);
    truth("many", MANY, 0, 0);
    truth("moves", 1, 0, 0);
    return 0;
}
