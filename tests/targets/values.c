// cflags: -O2 -pthread
// values [wait]: calls with known arguments, in four threads and a signal handler.
#include "common.h"
#include <pthread.h>
#include <signal.h>

enum { FEW = 10, ROUNDS = 1000, MANY = 3000 };
static uint64_t handled;

PROBED long few(long value, long other) { KEEP(); return value + other; }
PROBED long many(long value) { KEEP(); return value; }
PROBED long signs(long value) { KEEP(); return value; }
PROBED long full(long value) { KEEP(); return value; }

static void handler(int signal) {
    __atomic_fetch_add(&handled, 1, __ATOMIC_RELAXED);
    few(1000 + signal, 1);
}
static void *runs(void *number) {
    long thread = (long)(intptr_t)number;
    for (long i = 0; i < ROUNDS; i++) {
        CHECK(few(i % FEW, thread) == i % FEW + thread);
        if (i % 50 == 0) raise(SIGUSR1);
    }
    return NULL;
}

int main(int argc, char **argv) {
    wait_for_start(argc, argv);
    CHECK(signal(SIGUSR1, handler) != SIG_ERR);
    pthread_t ids[4];
    for (intptr_t i = 0; i < 4; i++) CHECK(pthread_create(&ids[i], NULL, runs, (void *)i) == 0);
    for (intptr_t i = 0; i < 4; i++) CHECK(pthread_join(ids[i], NULL) == 0);
    for (long i = 0; i < MANY; i++) CHECK(many(i * 4096) == i * 4096);
    for (long i = 0; i < 3; i++) signs(-1), signs(0), signs(0x7fff12345678);
    for (long i = 0; i < 512; i++) full(i % 256);
    expect("few", 4 * ROUNDS + handled);
    expect("many", MANY);
    expect("signs", 9);
    expect("full", 512);
    return 0;
}
