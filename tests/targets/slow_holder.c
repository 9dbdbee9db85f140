// cflags: -O2 -pthread
// slow_holder MS [adaptive]: one thread holds a lock for long, another briefly, and measures its waits.
#include "common.h"
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

pthread_mutex_t cache_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_int stopped;
static atomic_ullong waited_ns;
static uint64_t held, holds, held_ns, rounds_ns;

static uint64_t now(void) {
    struct timespec then;
    clock_gettime(CLOCK_MONOTONIC, &then);
    return then.tv_sec * 1000000000ull + then.tv_nsec;
}

PROBED void slow_holder(void) {
    uint64_t called = now();
    CHECK(pthread_mutex_lock(&cache_lock) == 0);
    uint64_t begun = now();
    usleep(2000);
    held++;
    held_ns += now() - begun;
    CHECK(pthread_mutex_unlock(&cache_lock) == 0);
    holds++;
    usleep(100);
    rounds_ns += now() - called;
}

PROBED void quick(void) {
    uint64_t before = now();
    int taken = pthread_mutex_lock(&cache_lock);
    CHECK(taken == 0);
    atomic_fetch_add(&waited_ns, now() - before);
    held++;
    CHECK(pthread_mutex_unlock(&cache_lock) == 0);
    usleep(50);
}

static void *slow(void *none) {
    while (!atomic_load(&stopped)) slow_holder();
    return none;
}

static void *hasty(void *none) {
    while (!atomic_load(&stopped)) quick();
    return none;
}

int main(int argc, char **argv) {
    pthread_t threads[2];
    uint64_t ms = number(argc, argv, 1, 100);
#ifdef __GLIBC__
    pthread_mutexattr_t adaptive;
    CHECK(pthread_mutexattr_init(&adaptive) == 0);
    if (argc > 2 && strcmp(argv[2], "adaptive") == 0) {
        CHECK(pthread_mutexattr_settype(&adaptive, PTHREAD_MUTEX_ADAPTIVE_NP) == 0);
        CHECK(pthread_mutex_init(&cache_lock, &adaptive) == 0);
    }
#endif
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], NULL, i ? hasty : slow, NULL) == 0);
    usleep(ms * 1000);
    atomic_store(&stopped, 1);
    for (int i = 0; i < 2; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    expect("waited_ns", waited_ns);
    expect("holds", holds);
    expect("held_ns", held_ns);
    expect("rounds_ns", rounds_ns);
    return 0;
}
