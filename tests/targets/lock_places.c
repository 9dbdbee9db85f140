// cflags: -O2 -pthread
// lock_places FILE: one thread holds four mutexes: on its stack, on the first thread's stack, in FILE and in the heap.
// Two threads hold a rwlock. After a line of stdin the mutexes' holder sleeps, and five threads wait for one lock each,
// three times for 20 ms. After the next line they wait for ever.
#include "common.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>

enum { LOCKS = 4, WAITERS = LOCKS + 1, WAITS = 3 };

static pthread_rwlock_t *shared_rwlock;
static pthread_barrier_t all_hold, all_begin, all_waited, all_go;
static atomic_int is_spinning = 1;
static pid_t holder, waiters[WAITERS];
static pthread_mutex_t *locks[LOCKS];

PROBED int wait_for(pthread_mutex_t *lock, const struct timespec *end) {
    int taken = pthread_mutex_timedlock(lock, end);
    KEEP();
    return taken;
}

PROBED int wait_to_write(const struct timespec *end) {
    int taken = pthread_rwlock_timedwrlock(shared_rwlock, end);
    KEEP();
    return taken;
}

static long sleeps(void) {
    struct rusage used;
    CHECK(getrusage(RUSAGE_THREAD, &used) == 0);
    return used.ru_nvcsw;
}

static void wait_ms(intptr_t which, uint64_t ms) {
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    uint64_t ns = (uint64_t)end.tv_nsec + ms * 1000000;
    end.tv_sec += (time_t)(ns / 1000000000);
    end.tv_nsec = (long)(ns % 1000000000);
    CHECK((which < LOCKS ? wait_for(locks[which], &end) : wait_to_write(&end)) == ETIMEDOUT);
}

static void *waits(void *number) {
    intptr_t which = (intptr_t)number;
    waiters[which] = (pid_t)syscall(SYS_gettid);
    pthread_barrier_wait(&all_hold);
    pthread_barrier_wait(&all_begin);
    // A wait may end before the thread sleeps.
    for (int slept = 0; slept < WAITS;) {
        long before = sleeps();
        wait_ms(which, 20);
        if (sleeps() > before) slept++;
    }
    pthread_barrier_wait(&all_waited);
    pthread_barrier_wait(&all_go);
    wait_ms(which, 3600 * 1000);
    return NULL;
}

static void *reads(void *none) {
    CHECK(pthread_rwlock_rdlock(shared_rwlock) == 0);
    pthread_barrier_wait(&all_hold);
    for (;;) pause();
    return none;
}

static void start(void *(*body)(void *), void *argument) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, body, argument) == 0);
}

static void *holds(void *none) {
    pthread_mutex_t mine = PTHREAD_MUTEX_INITIALIZER;
    prctl(PR_SET_NAME, "holder");
    holder = (pid_t)syscall(SYS_gettid);
    locks[0] = &mine;
    for (int i = 0; i < LOCKS; i++) CHECK(pthread_mutex_lock(locks[i]) == 0);
    pthread_barrier_wait(&all_hold);
    while (atomic_load_explicit(&is_spinning, memory_order_relaxed)) {}
    for (;;) pause();
    return none;
}

// Reads and prints for the threads with locks on their stacks. These must sleep when this thread prints, because the
// kernel reports the stack pointers of sleeping threads only. After `ready` this thread maps no memory, so that a
// tracer's list of mappings stays complete.
static void *speaks(void *none) {
    char line[64];
    puts("ready");
    fflush(stdout);
    CHECK(read(0, line, sizeof line) > 0);
    atomic_store(&is_spinning, 0);
    until_asleep(holder, SYS_pause, NULL, 0);
    pthread_barrier_wait(&all_begin);
    pthread_barrier_wait(&all_waited);
    until_asleep(holder, SYS_pause, NULL, 0);
    until_asleep(getpid(), SYS_pause, NULL, 0);
    printf("waited %d\n", holder);
    fflush(stdout);
    CHECK(read(0, line, sizeof line) > 0);
    pthread_barrier_wait(&all_go);
    for (int i = 0; i < LOCKS; i++) until_asleep(waiters[i], SYS_futex, locks[i], sizeof *locks[i]);
    until_asleep(waiters[LOCKS], SYS_futex, shared_rwlock, sizeof *shared_rwlock);
    until_asleep(holder, SYS_pause, NULL, 0);
    until_asleep(getpid(), SYS_pause, NULL, 0);
    puts("stuck");
    fflush(stdout);
    while (read(0, line, sizeof line) > 0) {}
    _exit(0);
    return none;
}

int main(int argc, char **argv) {
    pthread_mutex_t first_stack = PTHREAD_MUTEX_INITIALIZER;
    CHECK(argc > 1);
    int file = open(argv[1], O_RDWR | O_CREAT, 0600);
    CHECK(file >= 0 && ftruncate(file, 4096) == 0);
    void *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(map != MAP_FAILED);
    pthread_mutex_t *mapped = map, *heap = malloc(sizeof *heap);
    CHECK(pthread_mutex_init(mapped, NULL) == 0 && pthread_mutex_init(heap, NULL) == 0);
    shared_rwlock = malloc(sizeof *shared_rwlock);
    CHECK(pthread_rwlock_init(shared_rwlock, NULL) == 0);
    CHECK(pthread_barrier_init(&all_hold, NULL, WAITERS + 4) == 0);
    CHECK(pthread_barrier_init(&all_begin, NULL, WAITERS + 1) == 0);
    CHECK(pthread_barrier_init(&all_waited, NULL, WAITERS + 1) == 0);
    CHECK(pthread_barrier_init(&all_go, NULL, WAITERS + 1) == 0);
    locks[1] = &first_stack;
    locks[2] = mapped;
    locks[3] = heap;
    start(reads, NULL);
    start(reads, NULL);
    start(holds, NULL);
    for (intptr_t i = 0; i < WAITERS; i++) start(waits, (void *)i);
    pthread_barrier_wait(&all_hold);
    start(speaks, NULL);
    for (;;) pause();
}
