// cflags: -O2 -pthread
// births CREATORS PAUSE_US [wait]: CREATORS threads each create and join a thread every PAUSE_US microseconds.
#include "common.h"
#include <time.h>
static volatile int over;
static uint64_t pause_us;
static uint64_t made[64];
PROBED int born(int x) { KEEP(); return x + 1; }
static void *live(void *at) { CHECK(born(41) == 42); return at; }
static void *create(void *at) {
    struct timespec pause = {0, (long)pause_us * 1000};
    while (!over) {
        pthread_t id; void *result;
        CHECK(pthread_create(&id, NULL, live, at) == 0);
        CHECK(pthread_join(id, &result) == 0 && result == at);
        ++*(uint64_t *)at;
        if (pause_us) nanosleep(&pause, NULL);
    }
    return NULL;
}
int main(int argc, char **argv) {
    pthread_t ids[64];
    uint64_t creators = number(argc, argv, 1, 4), sum = 0;
    char line[64];
    pause_us = number(argc, argv, 2, 1000);
    puts("ready"); fflush(stdout);
    for (uint64_t i = 0; i < creators; i++) CHECK(pthread_create(&ids[i], NULL, create, &made[i]) == 0);
    while (read(0, line, sizeof line) > 0);
    over = 1;
    for (uint64_t i = 0; i < creators; i++) { CHECK(pthread_join(ids[i], NULL) == 0); sum += made[i]; }
    expect("born", sum);
    return 0;
}
