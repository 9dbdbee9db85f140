// The program that `tiptoe-dev bench` traces. Each line of stdin is a question; each answer is one line.
//
//   measure SITE DEPTH THREADS MS   CPU ns of a call, the number of calls, all threads' calls per second of wall time,
//                                   and the number of threads that were pinned to one CPU
//   probed SITE                     how many of the site's functions are patched now
//   gap MS OTHERS                   the longest ns that a busy thread was stopped, without waits for a CPU
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "pinned.h"
#include "still.h"

struct site {
    const char *name;
    void (*run[2])(long rounds);  // depth 0, and under 5 callers
    unsigned char *first;
    long stride, functions; // the distance between two functions in memory
    unsigned char *original;
};

#define SITE(name, functions)                                                                 \
    void run0_##name(long), run5_##name(long);                                                \
    extern unsigned char first_##name[], second_##name[];
#include "sites.h"
#undef SITE
#define SITE(name, functions) {#name, {run0_##name, run5_##name}, first_##name, 0, functions, 0},
static struct site sites[] = {
#include "sites.h"
};
#undef SITE
enum { SITES = sizeof sites / sizeof sites[0], HEAD = 8 };

static void remember(void) {
    static unsigned char *const seconds[] = {
#define SITE(name, functions) second_##name,
#include "sites.h"
    };
    for (int i = 0; i < SITES; i++) {
        struct site *site = &sites[i];
        site->stride = seconds[i] - site->first;
        site->original = malloc((size_t)site->functions * HEAD);
        for (long f = 0; f < site->functions; f++)
            memcpy(site->original + f * HEAD, site->first + f * site->stride, HEAD);
    }
}

static long probed(const struct site *site) {
    long count = 0;
    for (long f = 0; f < site->functions; f++)
        count += memcmp(site->original + f * HEAD, site->first + f * site->stride, HEAD) != 0;
    return count;
}

struct work {
    const struct site *site;
    int deep, thread, is_alone, is_pinned;
    double limit, ns, start, end;
    long calls;
};
static pthread_barrier_t begin;

// Runs growing batches for `limit` seconds: of CPU time if the thread is alone, otherwise of wall time, so that all
// threads end at once.
__attribute__((noinline, noclone)) static void *measure(void *argument) {
    struct work *work = argument;
    clockid_t clock = work->is_alone ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
    long batch = 1;
    cpu_set_t own;
    work->site->run[work->deep](1);
    pin_to_cpu(work->thread);
    work->is_pinned = sched_getaffinity(0, sizeof own, &own) == 0 && CPU_COUNT(&own) == 1;
    if (!work->is_alone) pthread_barrier_wait(&begin);
    double used = seconds(CLOCK_THREAD_CPUTIME_ID), from, spent;
    work->start = seconds(CLOCK_MONOTONIC);
    from = seconds(clock);
    do {
        work->site->run[work->deep](batch);
        work->calls += batch * work->site->functions;
        spent = seconds(clock) - from;
        if (spent < work->limit / 32 && batch < 1 << 20) batch *= 2;
    } while (spent < work->limit);
    work->end = seconds(CLOCK_MONOTONIC);
    work->ns = (seconds(CLOCK_THREAD_CPUTIME_ID) - used) * 1e9;
    return NULL;
}

static void *make(int count, size_t size) {
    void *all = count > 0 ? calloc((size_t)count, size) : NULL;
    if (!all) {
        fprintf(stderr, "no room for %d threads\n", count);
        exit(1);
    }
    return all;
}

static void measure_all(const struct site *site, int depth, int threads, double limit) {
    struct work *work = make(threads, sizeof *work);
    pthread_t *ids = make(threads, sizeof *ids);
    double ns = 0, start, end;
    long calls = 0;
    int pinned = 0;
    cpu_set_t usable;
    for (int i = 0; i < threads; i++)
        work[i] = (struct work){.site = site, .deep = depth > 0, .thread = i, .is_alone = threads == 1, .limit = limit};
    if (threads == 1) {
        // This thread is unpinned again, because threads that it creates later inherit its CPUs.
        int is_known = sched_getaffinity(0, sizeof usable, &usable) == 0;
        measure(&work[0]);
        if (is_known) sched_setaffinity(0, sizeof usable, &usable);
    } else {
        pthread_barrier_init(&begin, NULL, (unsigned)threads);
        for (int i = 0; i < threads; i++) pthread_create(&ids[i], NULL, measure, &work[i]);
        for (int i = 0; i < threads; i++) pthread_join(ids[i], NULL);
        pthread_barrier_destroy(&begin);
    }
    start = work[0].start, end = work[0].end;
    for (int i = 0; i < threads; i++) {
        ns += work[i].ns, calls += work[i].calls, pinned += work[i].is_pinned;
        if (work[i].start < start) start = work[i].start;
        if (work[i].end > end) end = work[i].end;
    }
    printf("%.4f %ld %.1f %d\n", ns / (double)calls, calls, (double)calls / (end - start), pinned);
    free(work);
    free(ids);
}

static void *wait_for(void *end) {
    pthread_mutex_lock(end);
    pthread_mutex_unlock(end);
    return NULL;
}

static double gap_beside(int others, double limit) {
    pthread_mutex_t end = PTHREAD_MUTEX_INITIALIZER;
    pthread_t *ids = make(others + 1, sizeof *ids);
    pthread_mutex_lock(&end);
    for (int i = 0; i < others; i++) pthread_create(&ids[i], NULL, wait_for, &end);
    double longest = gap(limit);
    pthread_mutex_unlock(&end);
    for (int i = 0; i < others; i++) pthread_join(ids[i], NULL);
    free(ids);
    return longest;
}

static const struct site *find(const char *name) {
    for (int i = 0; i < SITES; i++) if (!strcmp(sites[i].name, name)) return &sites[i];
    fprintf(stderr, "no site %s\n", name);
    exit(1);
}

static void own_trap(int signal) { (void)signal; }

int main(void) {
    char line[200], name[64];
    int depth, threads, ms;
    signal(SIGTRAP, own_trap);
    remember();
    setvbuf(stdout, NULL, _IOLBF, 0);
    while (fgets(line, sizeof line, stdin)) {
        if (sscanf(line, "measure %63s %d %d %d", name, &depth, &threads, &ms) == 4)
            measure_all(find(name), depth, threads, ms / 1e3);
        else if (sscanf(line, "probed %63s", name) == 1) printf("%ld\n", probed(find(name)));
        else if (sscanf(line, "gap %d %d", &ms, &threads) == 2)
            printf("%.0f\n", gap_beside(threads, ms / 1e3));
        else return 1;
    }
    return 0;
}
