// cflags: -O2 -pthread
// recorded MODE COUNT [wait]: calls f(i, j) in known ways, and prints how often.
//   four   COUNT times on each of four threads, as f(thread, call); a forked child as f(99, call)
//   storm  at least COUNT times on one thread, interrupted by 200 signals, whose handler calls f(-1, signal)
//   lives  COUNT / 100 times on each of 100 successive threads, as f(its id, call)
//   below  COUNT times on each of four threads inside g; calls elsewhere, as f(-1, call), are not counted
//   ticks  every 50 us on four threads
#include "common.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { FOUR = 4, LIVES = 100, ENOUGH = 200 };
static uint64_t calls;
static atomic_long handled;
static atomic_bool over;

PROBED long f(long i, long j) {
    KEEP();
    return i + j;
}

static void call(long who, uint64_t count) {
    for (uint64_t i = 0; i < count; i++) f(who, (long)i);
}

static void *one_of_four(void *who) {
    call((long)who, calls);
    return NULL;
}

static pthread_t threads[FOUR];

static void start(void *work(void *)) {
    for (long who = 0; who < FOUR; who++) CHECK(!pthread_create(&threads[who], NULL, work, (void *)(who + 1)));
}

static void join(void) {
    for (int who = 0; who < FOUR; who++) pthread_join(threads[who], NULL);
}

static uint64_t four(void) {
    start(one_of_four);
    join();
    f(5, 0);
    pid_t child = fork();
    if (child == 0) {
        call(99, calls);
        _exit(0);
    }
    CHECK(child > 0 && waitpid(child, NULL, 0) == child);
    return FOUR * calls + 1;
}

static void on_signal(int signal) {
    (void)signal;
    f(-1, atomic_fetch_add(&handled, 1));
}

static void *interrupter(void *whom) {
    while (!atomic_load(&over)) CHECK(!pthread_kill(*(pthread_t *)whom, SIGUSR1));
    return NULL;
}

static uint64_t storm(void) {
    pthread_t own = pthread_self(), other;
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    CHECK(!sigaction(SIGUSR1, &action, NULL));
    CHECK(!pthread_create(&other, NULL, interrupter, &own));
    uint64_t count = 0;
    while (count < calls || atomic_load(&handled) < ENOUGH) f(1, (long)count++);
    atomic_store(&over, true);
    pthread_join(other, NULL);
    return count + (uint64_t)atomic_load(&handled);
}

static void *one_life(void *unused) {
    (void)unused;
    call(syscall(SYS_gettid), calls / LIVES);
    return NULL;
}

static uint64_t lives(void) {
    for (int life = 0; life < LIVES; life++) {
        pthread_t thread;
        CHECK(!pthread_create(&thread, NULL, one_life, NULL));
        pthread_join(thread, NULL);
    }
    return calls / LIVES * LIVES;
}

PROBED void g(long who) {
    call(who, calls);
    KEEP();
}

static void *below_and_elsewhere(void *who) {
    call(-1, calls);
    g((long)who);
    call(-1, calls);
    return NULL;
}

static uint64_t below(void) {
    start(below_and_elsewhere);
    join();
    return FOUR * calls;
}

static void *until_line(void *who) {
    for (long i = 0; !atomic_load(&over); i++) {
        f((long)who, i);
        atomic_fetch_add(&handled, 1);
        usleep(50);
    }
    return NULL;
}

static uint64_t ticks(void) {
    char line[64];
    start(until_line);
    CHECK(read(0, line, sizeof line) > 0);
    atomic_store(&over, true);
    join();
    return (uint64_t)atomic_load(&handled);
}

int main(int argc, char **argv) {
    CHECK(argc > 1);
    calls = number(argc, argv, 2, 1000);
    wait_for_start(argc, argv);
    switch (argv[1][0]) {
        case 'f': expect("f", four()); break;
        case 's': expect("f", storm()); break;
        case 'b': expect("f", below()); break;
        case 't': expect("f", ticks()); break;
        default: expect("f", lives());
    }
    return 0;
}
