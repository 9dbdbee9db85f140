// cflags: -O2 -pthread
// holders SCENARIO [TYPE]: each role holds a lock by its own function. Prints for each role how long it held the lock
// while others waited, summed over the waits.
#include "common.h"
#include <stdatomic.h>
#include <time.h>

#define MOST 40000

pthread_mutex_t mutex;
pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
pthread_cond_t condition = PTHREAD_COND_INITIALIZER;

enum role { SLOW, MIDDLE, QUICK, READER, ROLES };
static const char *names[ROLES] = {"slow", "middle", "quick", "readers"};
struct interval { enum role role; uint64_t from, to; };
static struct interval holds[MOST], waits[MOST];
static atomic_uint held, waited;
static atomic_int stopped;

static uint64_t now(void) {
    struct timespec then;
    clock_gettime(CLOCK_MONOTONIC, &then);
    return then.tv_sec * 1000000000ull + then.tv_nsec;
}

static void note(struct interval *all, atomic_uint *count, enum role role, uint64_t from, uint64_t to) {
    unsigned at = atomic_fetch_add(count, 1);
    CHECK(at < MOST);
    all[at] = (struct interval){role, from, to};
}

// A sleep takes longer than 100 us, so shorter times are spent spinning.
static void sleep_us(unsigned us) {
    if (us >= 100) usleep(us);
    else for (uint64_t until = now() + us * 1000; now() < until;) {}
}

enum how { LOCKS, TRIES, READS, WRITES, AWAITS, ANNOUNCES, FORGES };
struct part { enum role role; enum how how; unsigned hold_us, pause_us, threads; };

static void take(enum how how) {
    switch (how) {
    case FORGES:
    case LOCKS:
    case ANNOUNCES:
    case AWAITS: CHECK(pthread_mutex_lock(&mutex) == 0); break;
    case TRIES:
        while (pthread_mutex_trylock(&mutex) != 0) usleep(20);
        break;
    case READS: CHECK(pthread_rwlock_rdlock(&rwlock) == 0); break;
    case WRITES: CHECK(pthread_rwlock_wrlock(&rwlock) == 0); break;
    }
}

static unsigned generation;
static uint64_t announced;

// Inlined, so that each role has its own call sites.
static inline __attribute__((always_inline)) void cycle(const struct part *part) {
    uint64_t asked = now();
    take(part->how);
    uint64_t taken = now();
    if (part->how != TRIES) note(waits, &waited, part->role, asked, taken);
    if (part->how == AWAITS) {
        unsigned seen = generation;
        while (seen == generation && !atomic_load(&stopped)) CHECK(pthread_cond_wait(&condition, &mutex) == 0);
        taken = now();
        note(waits, &waited, part->role, announced, taken);
    }
    if (part->how == FORGES) mutex.__data.__owner = 0x3fffff;
    sleep_us(part->hold_us);
    if (part->how == ANNOUNCES) {
        generation++;
        announced = now();
        CHECK(pthread_cond_broadcast(&condition) == 0);
        sleep_us(part->hold_us); // the waiters wait for the mutex
    }
    note(holds, &held, part->role, taken, now());
    if (part->how == READS || part->how == WRITES) CHECK(pthread_rwlock_unlock(&rwlock) == 0);
    else CHECK(pthread_mutex_unlock(&mutex) == 0);
    sleep_us(part->pause_us);
}

PROBED void slow(const struct part *part) { cycle(part); KEEP(); }
PROBED void middle(const struct part *part) { cycle(part); KEEP(); }
PROBED void quick(const struct part *part) { cycle(part); KEEP(); }
PROBED void reader(const struct part *part) { cycle(part); KEEP(); }
static void (*const functions[ROLES])(const struct part *) = {slow, middle, quick, reader};

static void *run(void *part) {
    const struct part *mine = part;
    prctl(PR_SET_NAME, names[mine->role]);
    while (!atomic_load(&stopped)) functions[mine->role](mine);
    return NULL;
}

// The order is random, so that no role has its own thread.
static void *run_all(void *parts) {
    const struct part *all = parts;
    uint64_t seed = (uintptr_t)&parts;
    while (!atomic_load(&stopped)) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        const struct part *one = &all[(seed >> 33) % 3];
        functions[one->role](one);
    }
    return NULL;
}

