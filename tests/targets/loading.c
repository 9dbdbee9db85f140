// cflags: -O2 -pthread -ldl
// loading PLUGIN [wait]: one thread loads PLUGIN, whose constructor may keep the loader's lock, while another works.
#include "common.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>

static atomic_int stopped;
static char *plugin;

PROBED int called(int x) { KEEP(); return x + 1; }

static void *load(void *unused) { CHECK(dlopen(plugin, RTLD_NOW) != NULL); return unused; }
static void *work(void *unused) {
    while (!atomic_load_explicit(&stopped, memory_order_relaxed)) CHECK(called(1) == 2);
    return unused;
}

int main(int argc, char **argv) {
    pthread_t ids[2];
    CHECK(argc > 1);
    plugin = argv[1];
    CHECK(pthread_create(&ids[0], NULL, work, NULL) == 0 && pthread_create(&ids[1], NULL, load, NULL) == 0);
    CHECK(pthread_join(ids[1], NULL) == 0);
    for (char byte; read(0, &byte, 1) > 0;) {}
    atomic_store(&stopped, 1);
    CHECK(pthread_join(ids[0], NULL) == 0);
    return 0;
}
