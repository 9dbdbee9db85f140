// cflags: -O2 -pthread -ldl
// dlopens PLUGIN ROUNDS [wait]: two threads open, use and close a library repeatedly.
#include "common.h"
#include <dlfcn.h>
#include <pthread.h>

static const char *plugin;
static uint64_t rounds;

PROBED int opened(int x) { KEEP(); return x + 1; }

static void *work(void *unused) {
    (void)unused;
    for (uint64_t i = 0; i < rounds; i++) {
        void *handle = dlopen(plugin, RTLD_NOW);
        CHECK(handle != NULL);
        int (*plugin_work)(int) = (int (*)(int))dlsym(handle, "plugin_work");
        CHECK(plugin_work != NULL && plugin_work((int)i) == (int)i * 3);
        CHECK(opened((int)i) == (int)i + 1);
        CHECK(dlclose(handle) == 0);
    }
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t other;
    CHECK(argc > 1);
    plugin = argv[1];
    rounds = number(argc, argv, 2, 200);
    wait_for_start(argc, argv);
    CHECK(pthread_create(&other, NULL, work, NULL) == 0);
    work(NULL);
    CHECK(pthread_join(other, NULL) == 0);
    expect("opened", 2 * rounds);
    return 0;
}
