// cflags: -O2 -pthread
// main_exits CALLS [wait]: main ends by pthread_exit; another thread ends the process.
#include "common.h"
#include <pthread.h>

static uint64_t calls;

PROBED int called(int x) { KEEP(); return x + 1; }

static void *work(void *unused) {
    (void)unused;
    usleep(50000);
    for (uint64_t i = 0; i < calls; i++) CHECK(called((int)i) == (int)i + 1);
    expect("called", 2 * calls);
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t id;
    calls = number(argc, argv, 1, 1000);
    wait_for_start(argc, argv);
    CHECK(pthread_create(&id, NULL, work, NULL) == 0);
    for (uint64_t i = 0; i < calls; i++) CHECK(called((int)i) == (int)i + 1);
    pthread_exit(NULL);
}
