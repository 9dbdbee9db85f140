// cflags: -O2 -pthread
// hot THREADS CALLS [wait]: every thread calls every function CALLS times. If CALLS is 0, threads call until stdin
// closes, and for each line the program prints `called` once all threads have called again.
#include "common.h"
#include <pthread.h>
#include <stdatomic.h>

static atomic_int stopped;
static uint64_t calls;
static atomic_uint_least64_t made[256];

PROBED int add(int a, int b) { KEEP(); return a + b; }

PROBED int down(int n) {
    if (n == 0) return 0;
    int rest = down(n - 1);
    __asm__ volatile("" : "+r"(rest));  // otherwise the recursion becomes a loop
    return 1 + rest;
}

PROBED unsigned digits(unsigned n) {
    unsigned sum = 0;
    do { sum += n % 10; n /= 10; KEEP(); } while (n);
    return sum;
}

PROBED double scale(double x, float y) { KEEP(); return x * y + 1; }

PROBED void fill(char *bytes, int length) { for (int i = 0; i < length; i++) { bytes[i] = (char)i; KEEP(); } }

PROBED int choose(int which) {
    KEEP();
    switch (which) {
    case 0: return 7; case 1: return 11; case 2: return 13; case 3: return 17;
    case 4: return 19; case 5: return 23; case 6: return 29; default: return 31;
    }
}

static const int choices[] = {7, 11, 13, 17, 19, 23, 29, 31};

static void once(uint64_t i) {
    char bytes[16];
    unsigned sum = 0;
    CHECK(add((int)i, 3) == (int)i + 3);
    CHECK(down((int)(i % 3)) == (int)(i % 3));
    for (unsigned n = i % 1000; n; n /= 10) sum += n % 10;
    CHECK(digits(i % 1000) == sum);
    CHECK(scale((double)(i % 100), 2) == (double)(i % 100) * 2 + 1);
    fill(bytes, 16);
    CHECK(bytes[15] == 15);
    CHECK(choose((int)(i % 8)) == choices[i % 8]);
}

static void *work(void *which) {
    uint64_t i = 0, thread = (uint64_t)which;
    while (calls ? i < calls : !atomic_load_explicit(&stopped, memory_order_relaxed)) {
        once(i++);
        if (i % 16 == 0) atomic_store_explicit(&made[thread], i, memory_order_relaxed);
    }
    atomic_store(&made[thread], i);
    return NULL;
}

// Waits for two updates of `made`, because one may count earlier calls.
static void wait_for_calls(uint64_t threads) {
    static uint64_t before[256];
    for (uint64_t i = 0; i < threads; i++) before[i] = atomic_load(&made[i]);
    for (uint64_t i = 0; i < threads; i++)
        while (atomic_load(&made[i]) < before[i] + 32) usleep(1000);
    puts("called");
    fflush(stdout);
}

// Returns the calls of `down` in `n` rounds: one, two, three, one, …
static uint64_t downs(uint64_t n) { return n / 3 * 6 + (n % 3 > 0) + (n % 3 > 1) * 2; }

int main(int argc, char **argv) {
    uint64_t threads = number(argc, argv, 1, 2), rounds = 0, recursive = 0;
    pthread_t ids[256];
    char byte;
    calls = number(argc, argv, 2, 100000);
    CHECK(threads <= 256);
    wait_for_start(argc, argv);
    for (uint64_t i = 0; i < threads; i++) CHECK(pthread_create(&ids[i], NULL, work, (void *)i) == 0);
    while (calls == 0 && read(0, &byte, 1) > 0)
        if (byte == '\n') wait_for_calls(threads);
    atomic_store(&stopped, 1);
    for (uint64_t i = 0; i < threads; i++) {
        CHECK(pthread_join(ids[i], NULL) == 0);
        rounds += made[i];
        recursive += downs(made[i]);
    }
    expect("add", rounds);
    expect("down", recursive);
    expect("digits", rounds);
    expect("scale", rounds);
    expect("fill", rounds);
    expect("choose", rounds);
    return 0;
}
