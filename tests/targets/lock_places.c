// cflags: -O2 -pthread
// lock_places FILE [wait]: a thread holds locks that lie here and there, and others wait for one each, 20 ms at a time:
// in the heap, in its stack and in the first thread's, in FILE; and one wants to write where two threads read. Says
// `held` then, with the number of that thread, and ends when its stdin closes.
#include "common.h"
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>

static pthread_rwlock_t *shared_rwlock;
static pthread_barrier_t all_hold;

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

// For the mutex, else to write.
static void *waits(void *lock) {
    for (;;) {
        struct timespec end;
        clock_gettime(CLOCK_REALTIME, &end);
        end.tv_nsec += 20000000;
        end.tv_sec += end.tv_nsec / 1000000000;
        end.tv_nsec %= 1000000000;
        CHECK((lock ? wait_for(lock, &end) : wait_to_write(&end)) == ETIMEDOUT);
    }
}

static void *reads(void *none) {
    CHECK(pthread_rwlock_rdlock(shared_rwlock) == 0);
    pthread_barrier_wait(&all_hold);
    for (;;) pause();
    return none;
}

static void start(void *(*body)(void *), void *lock) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, body, lock) == 0);
}

static void *holds(void *others) {
    pthread_mutex_t mine = PTHREAD_MUTEX_INITIALIZER, **locks = others;
    prctl(PR_SET_NAME, "holder");
    locks[0] = &mine;
    for (int i = 0; i < 4; i++) CHECK(pthread_mutex_lock(locks[i]) == 0);
    for (int i = 0; i < 4; i++) start(waits, locks[i]);
    start(waits, NULL);
    usleep(50000);
    printf("held %ld\n", syscall(SYS_gettid));
    fflush(stdout);
    for (;;) pause();
    return NULL;
}

int main(int argc, char **argv) {
    pthread_mutex_t first_stack = PTHREAD_MUTEX_INITIALIZER;
    char byte;
    wait_for_start(argc, argv);
    int file = open(argv[1], O_RDWR | O_CREAT, 0600);
    CHECK(file >= 0 && ftruncate(file, 4096) == 0);
    void *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(map != MAP_FAILED);
    pthread_mutex_t *mapped = map, *heap = malloc(sizeof *heap);
    CHECK(pthread_mutex_init(mapped, NULL) == 0 && pthread_mutex_init(heap, NULL) == 0);
    shared_rwlock = malloc(sizeof *shared_rwlock);
    CHECK(pthread_rwlock_init(shared_rwlock, NULL) == 0);
    CHECK(pthread_barrier_init(&all_hold, NULL, 3) == 0);
    start(reads, NULL);
    start(reads, NULL);
    pthread_barrier_wait(&all_hold);
    pthread_mutex_t *locks[4] = {NULL, &first_stack, mapped, heap};
    start(holds, locks);
    while (read(0, &byte, 1) > 0) {}
    _exit(0);
}
