// cflags: -O2 -pthread
// turns ROUNDS PAUSES MS [wait]: two threads on one CPU wake each other. One waits at `even` and `odd` in turns; PAUSES
// waits at `even` take MS milliseconds.
#include "common.h"
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <time.h>

sem_t even, odd, back;
static uint64_t rounds, pauses, ms;

static uint64_t now(void) {
    struct timespec then;
    clock_gettime(CLOCK_MONOTONIC, &then);
    return then.tv_sec * 1000000000ull + then.tv_nsec;
}

PROBED void wait_for(sem_t *turn) {
    CHECK(sem_wait(turn) == 0);
    KEEP();
}

static void *answers(void *none) {
    uint64_t every = pauses > 0 ? rounds / pauses : rounds + 1;
    for (uint64_t round = 0; round < rounds; round++) {
        wait_for(&back);
        if (round % every == every / 2 / 2 * 2) usleep(ms * 1000);
        CHECK(sem_post(round % 2 ? &odd : &even) == 0);
    }
    return none;
}

int main(int argc, char **argv) {
    rounds = number(argc, argv, 1, 1000);
    pauses = number(argc, argv, 2, 0);
    ms = number(argc, argv, 3, 0);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
    CHECK(sem_init(&even, 0, 0) == 0 && sem_init(&odd, 0, 0) == 0 && sem_init(&back, 0, 0) == 0);
    wait_for_start(argc, argv);
    uint64_t waited[2] = {0, 0};
    pthread_t other;
    CHECK(pthread_create(&other, NULL, answers, NULL) == 0);
    for (uint64_t round = 0; round < rounds; round++) {
        CHECK(sem_post(&back) == 0);
        uint64_t begun = now();
        wait_for(round % 2 ? &odd : &even);
        waited[round % 2] += now() - begun;
    }
    CHECK(pthread_join(other, NULL) == 0);
    expect("even", waited[0]);
    expect("odd", waited[1]);
    expect("done", rounds);
    return 0;
}
