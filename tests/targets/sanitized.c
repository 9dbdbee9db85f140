// cflags: -O1 -pthread
// sanitized [wait]: a sanitizer's runtime ends the program if another library precedes the runtime, or if the runtime's
// addresses are already mapped.
#include "common.h"
#include <pthread.h>

enum { THREADS = 3, CALLS = 1000 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long total;

PROBED long checked(long round) {
    char *memory = malloc(100);
    memset(memory, (int)(round % 100), 100);
    long result = memory[round % 100];
    free(memory);
    return result;
}

static void *run(void *unused) {
    (void)unused;
    for (long round = 0; round < CALLS; round++) {
        long result = checked(round);
        pthread_mutex_lock(&lock);
        total += result;
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t threads[THREADS];
    wait_for_start(argc, argv);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, run, NULL) == 0);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(total == THREADS * (CALLS / 100) * 4950L);
    expect("checked", THREADS * CALLS);
    return 0;
}
