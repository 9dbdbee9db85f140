// cflags: -O2 -pthread
// readers N ROUNDS: N threads read, one waits to write, and another to read after the writer.
#include "common.h"
#include <pthread.h>
#include <semaphore.h>
#include <sys/syscall.h>

static pthread_rwlock_t book = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
static pthread_barrier_t all_read, round_over;
static sem_t enough, late, woken;
static int rounds;
static pid_t writer, late_reader;

static void *reads(void *none) {
    for (int i = 0; i < rounds; i++) {
        CHECK(pthread_rwlock_rdlock(&book) == 0);
        pthread_barrier_wait(&all_read);
        CHECK(sem_wait(&enough) == 0);
        CHECK(pthread_rwlock_unlock(&book) == 0);
        pthread_barrier_wait(&round_over);
    }
    return none;
}

static void *reads_late(void *none) {
    late_reader = (pid_t)syscall(SYS_gettid);
    for (int i = 0; i < rounds; i++) {
        CHECK(sem_wait(&late) == 0);
        sem_post(&woken);
        CHECK(pthread_rwlock_rdlock(&book) == 0);
        CHECK(pthread_rwlock_unlock(&book) == 0);
        pthread_barrier_wait(&round_over);
    }
    return none;
}

static void *writes(void *none) {
    writer = (pid_t)syscall(SYS_gettid);
    for (int i = 0; i < rounds; i++) {
        pthread_barrier_wait(&all_read);
        CHECK(pthread_rwlock_wrlock(&book) == 0);
        CHECK(pthread_rwlock_unlock(&book) == 0);
        pthread_barrier_wait(&round_over);
    }
    return none;
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    int readers = atoi(argv[1]);
    pthread_t threads[64];
    CHECK(readers > 0 && readers < 60);
    rounds = atoi(argv[2]);
    pthread_barrier_init(&all_read, NULL, readers + 2);
    pthread_barrier_init(&round_over, NULL, readers + 3);
    for (int i = 0; i < readers + 2; i++) {
        void *(*body)(void *) = i == 0 ? writes : i == 1 ? reads_late : reads;
        CHECK(pthread_create(&threads[i], NULL, body, NULL) == 0);
    }
    for (int i = 0; i < rounds; i++) {
        pthread_barrier_wait(&all_read);
        until_asleep(writer, SYS_futex, &book, sizeof book);
        CHECK(sem_post(&late) == 0 && sem_wait(&woken) == 0);
        until_asleep(late_reader, SYS_futex, &book, sizeof book);
        for (int r = 0; r < readers; r++) CHECK(sem_post(&enough) == 0);
        pthread_barrier_wait(&round_over);
    }
    for (int i = 0; i < readers + 2; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    return 0;
}
