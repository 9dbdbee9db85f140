// cflags: -O2 -pthread -ldl
// busy PLUGIN [wait]: threads call malloc, the loader and stdio. For each line, prints `called` once all threads have
// called again.
#include "common.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>

static atomic_int stopped;
static const char *plugin;

PROBED int called(int x) { KEEP(); return x + 1; }

static void by_malloc(void) {
    char *block = malloc(3000);
    CHECK(block != NULL);
    memset(block, 5, 3000);
    KEEP();
    free(block);
}
static void by_loader(void) {
    void *handle = dlopen(plugin, RTLD_NOW);
    CHECK(handle != NULL && dlclose(handle) == 0);
}
static void by_stdio(void) {
    static _Thread_local FILE *null;
    if (null == NULL) CHECK((null = fopen("/dev/null", "w")) != NULL);
    CHECK(fprintf(null, "%d and %s\n", 42, "more") > 0);
}

static void (*const ways[])(void) = {by_malloc, by_loader, by_stdio, by_malloc};
enum { WAYS = sizeof ways / sizeof ways[0] };

static atomic_uint_least64_t made[WAYS];

static void *work(void *way) {
    uint64_t calls = 0;
    while (!atomic_load_explicit(&stopped, memory_order_relaxed)) {
        ways[(uint64_t)way]();
        CHECK(called((int)calls) == (int)calls + 1);
        calls++;
        atomic_store(&made[(uint64_t)way], calls);
    }
    return (void *)calls;
}

// Waits for two calls of each thread, because the first call may have begun earlier.
static void wait_for_calls(void) {
    uint64_t before[WAYS];
    for (int i = 0; i < WAYS; i++) before[i] = atomic_load(&made[i]);
    for (int i = 0; i < WAYS; i++)
        while (atomic_load(&made[i]) < before[i] + 2) usleep(1000);
    puts("called");
    fflush(stdout);
}

int main(int argc, char **argv) {
    pthread_t ids[WAYS];
    uint64_t total = 0;
    char byte;
    CHECK(argc > 1);
    plugin = argv[1];
    wait_for_start(argc, argv);
    for (uint64_t i = 0; i < WAYS; i++) CHECK(pthread_create(&ids[i], NULL, work, (void *)i) == 0);
    while (read(0, &byte, 1) > 0)
        if (byte == '\n') wait_for_calls();
    atomic_store(&stopped, 1);
    for (int i = 0; i < WAYS; i++) {
        void *calls;
        CHECK(pthread_join(ids[i], &calls) == 0);
        total += (uint64_t)calls;
    }
    expect("called", total);
    return 0;
}
