// Threads of one process that contend for its mmap_lock. Each question is a line, and each answer a number:
//   faults THREADS COUNT   each thread maps, touches and unmaps memory COUNT times; the wall time of all, in seconds
//   cpu                    the CPU time of the last run, in seconds
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define MOST 1024
#define LENGTH (16 * 4096)

static long mappings;
static pthread_barrier_t start;

static double now(clockid_t clock) {
    struct timespec at;
    clock_gettime(clock, &at);
    return at.tv_sec + at.tv_nsec / 1e9;
}

static void *fault(void *none) {
    pthread_barrier_wait(&start);
    for (long i = 0; i < mappings; i++) {
        volatile char *pages = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (pages == MAP_FAILED) continue;
        for (int at = 0; at < LENGTH; at += 4096) pages[at] = 1;
        munmap((void *)pages, LENGTH);
    }
    return none;
}

int main(void) {
    char line[128];
    double cpu = 0;
    unsigned threads;
    setvbuf(stdout, NULL, _IOLBF, 0);
    while (fgets(line, sizeof line, stdin)) {
        double answer = -1;
        if (sscanf(line, "faults %u %ld", &threads, &mappings) == 2 && threads > 0 && threads <= MOST) {
            pthread_t all[MOST];
            double began, used = now(CLOCK_PROCESS_CPUTIME_ID);
            pthread_barrier_init(&start, NULL, threads + 1);
            for (unsigned i = 0; i < threads; i++) pthread_create(&all[i], NULL, fault, NULL);
            began = now(CLOCK_MONOTONIC);
            pthread_barrier_wait(&start);
            for (unsigned i = 0; i < threads; i++) pthread_join(all[i], NULL);
            answer = now(CLOCK_MONOTONIC) - began;
            cpu = now(CLOCK_PROCESS_CPUTIME_ID) - used;
            pthread_barrier_destroy(&start);
        } else if (!strncmp(line, "cpu", 3)) {
            answer = cpu;
        }
        printf("%.9f\n", answer);
    }
    return 0;
}
