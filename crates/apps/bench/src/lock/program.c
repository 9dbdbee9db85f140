// The program that `tiptoe bench lock` measures. Each line of its stdin is a question; each answer is one line.
//   pair mutex|read|write MS   CPU ns of an uncontended lock and unlock
//   wait MS                    CPU ns of a futex wait that returns at once
//   wake MS                    CPU ns of an unlock that wakes nobody
//   convoy THREADS MS          wall ns of a contended lock, a section of 150 ns and an unlock
//   pingpong MS                wall ns of a turn of two threads on one CPU, each of which sleeps
//   armed                      1 where libc's futex calls are patched
#define _GNU_SOURCE
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static sem_t turns[2];
static atomic_int stopped;
static atomic_ullong done;

static double now(clockid_t clock) {
    struct timespec then;
    clock_gettime(clock, &then);
    return then.tv_sec * 1e9 + then.tv_nsec;
}

static void pair_mutex(void) {
    pthread_mutex_lock(&mutex);
    pthread_mutex_unlock(&mutex);
}

static void pair_read(void) {
    pthread_rwlock_rdlock(&rwlock);
    pthread_rwlock_unlock(&rwlock);
}

static void pair_write(void) {
    pthread_rwlock_wrlock(&rwlock);
    pthread_rwlock_unlock(&rwlock);
}

static void wait_at_once(void) {
    static int word;
    syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 1, NULL, NULL, 0);
}

// As a thread leaves it that has waited.
static void wake_nobody(void) {
    mutex.__data.__lock = 2;
    mutex.__data.__owner = (int)getpid();
    mutex.__data.__nusers = 1;
    pthread_mutex_unlock(&mutex);
}

static double each(void (*call)(void), double ms) {
    double begun = now(CLOCK_THREAD_CPUTIME_ID), took = 0;
    uint64_t calls = 0;
    while (took < ms * 1e6) {
        for (int i = 0; i < 1000; i++) call();
        calls += 1000;
        took = now(CLOCK_THREAD_CPUTIME_ID) - begun;
    }
    return took / calls;
}

static void *contend(void *none) {
    uint64_t turns_taken = 0;
    while (!atomic_load_explicit(&stopped, memory_order_relaxed)) {
        pthread_mutex_lock(&mutex);
        for (volatile int i = 0; i < 60; i++) {}
        pthread_mutex_unlock(&mutex);
        turns_taken++;
    }
    atomic_fetch_add(&done, turns_taken);
    return none;
}

static void *take_turns(void *me) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    sched_setaffinity(0, sizeof one, &one);
    intptr_t mine = (intptr_t)me;
    uint64_t taken = 0;
    for (;;) {
        sem_wait(&turns[mine]);
        int over = atomic_load(&stopped);
        taken++;
        sem_post(&turns[!mine]);
        if (over) break;
    }
    atomic_fetch_add(&done, taken);
    return NULL;
}

static double together(void *(*run)(void *), int threads, int ms) {
    pthread_t all[64];
    atomic_store(&stopped, 0);
    atomic_store(&done, 0);
    sem_init(&turns[0], 0, 1);
    sem_init(&turns[1], 0, 0);
    double begun = now(CLOCK_MONOTONIC);
    for (int i = 0; i < threads; i++) pthread_create(&all[i], NULL, run, (void *)(intptr_t)i);
    usleep(ms * 1000);
    atomic_store(&stopped, 1);
    for (int i = 0; i < threads; i++) pthread_join(all[i], NULL);
    return (now(CLOCK_MONOTONIC) - begun) / atomic_load(&done);
}

static const unsigned char number[] = {0xb8, 0xca, 0, 0, 0};

int main(void) {
    char line[128], what[16];
    int a, b;
    unsigned char *site = memmem((void *)sem_post, 256, number, sizeof number);
    setvbuf(stdout, NULL, _IOLBF, 0);
    while (fgets(line, sizeof line, stdin) != NULL) {
        if (sscanf(line, "pair %15s %d", what, &a) == 2) {
            void (*call)(void) = *what == 'm' ? pair_mutex : *what == 'r' ? pair_read : pair_write;
            printf("%.3f\n", each(call, a));
        } else if (sscanf(line, "wait %d", &a) == 1) {
            printf("%.3f\n", each(wait_at_once, a));
        } else if (sscanf(line, "wake %d", &a) == 1) {
            printf("%.3f\n", each(wake_nobody, a));
        } else if (sscanf(line, "convoy %d %d", &a, &b) == 2 && a <= 64) {
            printf("%.3f\n", together(contend, a, b));
        } else if (sscanf(line, "pingpong %d", &a) == 1) {
            printf("%.3f\n", together(take_turns, 2, a));
        } else if (strcmp(line, "armed\n") == 0) {
            printf("%d\n", site == NULL || memcmp(site, number, sizeof number) != 0);
        } else {
            printf("what?\n");
        }
    }
    return 0;
}
