// The program of `tiptoe-dev bench scope`. Each line of stdin is a question; each answer is one line.
//   scope THREADS MS      wall ns of entering and leaving a scope, the mean of this many pinned threads
//   inner THREADS MS      wall ns of entering and leaving a scope inside another
//   many THREADS MS       wall ns of entering and leaving one of a hundred scopes in turn
//   clock THREADS MS      wall ns of two system calls for the thread's CPU time
//   counter THREADS MS    wall ns of two readings of the time stamp counter
//   traced                1 if a tracer counts scopes
#define _GNU_SOURCE
#define TIPTOE_IMPLEMENTATION
#include "tiptoe.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "pinned.h"

#define BATCH 1000
#define MANY 100
#define MOST 256

static const tiptoe_scope outer = TIPTOE_SCOPE("outer");
static tiptoe_scope scopes[MANY];
static char names[MANY][16];

static double now(clockid_t clock) {
    struct timespec at;
    clock_gettime(clock, &at);
    return at.tv_sec * 1e9 + at.tv_nsec;
}

static void one(unsigned turn) {
    (void)turn;
    tiptoe_scope_exit(tiptoe_scope_enter(&scopes[0]));
}

static void many(unsigned turn) { tiptoe_scope_exit(tiptoe_scope_enter(&scopes[turn % MANY])); }

static void clocks(unsigned turn) {
    (void)turn;
    now(CLOCK_THREAD_CPUTIME_ID);
    now(CLOCK_THREAD_CPUTIME_ID);
}

static void counters(unsigned turn) {
    (void)turn;
    unsigned long long ticks = __builtin_ia32_rdtsc();
    __asm__ volatile("" ::"r"(ticks));
    ticks = __builtin_ia32_rdtsc();
    __asm__ volatile("" ::"r"(ticks));
}

static void (*act)(unsigned turn);
static int within;
static double limit_ms;
static pthread_barrier_t start;

struct mean {
    unsigned thread;
    double ns;
};

static void *measure(void *argument) {
    struct mean *own = argument;
    tiptoe_token in = within ? tiptoe_scope_enter(&outer) : 0;
    double begun, end, done = 0;
    pin_to_cpu(own->thread);
    for (unsigned turn = 0; turn < BATCH; turn++) act(turn);
    pthread_barrier_wait(&start);
    begun = now(CLOCK_MONOTONIC);
    do {
        for (unsigned turn = 0; turn < BATCH; turn++) act(turn);
        done += BATCH;
        end = now(CLOCK_MONOTONIC);
    } while (end - begun < limit_ms * 1e6);
    own->ns = (end - begun) / done;
    tiptoe_scope_exit(in);
    return NULL;
}

static double mean(unsigned threads) {
    pthread_t all[MOST];
    struct mean means[MOST];
    double sum = 0;
    if (threads == 0 || threads > MOST) return -1;
    pthread_barrier_init(&start, NULL, threads);
    for (unsigned i = 0; i < threads; i++) {
        means[i].thread = i;
        pthread_create(&all[i], NULL, measure, &means[i]);
    }
    for (unsigned i = 0; i < threads; i++) pthread_join(all[i], NULL);
    for (unsigned i = 0; i < threads; i++) sum += means[i].ns;
    pthread_barrier_destroy(&start);
    return sum / threads;
}

int main(void) {
    static const struct {
        const char *name;
        void (*act)(unsigned turn);
        int within;
    } questions[] = {
        {"scope", one, 0}, {"inner", one, 1}, {"many", many, 0}, {"clock", clocks, 0}, {"counter", counters, 0},
    };
    char line[64], word[16];
    for (unsigned i = 0; i < MANY; i++) {
        scopes[i].length = (size_t)snprintf(names[i], sizeof names[i], "scope %u", i);
        scopes[i].name = names[i];
    }
    while (fgets(line, sizeof line, stdin)) {
        unsigned threads;
        double answer = -1;
        if (strncmp(line, "traced", 6) == 0) {
            answer = tiptoe_is_traced();
        } else if (sscanf(line, "%15s %u %lf", word, &threads, &limit_ms) == 3) {
            for (size_t i = 0; i < sizeof questions / sizeof *questions; i++) {
                if (strcmp(word, questions[i].name) != 0) continue;
                act = questions[i].act;
                within = questions[i].within;
                answer = mean(threads);
            }
        }
        printf("%.6f\n", answer);
        fflush(stdout);
    }
    return 0;
}
