// cflags: -O2 -pthread
// blocking ROUNDS [wait]: system calls with a time-out, which must not return early or with EINTR.
#include "common.h"
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>

enum { MS = 100 };
static uint64_t rounds;
static const struct timespec WAIT = {0, MS * 1000000};

PROBED int called(int x) { KEEP(); return x + 1; }

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec * 1e3 + (double)at.tv_nsec / 1e6;
}

static void by_epoll(void) {
    struct epoll_event event;
    int fd = epoll_create1(0);
    CHECK(fd >= 0 && epoll_wait(fd, &event, 1, MS) == 0);
    close(fd);
}
static void by_poll(void) { CHECK(poll(NULL, 0, MS) == 0); }
static void by_select(void) {
    struct timeval wait = {0, MS * 1000};
    CHECK(select(0, NULL, NULL, NULL, &wait) == 0);
}
static void by_nanosleep(void) { CHECK(nanosleep(&WAIT, NULL) == 0); }
static void by_futex(void) {
    uint32_t word = 0;
    CHECK(syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &WAIT, NULL, 0) == -1 && errno == ETIMEDOUT);
}
static void by_semaphore(void) {
    struct timespec until;
    sem_t semaphore;
    CHECK(sem_init(&semaphore, 0, 0) == 0);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += MS * 1000000;
    if (until.tv_nsec >= 1000000000) { until.tv_nsec -= 1000000000; until.tv_sec++; }
    CHECK(sem_timedwait(&semaphore, &until) == -1 && errno == ETIMEDOUT);
}
static void by_read(void) {
    struct timeval wait = {0, MS * 1000};
    int pair[2];
    char byte;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    CHECK(setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait) == 0);
    CHECK(read(pair[0], &byte, 1) == -1 && errno == EAGAIN);
    close(pair[0]);
    close(pair[1]);
}

static void (*const ways[])(void) = {by_epoll, by_poll, by_select, by_nanosleep, by_futex, by_semaphore, by_read};
enum { WAYS = sizeof ways / sizeof ways[0] };

static void *work(void *way) {
    for (uint64_t i = 0; i < rounds; i++) {
        double from = now();
        ways[(uint64_t)way]();
        CHECK(now() - from >= MS - 2);
        CHECK(called((int)i) == (int)i + 1);
    }
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t ids[WAYS];
    rounds = number(argc, argv, 1, 3);
    wait_for_start(argc, argv);
    for (uint64_t i = 0; i < WAYS; i++) CHECK(pthread_create(&ids[i], NULL, work, (void *)i) == 0);
    for (int i = 0; i < WAYS; i++) CHECK(pthread_join(ids[i], NULL) == 0);
    expect("called", WAYS * rounds);
    return 0;
}
