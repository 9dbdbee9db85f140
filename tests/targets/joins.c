// cflags: -O2 -pthread
// joins THREADS CALLS [wait]: for each line, threads call the probed function CALLS times, and enter a namespace of
// host names after each call. The thread of tiptoe's library must end before that.
#include "common.h"
#include <sched.h>

static uint64_t calls;

PROBED int called(int x) { __asm__ volatile(".skip 16, 0x90"); return x + 1; }

static void *join(void *unused) {
    (void)unused;
    int space = open("/proc/self/ns/uts", O_RDONLY | O_CLOEXEC);
    CHECK(space >= 0);
    for (uint64_t i = 0; i < calls; i++) CHECK(called((int)i) == (int)i + 1 && setns(space, CLONE_NEWUTS) == 0);
    CHECK(close(space) == 0);
    return NULL;
}

int main(int argc, char **argv) {
    enum { MOST = 16 };
    pthread_t threads[MOST];
    char line[64];
    uint64_t count = number(argc, argv, 1, 2), rounds = 0;
    calls = number(argc, argv, 2, 100);
    CHECK(count <= MOST);
    puts("ready");
    fflush(stdout);
    for (; read(0, line, sizeof line) > 0; rounds++) {
        for (uint64_t i = 0; i < count; i++) CHECK(pthread_create(&threads[i], NULL, join, NULL) == 0);
        for (uint64_t i = 0; i < count; i++) CHECK(pthread_join(threads[i], NULL) == 0);
        puts("joined");
        fflush(stdout);
    }
    expect("called", rounds * count * calls);
    return 0;
}
