// cflags: -O2 -pthread -rdynamic
// loader_locked LIB|iterate: one thread holds the loader's lock, in LIB's constructor or dl_iterate_phdr, until stdin
// ends. For each line, prints how often another thread has called `loader_work`.
#include "common.h"
#include <dlfcn.h>
#include <link.h>

static volatile int over;
static volatile long calls;

PROBED int loader_work(int x) { KEEP(); return x + 1; }
PROBED int add(int a, int b) { KEEP(); return a + b; }

static void *work(void *unused) {
    while (!over) {
        free(malloc(100));
        CHECK(loader_work(1) == 2);
        calls++;
        usleep(1000);
    }
    return unused;
}

void serve(void) {
    char line[64];
    puts("locked");
    fflush(stdout);
    while (read(0, line, sizeof line) > 0) {
        printf("%ld\n", calls);
        fflush(stdout);
    }
}

static int visit(struct dl_phdr_info *info, size_t size, void *data) {
    (void)info, (void)size, (void)data;
    serve();
    return 1;
}

int main(int argc, char **argv) {
    pthread_t id;
    CHECK(argc == 2 && pthread_create(&id, NULL, work, NULL) == 0);
    if (strcmp(argv[1], "iterate") == 0) CHECK(dl_iterate_phdr(visit, NULL) == 1);
    else CHECK(dlopen(argv[1], RTLD_NOW) != NULL);
    over = 1;
    CHECK(pthread_join(id, NULL) == 0);
    return 0;
}
