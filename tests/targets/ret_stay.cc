// cflags: -O2 -pthread
// ret_stay MODE [wait]: four threads stay inside probed frames until the next line, while a tracer may attach or
// detach. The frames end by MODE: returns, throws, jumps, exits.
#include "ret_common.h"
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdexcept>

enum { THREADS = 4, DEPTH = 50 };
extern "C" {
CALLS(stays); CALLS(descends);
static sem_t inside, leave;
static const char *mode;
static uint64_t destroyed, caught;
static __thread sigjmp_buf place;
struct Guard { ~Guard() { __atomic_fetch_add(&destroyed, 1, __ATOMIC_RELAXED); } };

PROBED int stays(int x) {
    ENTER(stays);
    sem_post(&inside);
    while (sem_wait(&leave)) {}
    if (!strcmp(mode, "throws")) throw std::runtime_error("left");
    if (!strcmp(mode, "jumps")) siglongjmp(place, 5);
    if (!strcmp(mode, "exits")) pthread_exit(nullptr);
    LEAVE(stays);
    return x;
}
PROBED int descends(int depth) {
    ENTER(descends);
    if (strcmp(mode, "jumps")) {
        Guard guard;
        depth += depth ? descends(depth - 1) : stays(depth);
    } else {
        depth += depth ? descends(depth - 1) : stays(depth);
    }
    LEAVE(descends);
    return depth;
}
}

static void *work(void *unused) {
    try {
        if (sigsetjmp(place, 0) == 0) CHECK(descends(DEPTH) == DEPTH * (DEPTH + 1) / 2);
    } catch (const std::runtime_error &) {
        __atomic_fetch_add(&caught, 1, __ATOMIC_RELAXED);
    }
    return unused;
}

int main(int argc, char **argv) {
    pthread_t ids[THREADS];
    char line[64];
    mode = argc > 1 ? argv[1] : "returns";
    int waits = argc > 1 && !strcmp(argv[argc - 1], "wait");
    CHECK(sem_init(&inside, 0, 0) == 0 && sem_init(&leave, 0, 0) == 0);
    wait_for_start(argc, argv);
    for (auto &id : ids) CHECK(pthread_create(&id, NULL, work, NULL) == 0);
    for (int i = 0; i < THREADS; i++) CHECK(sem_wait(&inside) == 0);
    puts("inside");
    fflush(stdout);
    if (waits) CHECK(read(0, line, sizeof line) > 0);
    for (int i = 0; i < THREADS; i++) sem_post(&leave);
    for (auto id : ids) CHECK(pthread_join(id, NULL) == 0);
    CHECK(destroyed == (strcmp(mode, "jumps") ? THREADS * (DEPTH + 1) : 0));
    CHECK(caught == (strcmp(mode, "throws") ? 0 : THREADS));
    TELL(stays); TELL(descends);
    return 0;
}
