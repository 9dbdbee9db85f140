// cflags: -O2 -g -pthread -fno-inline
// watched MODE ROUNDS [wait]: a program whose variables are watched. Prints the number of its own stores.
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

#include "common.h"

struct stats {
    long hits;
    int state;
    signed char level;
    unsigned flag : 3;
} stats = {.state = 1};
struct node {
    struct node *next;
    int id;
} nodes[4] = {{.id = 0}, {.id = 1}, {.next = &nodes[3], .id = 2}, {.id = 3}};
struct node *head = &nodes[2];
enum mode { IDLE, BUSY } mode;
volatile long owner;
/* `--when` must refuse `share`, because conditions compare whole numbers. */
volatile float share;
_Atomic long total;
static volatile int stopped;
static uint64_t rounds;

static void pause_ns(long ns) {
    struct timespec time = {.tv_nsec = ns};
    nanosleep(&time, NULL);
}

// One of many threads stores to the wrong address.
PROBED void scribble(char *at, int value) { *(int *)at = value; }

static void *one_of_many(void *arg) {
    intptr_t me = (intptr_t)arg;
    while (!stopped) {
        pause_ns(1000000);
        atomic_fetch_add(&total, 1);
        if (me == 137 && atomic_load(&total) > 1000 && stats.state == 1) {
            scribble((char *)&stats.state, 0xdead);
            stopped = 1;
        }
    }
    return NULL;
}

