// cflags: -O2 -pthread
// ret_cancel MODE [wait]: threads end inside probed frames. Cleanup handlers, destructors (as ret_cancel_cc) and key
// destructors must run.
#include "ret_common.h"
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#ifdef __cplusplus
#include <cxxabi.h>
extern "C" {
#endif

enum { THREADS = 100 };
CALLS(around); CALLS(inner); CALLS(waits); CALLS(cleaner); CALLS(last_words); CALLS(main_frame);
static uint64_t cleaned, keyed, destroyed, forced;
static pthread_key_t key;
static sem_t inside;

#define ADD(counter) __atomic_fetch_add(&counter, 1, __ATOMIC_RELAXED)

PROBED int cleaner(int x) { ENTER(cleaner); KEEP(); LEAVE(cleaner); return x + 1; }
PROBED void last_words(void *value) {
    ENTER(last_words);
    CHECK(value == &key && cleaner(1) == 2);
    ADD(keyed);
    LEAVE(last_words);
}
static void clean(void *count) {
    CHECK(cleaner(3) == 4);
    ADD(*(uint64_t *)count);
}

#ifdef __cplusplus
struct Guard { ~Guard() { clean(&destroyed); } };
#define GUARD() Guard guard
#else
#define GUARD() (void)destroyed
#endif

PROBED void inner(void (*how)(void)) {
    ENTER(inner);
    GUARD();
    how();
    LEAVE(inner);
}

PROBED void around(void (*how)(void)) {
    ENTER(around);
    pthread_cleanup_push(clean, &cleaned);
    GUARD();
#ifdef __cplusplus
    try {
        inner(how);
    } catch (abi::__forced_unwind &) {
        ADD(forced);
        throw;
    }
#else
    inner(how);
    ADD(forced);
#endif
    pthread_cleanup_pop(0);
    LEAVE(around);
}

static void *start(void *how) {
    CHECK(pthread_setspecific(key, &key) == 0);
    around((void (*)(void))how);
    return NULL;
}

static void exits(void) { pthread_exit((void *)77); }

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static void unlock(void *unused) { (void)unused; CHECK(pthread_mutex_unlock(&lock) == 0); }
PROBED void waits(void) {
    ENTER(waits);
    CHECK(pthread_mutex_lock(&lock) == 0);
    pthread_cleanup_push(unlock, NULL);
    sem_post(&inside);
    for (;;) pthread_cond_wait(&never, &lock);
    pthread_cleanup_pop(1);
}

static int silent[2];
static void reads(void) {
    char byte;
    sem_post(&inside);
    CHECK(read(silent[0], &byte, 1) == 1);
}
static void sleeps(void) { sem_post(&inside); pause(); }
static void tests(void) { sem_post(&inside); for (;;) { pthread_testcancel(); sched_yield(); } }
static void spins(void) {
    int old;
    CHECK(pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &old) == 0);
    sem_post(&inside);
    for (;;) KEEP();
}

static void batch(void (*how)(void), int cancels) {
    pthread_t ids[THREADS];
    void *result;
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&ids[i], NULL, start, (void *)how) == 0);
        if (cancels) CHECK(sem_wait(&inside) == 0 && pthread_cancel(ids[i]) == 0);
        if (i % 10 == 0 || cancels) continue;
        sched_yield();
    }
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_join(ids[i], &result) == 0);
        CHECK(result == (cancels ? PTHREAD_CANCELED : (void *)77));
    }
}

// Cancellation may hit any instruction of the function and of the tracer's code for it.
PROBED int busy_one(int x) { KEEP(); return x + 1; }
static void storms(void) {
    int old;
    sem_post(&inside);
    CHECK(pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &old) == 0);
    for (int x = 0;; x++) busy_one(x);
}

static void mode_exit(void) { batch(exits, 0); }
static void mode_cond(void) { batch(waits, 1); }
static void mode_read(void) { batch(reads, 1); }
static void mode_pause(void) { batch(sleeps, 1); }
static void mode_test(void) { batch(tests, 1); }
static void mode_async(void) { batch(spins, 1); }
static void mode_storm(void) { for (int i = 0; i < 5; i++) batch(storms, 1); }

static void tell(void) {
#ifndef __cplusplus
    CHECK(destroyed == 0 && forced == 0);
#else
    CHECK(destroyed == 2 * around_calls.entered && forced == around_calls.entered);
#endif
    printf("cleaned %llu keyed %llu\n", (unsigned long long)cleaned, (unsigned long long)keyed);
    TELL(around); TELL(inner); TELL(waits); TELL(cleaner); TELL(last_words); TELL(main_frame);
}

static void *outlives(void *first) {
    CHECK(pthread_join(*(pthread_t *)first, NULL) == 0);
    tell();
    exit(0);
}
PROBED void main_frame(void) {
    static pthread_t self, other;
    ENTER(main_frame);
    self = pthread_self();
    CHECK(pthread_create(&other, NULL, outlives, &self) == 0);
    start((void *)exits);
    LEAVE(main_frame);
}

static const struct mode modes[] = {
    {"exit", mode_exit}, {"cond", mode_cond}, {"read", mode_read}, {"pause", mode_pause}, {"test", mode_test},
    {"async", mode_async}, {"storm", mode_storm}, {"main", main_frame},
};

int main(int argc, char **argv) {
    CHECK(pthread_key_create(&key, last_words) == 0 && sem_init(&inside, 0, 0) == 0 && pipe(silent) == 0);
    int status = RUN(modes, argc, argv);
    if (status == 0) tell();
    return status;
}
#ifdef __cplusplus
}
#endif
