// cflags: -O2 -pthread -I../../crates/apps/scope/include
// scoped MODE THREADS ROUNDS [wait]: threads that do known things in scopes (named parts of work).
#include "common.h"

#define TIPTOE_IMPLEMENTATION
#include "tiptoe.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>

// The layout of `tiptoe_port::Port`, the table by which tiptoe finds the program's scopes.
_Static_assert(sizeof(struct tiptoe_port) == 40, "a port");
_Static_assert(offsetof(struct tiptoe_port, begin) == 16 && offsetof(struct tiptoe_port, end) == 24, "its calls");
_Static_assert(offsetof(struct tiptoe_port, open) == 32, "what opens it");

static const tiptoe_scope read_scope = TIPTOE_SCOPE("read");
static const tiptoe_scope write_scope = TIPTOE_SCOPE("write");
static const tiptoe_scope inner_scope = TIPTOE_SCOPE("commit log");

PROBED void work(void) { KEEP(); }

static uint64_t now(clockid_t clock) {
    struct timespec at;
    clock_gettime(clock, &at);
    return (uint64_t)at.tv_sec * 1000000000u + (uint64_t)at.tv_nsec;
}

static void spin(uint64_t ns) {
    uint64_t end = now(CLOCK_THREAD_CPUTIME_ID) + ns;
    while (now(CLOCK_THREAD_CPUTIME_ID) < end) {
    }
}

static unsigned rounds;

// Per round: 3 calls in read, 2 in write, 5 in write/commit log, 1 in none.
static void *calls(void *unused) {
    for (unsigned round = 0; round < rounds; round++) {
        tiptoe_token in = tiptoe_scope_enter(&read_scope);
        for (int i = 0; i < 3; i++) work();
        tiptoe_scope_exit(in);
        in = tiptoe_scope_enter(&write_scope);
        work();
        tiptoe_token inner = tiptoe_scope_enter(&inner_scope);
        for (int i = 0; i < 5; i++) work();
        tiptoe_scope_exit(inner);
        work();
        tiptoe_scope_exit(in);
        work();
    }
    return unused;
}

// Per round: 20 ms of CPU time in read and 10 in write, 30 ms of sleep in write.
static void *times(void *unused) {
    for (unsigned round = 0; round < rounds; round++) {
        tiptoe_token in = tiptoe_scope_enter(&read_scope);
        spin(20000000);
        tiptoe_scope_exit(in);
        in = tiptoe_scope_enter(&write_scope);
        spin(10000000);
        usleep(30000);
        tiptoe_scope_exit(in);
    }
    return unused;
}

// Per round: 100 page faults in read, 50 in write; 7 getppid in read.
static void *faults(void *unused) {
    getppid(); // touches libc's page, so that the fault is not counted later
    for (unsigned round = 0; round < rounds; round++) {
        size_t bytes = 150 * 4096;
        char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        madvise(memory, bytes, MADV_NOHUGEPAGE);
        tiptoe_token in = tiptoe_scope_enter(&read_scope);
        for (size_t page = 0; page < 100; page++) ((volatile char *)memory)[page * 4096] = 1;
        for (int i = 0; i < 7; i++) getppid();
        tiptoe_scope_exit(in);
        in = tiptoe_scope_enter(&write_scope);
        for (size_t page = 100; page < 150; page++) ((volatile char *)memory)[page * 4096] = 1;
        tiptoe_scope_exit(in);
        munmap(memory, bytes);
    }
    return unused;
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

// Threads hold a mutex for 2 ms each. Half of them wait for it in read, the others in write.
static void *waits(void *number) {
    const tiptoe_scope *scope = (size_t)number % 2 ? &read_scope : &write_scope;
    for (unsigned round = 0; round < rounds; round++) {
        tiptoe_token in = tiptoe_scope_enter(scope);
        pthread_mutex_lock(&mutex);
        tiptoe_scope_exit(in);
        usleep(2000);
        pthread_mutex_unlock(&mutex);
        usleep(100);
    }
    return NULL;
}

static void handler(int signal) {
    (void)signal;
    tiptoe_token in = tiptoe_scope_enter(&inner_scope);
    work();
    tiptoe_scope_exit(in);
}

static void *signals(void *unused) {
    struct itimerval every = {{0, 100}, {0, 100}};
    signal(SIGALRM, handler);
    setitimer(ITIMER_REAL, &every, NULL);
    calls(unused);
    memset(&every, 0, sizeof every);
    setitimer(ITIMER_REAL, &every, NULL);
    return unused;
}

static void *many(void *unused) {
    for (unsigned name = 0; name < rounds; name++) {
        tiptoe_scope *scope = malloc(sizeof *scope);
        char *text = malloc(32);
        scope->length = (size_t)snprintf(text, 32, "tenant %u", name);
        scope->name = text;
        tiptoe_token in = tiptoe_scope_enter(scope);
        work();
        tiptoe_scope_exit(in);
    }
    return unused;
}

static void *forks(void *unused) {
    tiptoe_token in = tiptoe_scope_enter(&read_scope);
    pid_t child = fork();
    if (child == 0) {
        calls(unused);
        tiptoe_scope_exit(in);
        _exit(0);
    }
    int status = 1;
    waitpid(child, &status, 0);
    tiptoe_scope_exit(in);
    CHECK(status == 0);
    return calls(unused);
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void *(*run)(void *);
    } modes[] = {{"calls", calls},     {"times", times},     {"faults", faults}, {"waits", waits},
                 {"signals", signals}, {"many", many}, {"forks", forks}};
    if (argc < 4) return 2;
    size_t threads = (size_t)atoi(argv[2]);
    rounds = (unsigned)atoi(argv[3]);
    wait_for_start(argc, argv);
    for (size_t mode = 0; mode < sizeof modes / sizeof *modes; mode++) {
        if (strcmp(modes[mode].name, argv[1]) != 0) continue;
        pthread_t all[64];
        for (size_t i = 0; i < threads; i++) pthread_create(&all[i], NULL, modes[mode].run, (void *)i);
        for (size_t i = 0; i < threads; i++) pthread_join(all[i], NULL);
        puts("done");
        return 0;
    }
    return 2;
}