#define SCENARIO(name, ...) {name, {__VA_ARGS__}}
static const struct { const char *name; struct part parts[4]; } scenarios[] = {
    // The slow thread takes the lock again before the woken thread.
    SCENARIO("barging", {SLOW, LOCKS, 2000, 0, 1}, {QUICK, LOCKS, 0, 100, 8}),
    SCENARIO("turns", {SLOW, LOCKS, 4000, 300, 1}, {MIDDLE, LOCKS, 1500, 300, 1}, {QUICK, LOCKS, 500, 300, 2}),
    SCENARIO("mixed", {SLOW, LOCKS, 3000, 300, 1}, {MIDDLE, LOCKS, 1000, 300, 1}, {QUICK, LOCKS, 300, 300, 2}),
    SCENARIO("short", {SLOW, LOCKS, 80, 100, 1}, {MIDDLE, LOCKS, 30, 100, 1}, {QUICK, LOCKS, 5, 100, 2}),
    SCENARIO("many", {SLOW, LOCKS, 3000, 200, 2}, {QUICK, LOCKS, 300, 200, 30}),
    SCENARIO("trylock", {SLOW, TRIES, 3000, 500, 1}, {MIDDLE, TRIES, 1000, 500, 1}, {QUICK, LOCKS, 200, 100, 3}),
    SCENARIO("writers", {SLOW, WRITES, 3000, 200, 1}, {MIDDLE, WRITES, 1000, 200, 1}, {QUICK, WRITES, 200, 100, 3}),
    SCENARIO("readers", {SLOW, WRITES, 2000, 1000, 1}, {READER, READS, 3000, 500, 2}, {QUICK, WRITES, 200, 300, 2}),
    SCENARIO("forged", {SLOW, FORGES, 1000, 0, 1}, {QUICK, FORGES, 200, 200, 3}),
    SCENARIO("conditions", {SLOW, ANNOUNCES, 1500, 1000, 1}, {QUICK, AWAITS, 300, 0, 4}),
};

// Returns how long a role held the lock during a wait. Concurrent readers count once.
static uint64_t common(const struct interval *wait, enum role role) {
    uint64_t sum = 0, until = 0;
    for (unsigned i = 0; i < held; i++) {
        if (holds[i].role != role) continue;
        uint64_t from = holds[i].from > wait->from ? holds[i].from : wait->from;
        uint64_t to = holds[i].to < wait->to ? holds[i].to : wait->to;
        if (from < until) from = until;
        if (to > from) sum += to - from, until = to;
    }
    return sum;
}

static int by_begin(const void *one, const void *other) {
    const struct interval *a = one, *b = other;
    return (a->from > b->from) - (a->from < b->from);
}

int main(int argc, char **argv) {
    CHECK(argc > 2);
    const char *type = argc > 3 ? argv[3] : "normal";
    pthread_mutexattr_t attributes;
    CHECK(pthread_mutexattr_init(&attributes) == 0);
    if (!strcmp(type, "recursive")) CHECK(pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE) == 0);
    if (!strcmp(type, "errorcheck")) CHECK(pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ERRORCHECK) == 0);
    if (!strcmp(type, "adaptive")) CHECK(pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ADAPTIVE_NP) == 0);
    if (!strcmp(type, "robust")) CHECK(pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST) == 0);
    if (!strcmp(type, "inheriting")) CHECK(pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT) == 0);
    CHECK(pthread_mutex_init(&mutex, &attributes) == 0);
    const struct part *parts = NULL;
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++)
        if (!strcmp(argv[1], scenarios[i].name)) parts = scenarios[i].parts;
    CHECK(parts != NULL);
    void *(*const runs)(void *) = strcmp(argv[1], "mixed") ? run : run_all;
    pthread_t threads[64];
    int started = 0;
    for (int i = 0; i < 4; i++)
        for (unsigned n = 0; n < parts[i].threads; n++)
            CHECK(pthread_create(&threads[started++], NULL, runs, (void *)(runs == run ? &parts[i] : parts)) == 0);
    usleep(number(argc, argv, 2, 500) * 1000);
    atomic_store(&stopped, 1);
    for (int round = 0; round < 100; round++) {
        CHECK(pthread_cond_broadcast(&condition) == 0);
        usleep(100);
    }
    for (int i = 0; i < started; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    qsort(holds, held, sizeof *holds, by_begin);
    uint64_t sums[ROLES] = {0};
    for (unsigned i = 0; i < waited; i++)
        for (int role = 0; role < ROLES; role++) sums[role] += common(&waits[i], role);
    for (int role = 0; role < ROLES; role++)
        if (sums[role]) expect(names[role], sums[role]);
    return 0;
}