static void corrupt(void) {
    pthread_t threads[200];
    for (intptr_t i = 0; i < 200; i++) CHECK(pthread_create(&threads[i], NULL, one_of_many, (void *)i) == 0);
    for (int i = 0; i < 200; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    printf("total %ld\n", atomic_load(&total));
}

PROBED void add(void) { atomic_fetch_add(&total, 1); }

static void *link_of_chain(void *arg) {
    intptr_t left = (intptr_t)arg;
    add();
    pause_ns(200000);
    if (left > 0) {
        start_detached(link_of_chain, (void *)(left - 1));
    } else {
        atomic_fetch_add((_Atomic long *)&owner, 1);
    }
    return NULL;
}

static void churn(void) {
    for (int i = 0; i < 50; i++) start_detached(link_of_chain, (void *)(intptr_t)rounds);
    while (owner < 50) pause_ns(1000000);
    printf("total %ld\n", atomic_load(&total));
}

// After a line of stdin, each new thread stores once, until `total` is ROUNDS.
static volatile int writes;

static void *link_for_ever(void *arg) {
    int more = 1;
    if (writes && (more = atomic_load(&total) < (long)rounds)) add();
    pause_ns(200000);
    if (more) {
        start_detached(link_for_ever, arg);
    } else {
        atomic_fetch_add((_Atomic long *)&owner, 1);
    }
    return NULL;
}

static void living(void) {
    char line[64];
    for (int i = 0; i < 50; i++) start_detached(link_for_ever, NULL);
    puts("ready");
    fflush(stdout);
    CHECK(read(0, line, sizeof line) > 0);
    writes = 1;
    while (owner < 50) pause_ns(1000000);
    printf("total %ld\n", atomic_load(&total));
}

static pthread_barrier_t together;

static void *one_of_thousands(void *arg) {
    pthread_barrier_wait(&together);
    pthread_barrier_wait(&together);
    for (int i = 0; i < 10; i++) {
        add();
        stats.hits = i;
        owner = i;
        stats.state = i;
    }
    return arg;
}

static void many(void) {
    pthread_t *threads = calloc(rounds, sizeof *threads);
    pthread_attr_t small;
    char line[64];
    CHECK(threads && pthread_attr_init(&small) == 0 && pthread_attr_setstacksize(&small, 65536) == 0);
    CHECK(pthread_barrier_init(&together, NULL, rounds + 1) == 0);
    for (uint64_t i = 0; i < rounds; i++) CHECK(pthread_create(&threads[i], &small, one_of_thousands, NULL) == 0);
    pthread_barrier_wait(&together);
    puts("ready");
    fflush(stdout);
    CHECK(read(0, line, sizeof line) > 0);
    pthread_barrier_wait(&together);
    for (uint64_t i = 0; i < rounds; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    puts("done");
}

// Each thread has its own instance; the second thread ends.
__thread volatile long own;
__thread struct node *volatile own_node;

PROBED void seldom(void);
PROBED void write_own(long value) { own = value; }

static void *with_own(void *arg) {
    CHECK(prctl(PR_SET_NAME, arg) == 0);
    pthread_barrier_wait(&together);
    pthread_barrier_wait(&together);
    for (int i = 1; i <= 10; i++) write_own(i);
    return NULL;
}

static void two_owners(char *one, char *other) {
    pthread_t first, second;
    char line[64];
    CHECK(pthread_create(&first, NULL, with_own, one) == 0);
    CHECK(pthread_create(&second, NULL, with_own, other) == 0);
    pthread_barrier_wait(&together);
    puts("ready");
    fflush(stdout);
    CHECK(read(0, line, sizeof line) > 0);
    pthread_barrier_wait(&together);
    CHECK(pthread_join(first, NULL) == 0 && pthread_join(second, NULL) == 0);
}

static void owners(void) {
    char line[64];
    CHECK(pthread_barrier_init(&together, NULL, 3) == 0);
    two_owners("first", "second");
    write_own(99);
    CHECK(read(0, line, sizeof line) > 0);
    // These threads reuse the memory of the former ones.
    two_owners("third", "fourth");
    seldom();
}

PROBED void store_one(void) { owner = 1; }
PROBED void store_two(long number) { owner = number; }

static void *race(void *arg) {
    intptr_t me = (intptr_t)arg;
    for (uint64_t i = 0; i < rounds; i++) {
        if (me == 1)
            store_one();
        else
            store_two(2);
        for (volatile uint64_t spin = 0; spin < (i % 64) * 40; spin++) {}
    }
    return NULL;
}

static void racing(void) {
    pthread_t threads[2];
    for (intptr_t i = 0; i < 2; i++) CHECK(pthread_create(&threads[i], NULL, race, (void *)(i + 1)) == 0);
    for (int i = 0; i < 2; i++) CHECK(pthread_join(threads[i], NULL) == 0);
}

PROBED void seldom(void) { stats.hits++; }
PROBED void often(void) { stats.hits++; }

static void hot(void) {
    struct timespec now, start;
    clock_gettime(CLOCK_MONOTONIC, &start);
    do {
        for (int i = 0; i < 1000; i++) {
            for (int j = 0; j < 9; j++) often();
            seldom();
        }
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (now.tv_sec * 1000 + now.tv_nsec / 1000000 < start.tv_sec * 1000 + start.tv_nsec / 1000000 + (long)rounds);
    printf("hits %ld\n", stats.hits);
}

PROBED void set_level(int value) { stats.level = (signed char)value; }

// The kernel stores values, too.
static void values(void) {
    int zero = open("/dev/zero", O_RDONLY);
    CHECK(zero >= 0);
    for (int i = 0; i < 3; i++) set_level(-5);
    set_level(7);
    mode = BUSY;
    head->next = &nodes[1];
    CHECK(read(zero, &stats.state, sizeof stats.state) == sizeof stats.state);
}

static void again(char **argv) {
    seldom();
    argv[1] = "hot";
    argv[2] = "10";
    execv("/proc/self/exe", argv);
    _exit(1);
}

// `unmapped` stores to this memory, and unmaps it after the next line of stdin.
static long *place;

static void map_place(void) {
    place = mmap((void *)0x700000000000, 4096, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    CHECK(place == (long *)0x700000000000);
}

static void unmapped(void) {
    struct pollfd input = {.fd = 0, .events = POLLIN};
    char byte;
    *(volatile long *)place += 1;
    puts("written");
    fflush(stdout);
    while (poll(&input, 1, 1) == 0) *(volatile long *)place += 1;
    CHECK(munmap(place, 4096) == 0);
    while (read(0, &byte, 1) > 0) {}
}

// `moved` stores a new object's number until stdin has a line, which the test sends once it sees such a store. A
// hundred stores follow.
PROBED void announce(uintptr_t number) { *(struct node *volatile *)&head->next = (struct node *)number; }

static void moved(void) {
    struct pollfd input = {.fd = 0, .events = POLLIN};
    char byte;
    for (int object = 0; object < (int)rounds; object++) {
        struct node *before = head;
        head = calloc(1, sizeof *head);
        CHECK(head != NULL);
        if (object) free(before);
        while (poll(&input, 1, 1) == 0) announce((uintptr_t)object + 1);
        while (read(0, &byte, 1) > 0 && byte != '\n') {}
        for (int i = 0; i < 100; i++) *(struct node *volatile *)&head->next = &nodes[i & 1];
    }
}

// The pointers are null at first, and then equal. Stores as in `moved` follow.
struct node *late, *late_alias;

PROBED void greet(void) { *(struct node *volatile *)&late->next = (struct node *)7; }

PROBED void set_late(struct node *object) {
    struct pollfd input = {.fd = 0, .events = POLLIN};
    char byte;
    CHECK(object != NULL);
    late = object;
    late_alias = late;
    while (poll(&input, 1, 1) == 0) greet();
    while (read(0, &byte, 1) > 0 && byte != '\n') {}
    for (int i = 0; i < 100; i++) *(struct node *volatile *)&late->next = &nodes[i & 1];
}

// After a line of stdin, maps `place` again, for an object.
static void remapped(void) {
    char line[64];
    CHECK(munmap(place, 4096) == 0);
    CHECK(read(0, line, sizeof line) > 0);
    map_place();
    set_late((struct node *)place);
}

// `freed` frees the object after a line of stdin, and allocates its memory again.
PROBED void touch(struct node *object) { *(struct node *volatile *)&object->next = &nodes[0]; }

static void freed(void) {
    char line[64];
    struct node *object = malloc(sizeof *object);
    CHECK(object != NULL);
    printf("%p\n", (void *)object);
    fflush(stdout);
    CHECK(read(0, line, sizeof line) > 0);
    for (int i = 0; i < 5; i++) touch(object);
    free(object);
    object = malloc(sizeof *object);
    CHECK(object != NULL);
    for (int i = 0; i < 3; i++) touch(object);
    while (read(0, line, sizeof line) > 0) {}
}

static void forked(void) {
    pid_t child = fork();
    CHECK(child >= 0);
    for (int i = 0; i < (child ? 20 : 30); i++) seldom();
    if (child == 0) _exit(0);
    CHECK(waitpid(child, NULL, 0) == child);
}

static void crowded(void) {
    char byte;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
        for (;;) seldom();
    }
    CHECK(read(0, &byte, 1) == 1);
    for (uint64_t i = 0; i < rounds; i++) seldom();
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
}

// The stored values count up, so that each shows the value before it.
static volatile long counts[5];
PROBED void put(int at, long value) { counts[at] = value; }

static void counting(void) {
    for (long i = 1; i <= (long)rounds; i++) {
        for (int at = 0; at < 5; at++) put(at, i);
        pause_ns(200000);
    }
}

static void *put_for_ever(void *arg) {
    for (long i = 1; !stopped; i++) put(0, i);
    return arg;
}

static void hurried(void) {
    pthread_t other;
    CHECK(pthread_create(&other, NULL, put_for_ever, NULL) == 0);
    for (long i = 1; i <= (long)rounds; i++) {
        put(1, i);
        pause_ns(5000000);
    }
    stopped = 1;
    CHECK(pthread_join(other, NULL) == 0);
}

static void vforked(void) {
    for (long i = 1; i <= (long)rounds; i++) {
        put(0, 2 * i - 1);
        pid_t child = vfork();
        if (child == 0) {
            put(0, 2 * i);
            _exit(0);
        }
        CHECK(waitpid(child, NULL, 0) == child);
    }
}

// The mapping is shared, so a child could store to the value, too.
static void shared(void) {
    long *word = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(word != MAP_FAILED);
    printf("%p\n", (void *)word);
    fflush(stdout);
    char byte;
    CHECK(read(0, &byte, 1) == 1);
    touch((struct node *)word);
}

static void unshared(void) {
    pthread_t other;
    CHECK(pthread_create(&other, NULL, one_of_many, NULL) == 0);
    for (uint64_t i = 0; i < rounds; i++) CHECK(unshare(CLONE_NEWUTS) == 0);
    stopped = 1;
    CHECK(pthread_join(other, NULL) == 0);
}

int main(int argc, char **argv) {
    CHECK(argc > 2);
    rounds = number(argc, argv, 2, 1);
    map_place();
    wait_for_start(argc, argv);
    if (!strcmp(argv[1], "corrupt")) corrupt();
    if (!strcmp(argv[1], "churn")) churn();
    if (!strcmp(argv[1], "living")) living();
    if (!strcmp(argv[1], "many")) many();
    if (!strcmp(argv[1], "owners")) owners();
    if (!strcmp(argv[1], "race")) racing();
    if (!strcmp(argv[1], "hot")) hot();
    if (!strcmp(argv[1], "values")) values();
    if (!strcmp(argv[1], "again")) again(argv);
    if (!strcmp(argv[1], "unmapped")) unmapped();
    if (!strcmp(argv[1], "moved")) moved();
    if (!strcmp(argv[1], "late")) set_late(calloc(1, sizeof *late));
    if (!strcmp(argv[1], "remapped")) remapped();
    if (!strcmp(argv[1], "freed")) freed();
    if (!strcmp(argv[1], "forked")) forked();
    if (!strcmp(argv[1], "crowded")) crowded();
    if (!strcmp(argv[1], "counting")) counting();
    if (!strcmp(argv[1], "hurried")) hurried();
    if (!strcmp(argv[1], "vforked")) vforked();
    if (!strcmp(argv[1], "shared")) shared();
    if (!strcmp(argv[1], "unshared")) unshared();
    return 0;
}
