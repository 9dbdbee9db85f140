// cflags: -O2 -pthread -rdynamic -ldl
// loads THREADS ROUNDS HELD LIBRARY… [wait]: threads load, use and unload libraries. With HELD 1 the first one is
// loaded before the start.
#include "common.h"
#include <dlfcn.h>
#include <pthread.h>

enum { MOST = 16 };
static struct { const char *name; uint64_t count; } calls[MOST];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char **libraries;
static int library_count;
static uint64_t rounds;

void report_call(const char *name) {
    CHECK(pthread_mutex_lock(&lock) == 0);
    for (int i = 0; i < MOST; i++) {
        if (!calls[i].name) calls[i].name = strdup(name);
        if (strcmp(calls[i].name, name) != 0) continue;
        calls[i].count++;
        break;
    }
    CHECK(pthread_mutex_unlock(&lock) == 0);
}

static void *work(void *first) {
    for (uint64_t i = 0; i < rounds; i++) {
        void *handle = dlopen(libraries[((uintptr_t)first + i) % library_count], RTLD_NOW);
        CHECK(handle != NULL);
        void *found = dlsym(handle, "loaded_work");
        int (*work)(int) = (int (*)(int))(found ? found : dlsym(handle, "other_work"));
        CHECK(work != NULL && work((int)i) == 2 * ((int)i + 1));
        CHECK(dlclose(handle) == 0);
    }
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t ids[64];
    uint64_t threads = number(argc, argv, 1, 1);
    CHECK(argc > 4 && threads < 64);
    rounds = number(argc, argv, 2, 1);
    libraries = argv + 4;
    library_count = argc - 4 - (strcmp(argv[argc - 1], "wait") == 0);
    void *held = number(argc, argv, 3, 0) ? dlopen(libraries[0], RTLD_NOW) : NULL;
    wait_for_start(argc, argv);
    for (int i = 0; i < MOST; i++) calls[i].count = 0;
    if (held) CHECK(dlclose(held) == 0);
    for (uintptr_t i = 0; i < threads; i++) CHECK(pthread_create(&ids[i], NULL, work, (void *)i) == 0);
    for (uint64_t i = 0; i < threads; i++) CHECK(pthread_join(ids[i], NULL) == 0);
    for (int i = 0; i < MOST && calls[i].name; i++)
        if (calls[i].count) expect(calls[i].name, calls[i].count);
    return 0;
}
