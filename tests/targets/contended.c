// cflags: -O2 -pthread
// contended KIND ROUNDS [seccomp] [wait]: threads contend for a lock, ROUNDS times each; 0 means until stdin closes.
// `seccomp` adds a filter that allows everything.
#include "common.h"
#include <limits.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>

#define THREADS 4

static uint64_t rounds;
static volatile uint64_t counted;
pthread_mutex_t hot_mutex;
pthread_rwlock_t hot_rwlock = PTHREAD_RWLOCK_INITIALIZER;
pthread_cond_t hot_cond = PTHREAD_COND_INITIALIZER;
pthread_spinlock_t hot_spin;
sem_t hot_sems[THREADS];
pthread_once_t hot_once[1 << 16];
static FILE *hot_file;
atomic_int hot_word;
static int turn;

static void work(int times) {
    for (volatile int i = 0; i < times; i++) {}
}

static struct timespec later(clockid_t clock) {
    struct timespec then;
    clock_gettime(clock, &then);
    then.tv_sec += 100;
    return then;
}

// Yields so that other threads find the lock taken.
PROBED void hold(void) {
    if (++counted % 16 == 0) sched_yield();
    work(300);
}

PROBED void plain(int me) {
    (void)me;
    int taken = pthread_mutex_lock(&hot_mutex);
    CHECK(taken == 0);
    hold();
    CHECK(pthread_mutex_unlock(&hot_mutex) == 0);
}

PROBED void spin(int me) {
    (void)me;
    CHECK(pthread_spin_lock(&hot_spin) == 0);
    hold();
    CHECK(pthread_spin_unlock(&hot_spin) == 0);
}

PROBED void timed(int me) {
    (void)me;
    struct timespec then = later(CLOCK_REALTIME);
    CHECK(pthread_mutex_timedlock(&hot_mutex, &then) == 0);
    hold();
    CHECK(pthread_mutex_unlock(&hot_mutex) == 0);
}

PROBED void rwlock(int me) {
    if (me % 2) {
        CHECK(pthread_rwlock_rdlock(&hot_rwlock) == 0);
        work(300);
    } else {
        CHECK(pthread_rwlock_wrlock(&hot_rwlock) == 0);
        hold();
    }
    CHECK(pthread_rwlock_unlock(&hot_rwlock) == 0);
}

PROBED void rwtimed(int me) {
    struct timespec then = later(CLOCK_REALTIME);
    if (me % 2) {
        CHECK(pthread_rwlock_timedrdlock(&hot_rwlock, &then) == 0);
        work(300);
    } else {
        CHECK(pthread_rwlock_timedwrlock(&hot_rwlock, &then) == 0);
        hold();
    }
    CHECK(pthread_rwlock_unlock(&hot_rwlock) == 0);
}

PROBED void cond(int me) {
    CHECK(pthread_mutex_lock(&hot_mutex) == 0);
    while (turn != me) CHECK(pthread_cond_wait(&hot_cond, &hot_mutex) == 0);
    turn = (turn + 1) % THREADS;
    CHECK(pthread_cond_broadcast(&hot_cond) == 0);
    CHECK(pthread_mutex_unlock(&hot_mutex) == 0);
}

PROBED void condtimed(int me) {
    struct timespec then = later(CLOCK_REALTIME);
    CHECK(pthread_mutex_lock(&hot_mutex) == 0);
    while (turn != me) CHECK(pthread_cond_timedwait(&hot_cond, &hot_mutex, &then) == 0);
    turn = (turn + 1) % THREADS;
    CHECK(pthread_cond_broadcast(&hot_cond) == 0);
    CHECK(pthread_mutex_unlock(&hot_mutex) == 0);
}

PROBED void sem(int me) {
    CHECK(sem_wait(&hot_sems[me]) == 0);
    CHECK(sem_post(&hot_sems[(me + 1) % THREADS]) == 0);
}

PROBED void semtimed(int me) {
    struct timespec then = later(CLOCK_REALTIME);
    CHECK(sem_timedwait(&hot_sems[me], &then) == 0);
    CHECK(sem_post(&hot_sems[(me + 1) % THREADS]) == 0);
}

static void initialise(void) { usleep(50); }

static _Thread_local uint64_t mine;

static pthread_barrier_t hot_barrier;

PROBED void barrier(int me) {
    (void)me;
    int last = pthread_barrier_wait(&hot_barrier);
    CHECK(last == 0 || last == PTHREAD_BARRIER_SERIAL_THREAD);
}

PROBED void once(int me) {
    (void)me;
    CHECK(pthread_once(&hot_once[mine++ % (1 << 16)], initialise) == 0);
}

static void *short_lived(void *none) {
    usleep(50);
    return none;
}

