// Replaces the lock functions, tries each lock first, and times an acquisition only if the try fails.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <time.h>

static __thread uint64_t waited[64];

static uint64_t now(void) {
    struct timespec then;
    clock_gettime(CLOCK_MONOTONIC, &then);
    return then.tv_sec * 1000000000ull + then.tv_nsec;
}

#define REPLACE(name, try, type)                                        \
    int name(type *lock) {                                              \
        static int (*next)(type *), (*next_try)(type *);                \
        if (__builtin_expect(next == NULL, 0)) {                        \
            next_try = (int (*)(type *))dlsym(RTLD_NEXT, #try);         \
            next = (int (*)(type *))dlsym(RTLD_NEXT, #name);            \
        }                                                               \
        if (next_try(lock) == 0) return 0;                              \
        uint64_t begun = now();                                         \
        int got = next(lock);                                           \
        waited[63 - __builtin_clzll((now() - begun) | 1)]++;            \
        return got;                                                     \
    }

REPLACE(pthread_mutex_lock, pthread_mutex_trylock, pthread_mutex_t)
REPLACE(pthread_rwlock_rdlock, pthread_rwlock_tryrdlock, pthread_rwlock_t)
REPLACE(pthread_rwlock_wrlock, pthread_rwlock_trywrlock, pthread_rwlock_t)
