// cflags: -O2 -pthread
// spawner THREADS: threads start /bin/true by posix_spawn, vfork and fork in turn, until stdin closes.
#include "common.h"
#include <spawn.h>
#include <sys/wait.h>

static volatile int over;
static char *const words[] = {"true", NULL};

static pid_t start(uint64_t turn) {
    pid_t child;
    switch (turn % 3) {
    case 0:
        CHECK(posix_spawn(&child, "/bin/true", NULL, NULL, words, NULL) == 0);
        return child;
    case 1: child = vfork(); break;
    default: child = fork();
    }
    if (child == 0) {
        execv("/bin/true", words);
        _exit(98);
    }
    CHECK(child > 0);
    return child;
}

PROBED int started(int x) { KEEP(); return x; }

static void *run(void *made) {
    for (uint64_t turn = 0; !over; turn++) {
        int status = -1;
        pid_t child = start(turn);
        CHECK(waitpid(child, &status, 0) == child);
        if (status != 0) fprintf(stderr, "turn %llu: status %x\n", (unsigned long long)turn, status);
        CHECK(status == 0);
        ++*(uint64_t *)made;
        started(1);
    }
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t ids[16];
    static uint64_t made[16];
    uint64_t threads = number(argc, argv, 1, 4), sum = 0;
    char line[64];
    puts("ready");
    fflush(stdout);
    for (uint64_t i = 0; i < threads; i++) CHECK(pthread_create(&ids[i], NULL, run, &made[i]) == 0);
    while (read(0, line, sizeof line) > 0);
    over = 1;
    for (uint64_t i = 0; i < threads; i++) {
        CHECK(pthread_join(ids[i], NULL) == 0);
        sum += made[i];
    }
    expect("started", sum);
    return 0;
}