PROBED void join(int me) {
    (void)me;
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, short_lived, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

PROBED void stdio(int me) {
    (void)me;
    flockfile(hot_file);
    hold();
    CHECK(fprintf(hot_file, "%d %d %d\n", 1, 2, 3) > 0);
    funlockfile(hot_file);
}

PROBED void heap(int me) {
    void *some[8];
    for (int i = 0; i < 8; i++) CHECK((some[i] = malloc(2000 + 16 * me + i)) != NULL);
    for (int i = 0; i < 8; i++) free(some[i]);
}

static void own_lock(long (*futex)(long, void *, int, int, void *)) {
    int free = 0;
    if (!atomic_compare_exchange_strong(&hot_word, &free, 1)) {
        while (atomic_exchange(&hot_word, 2) != 0) {
            long result = futex(SYS_futex, &hot_word, FUTEX_WAIT_PRIVATE, 2, NULL);
            if (result == -1) result = -errno;
            CHECK(result == 0 || result == -EAGAIN || result == -EINTR);
        }
    }
    hold();
    if (atomic_exchange(&hot_word, 0) == 2) CHECK(futex(SYS_futex, &hot_word, FUTEX_WAKE_PRIVATE, 1, NULL) >= 0);
}

static long by_libc(long nr, void *word, int operation, int value, void *none) {
    return syscall(nr, word, operation, value, none, NULL, 0);
}

PROBED void raw(int me) {
    (void)me;
    own_lock(by_libc);
}

__asm__(".pushsection .text\n.type inlined, @function\ninlined: mov $202, %eax\n mov %rsi, %rdi\n mov %edx, %esi\n"
        " mov %ecx, %edx\n mov %r8, %r10\n syscall\n cmp $-4095, %rax\n ret\n.size inlined, . - inlined\n.popsection");
long inlined(long nr, void *word, int operation, int value, void *none);

PROBED void bare(int me) {
    (void)me;
    own_lock(inlined);
}

static void under_seccomp(void) {
    struct sock_filter all = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {1, &all};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

static const struct {
    const char *name;
    void (*call)(int);
    int type, robust, protocol, shared;
} kinds[] = {
    {"mutex", plain, PTHREAD_MUTEX_NORMAL, 0, 0, 0},
    {"recursive", plain, PTHREAD_MUTEX_RECURSIVE, 0, 0, 0},
    {"errorcheck", plain, PTHREAD_MUTEX_ERRORCHECK, 0, 0, 0},
#ifdef __GLIBC__
    {"adaptive", plain, PTHREAD_MUTEX_ADAPTIVE_NP, 0, 0, 0},
#endif
    {"robust", plain, PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_ROBUST, 0, 0},
    {"inheriting", plain, PTHREAD_MUTEX_NORMAL, 0, PTHREAD_PRIO_INHERIT, 0},
    {"shared", plain, PTHREAD_MUTEX_NORMAL, 0, 0, PTHREAD_PROCESS_SHARED},
    {"spin", spin, 0, 0, 0, 0},
    {"timed", timed, PTHREAD_MUTEX_NORMAL, 0, 0, 0},
    {"rwlock", rwlock, 0, 0, 0, 0},
    {"rwtimed", rwtimed, 0, 0, 0, 0},
    {"cond", cond, 0, 0, 0, 0},
    {"condtimed", condtimed, 0, 0, 0, 0},
    {"sem", sem, 0, 0, 0, 0},
    {"semtimed", semtimed, 0, 0, 0, 0},
    {"barrier", barrier, 0, 0, 0, 0},
    {"once", once, 0, 0, 0, 0},
    {"join", join, 0, 0, 0, 0},
    {"stdio", stdio, 0, 0, 0, 0},
    {"malloc", heap, 0, 0, 0, 0},
    {"syscall", raw, 0, 0, 0, 0},
    {"inline", bare, 0, 0, 0, 0},
};

static void (*call)(int);

static atomic_int started, stopped;
static atomic_ullong calls, last;

static void *contend(void *number) {
    int me = (int)(intptr_t)number;
    // Spins, because a wait would be counted.
    for (atomic_fetch_add(&started, 1); atomic_load(&started) < THREADS;) sched_yield();
    uint64_t done = 0;
    for (; done < atomic_load(&last); done++) {
        // In some kinds the threads of a round wait for each other, so all must end after the same round. The first
        // thread chooses its current round, which the others cannot have finished without it.
        if (me == 0 && atomic_load(&stopped)) atomic_store(&last, done + 1);
        call(me);
    }
    atomic_fetch_add(&calls, done);
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t threads[THREADS];
    pthread_mutexattr_t attributes;
    char byte;
    CHECK(argc > 2);
    rounds = number(argc, argv, 2, 1);
    atomic_store(&last, rounds ? rounds : UINT64_MAX);
    if (argc > 3 && strcmp(argv[3], "seccomp") == 0) under_seccomp();
    // Creating a priority-inheriting lock makes a futex call, which the test expects among the counted ones.
    wait_for_start(argc, argv);
#ifdef __GLIBC__
    CHECK(mallopt(M_ARENA_MAX, 1) == 1);
#endif
    CHECK((hot_file = fopen("/dev/null", "w")) != NULL);
    CHECK(pthread_mutexattr_init(&attributes) == 0);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(kinds[i].name, argv[1]) != 0) continue;
        call = kinds[i].call;
        CHECK(pthread_mutexattr_settype(&attributes, kinds[i].type) == 0);
        CHECK(pthread_mutexattr_setrobust(&attributes, kinds[i].robust) == 0);
        CHECK(pthread_mutexattr_setprotocol(&attributes, kinds[i].protocol) == 0);
        CHECK(pthread_mutexattr_setpshared(&attributes, kinds[i].shared) == 0);
    }
    CHECK(call != NULL);
    CHECK(pthread_mutex_init(&hot_mutex, &attributes) == 0);
    CHECK(pthread_spin_init(&hot_spin, PTHREAD_PROCESS_PRIVATE) == 0);
    for (int i = 0; i < THREADS; i++) CHECK(sem_init(&hot_sems[i], 0, i == 0) == 0);
    CHECK(pthread_barrier_init(&hot_barrier, NULL, THREADS) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, contend, (void *)(intptr_t)i) == 0);
    if (rounds == 0) {
        while (read(0, &byte, 1) > 0) {}
        atomic_store(&stopped, 1);
    }
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    printf("done %llu %llu\n", (unsigned long long)counted, (unsigned long long)calls);
    fflush(stdout);
    while (read(0, &byte, 1) > 0) {}
    return 0;
}
