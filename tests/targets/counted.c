// cflags: -O2 -pthread
// counted faults N | calls N THREADS | sleeps N | spins MS [wait]: causes N of perf's events.
#include "common.h"
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

static uint64_t calls;
static pthread_barrier_t start;

static void touch(uint64_t pages) {
    char *at = mmap(NULL, pages * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED && madvise(at, pages * 4096, MADV_NOHUGEPAGE) == 0);
    for (uint64_t page = 0; page < pages; page++) ((volatile char *)at)[page * 4096] = 1;
    CHECK(munmap(at, pages * 4096) == 0);
}

static void call(void) {
    for (uint64_t i = 0; i < calls; i++) getppid();
}

static void *call_at_start(void *unused) {
    pthread_barrier_wait(&start);
    call();
    return unused;
}

static void *call_now(void *unused) {
    call();
    return unused;
}

static void all_call(uint64_t threads, int argc, char **argv) {
    pthread_t early[64], late;
    CHECK(threads <= 64 && pthread_barrier_init(&start, NULL, threads + 1) == 0);
    for (uint64_t i = 0; i < threads; i++)
        CHECK(pthread_create(&early[i], NULL, call_at_start, NULL) == 0);
    wait_for_start(argc, argv);
    pthread_barrier_wait(&start);
    CHECK(pthread_create(&late, NULL, call_now, NULL) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        call();
        _exit(0);
    }
    call();
    CHECK(waitpid(child, NULL, 0) == child);
    CHECK(pthread_join(late, NULL) == 0);
    for (uint64_t i = 0; i < threads; i++) CHECK(pthread_join(early[i], NULL) == 0);
    expect("calls", (threads + 3) * calls);
}

static uint64_t own_ns(void) {
    struct timespec now;
    CHECK(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now) == 0);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

// Counts switches, not sleeps, because a sleep whose time is already over makes none.
static uint64_t switches(void) {
    struct rusage used;
    CHECK(!getrusage(RUSAGE_SELF, &used));
    return (uint64_t)used.ru_nvcsw + (uint64_t)used.ru_nivcsw;
}

int main(int argc, char **argv) {
    CHECK(argc > 2);
    const char *what = argv[1];
    uint64_t number = strtoull(argv[2], NULL, 10);
    if (strcmp(what, "calls") == 0) {
        calls = number;
        all_call(strtoull(argv[3], NULL, 10), argc, argv);
        return 0;
    }
    if (strcmp(what, "faults") == 0) {
        touch(number);
        expect("warm", 0);
    }
    wait_for_start(argc, argv);
    if (strcmp(what, "faults") == 0) {
        touch(number);
        expect("faults", number);
        char line[8];
        CHECK(read(0, line, sizeof line) >= 0);
    } else if (strcmp(what, "sleeps") == 0) {
        uint64_t before = switches();
        for (uint64_t i = 0; i < number; i++) usleep(500);
        expect("switches", switches() - before);
    } else {
        while (own_ns() < number * 1000000) KEEP();
        expect("own_ns", own_ns());
    }
    return 0;
}
