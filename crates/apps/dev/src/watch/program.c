// The program of `tiptoe-dev bench watch`. Each line of stdin is a question; each answer is one line.
//   address               the address of four words; only the first word is written
//   hits N                CPU ns of a store to the first word, the mean of N
//   stops N               wall ns of a store to the first word, the mean of N
//   many THREADS N        wall ns of a store to the first word while THREADS threads store at once, each on its own CPU
//   own ring|chain|sigtrap|none   the program watches the first word itself; 0, or the error number
//   seen                  the count of the event by which the program watches
//   hot MS                CPU ns of a round of a loop that stores to the first word all the time
//   switch MS             CPU ns of a turn of two threads on one CPU that sleep in between
//   threads N             starts N threads that sleep; N
//   gap MS                the longest time in ns that this thread did not run, without waits for a CPU
//   trace PID ADDRESS     stops a process's threads, lets each watch four words, continues all; ms, or -1
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>

#include "pinned.h"
#include "still.h"

static volatile uint64_t watched[4] __attribute__((aligned(64)));
static uint64_t stored;

// A function, so that a hit has a caller and the stored value is in a register.
__attribute__((noinline, noclone)) static void store(uint64_t value) { watched[0] = value; }

static int own = -1;
static struct perf_event_mmap_page *ring;
enum { PAGES = 256, PAGE = 4096 };
static atomic_ulong traps;

static void trapped(int signal) {
    (void)signal;
    atomic_fetch_add_explicit(&traps, 1, memory_order_relaxed);
}

static void let_go(void) {
    if (ring != NULL) munmap(ring, (PAGES + 1) * PAGE);
    if (own >= 0) close(own);
    ring = NULL;
    own = -1;
}

static int watch_own(const char *how) {
    let_go();
    if (strcmp(how, "none") == 0) return 0;
    struct perf_event_attr attr = {
        .type = PERF_TYPE_BREAKPOINT, .size = sizeof attr, .bp_type = 2, .bp_addr = (uintptr_t)watched, .bp_len = 8,
        .sample_period = 1, .exclude_kernel = 1, .exclude_hv = 1,
    };
    int is_trap = strcmp(how, "sigtrap") == 0;
    if (is_trap) {
#ifdef PERF_ATTR_SIZE_VER7
        signal(SIGTRAP, trapped);
        attr.sigtrap = attr.remove_on_exec = 1;
#else
        return EOPNOTSUPP;
#endif
    } else {
        attr.sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_ADDR;
        attr.exclude_callchain_kernel = 1;
        attr.wakeup_events = 1 << 20;
        if (strcmp(how, "chain") == 0) attr.sample_type |= PERF_SAMPLE_CALLCHAIN;
    }
    own = (int)syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
    if (own < 0) return errno;
    if (is_trap) return 0;
    void *mapped = mmap(NULL, (PAGES + 1) * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, own, 0);
    if (mapped == MAP_FAILED) return errno;
    ring = mapped;
    return 0;
}

static double seen(void) {
    uint64_t count = 0;
    if (own < 0 || read(own, &count, sizeof count) != sizeof count) return -1;
    return count;
}

static double hits(long count, clockid_t clock) {
    // Empties the ring, as a fast reader would.
    if (ring != NULL) ring->data_tail = ring->data_head;
    double from = seconds(clock);
    for (long i = 0; i < count; i++) store(++stored);
    return (seconds(clock) - from) * 1e9 / count;
}

static pthread_barrier_t together;
static long stores_each;
static double took[64];

// Each thread measures itself, because the main thread may get a CPU only after all stores.
static void *stores(void *me) {
    pin_to_cpu((int)(intptr_t)me);
    pthread_barrier_wait(&together);
    double from = seconds(CLOCK_MONOTONIC);
    for (long i = 0; i < stores_each; i++) store(i);
    took[(intptr_t)me] = seconds(CLOCK_MONOTONIC) - from;
    return NULL;
}

static double many(int count, long each) {
    pthread_t threads[64];
    double sum = 0;
    if (count > 64 || pthread_barrier_init(&together, NULL, count) != 0) return -1;
    stores_each = each;
    for (intptr_t i = 0; i < count; i++)
        if (pthread_create(&threads[i], NULL, stores, (void *)i) != 0) exit(1);
    for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < count; i++) sum += took[i];
    return sum / count * 1e9 / each;
}

static double hot(int ms) {
    double from = seconds(CLOCK_THREAD_CPUTIME_ID), spent;
    uint64_t rounds = 0, value = 1;
    do {
        for (int i = 0; i < 1 << 14; i++) {
            for (int k = 0; k < 24; k++) value = value * 6364136223846793005 + 1442695040888963407;
            watched[0] = value;
        }
        rounds += 1 << 14;
        spent = seconds(CLOCK_THREAD_CPUTIME_ID) - from;
    } while (spent < ms / 1e3);
    return spent * 1e9 / rounds;
}

// Two threads that take turns, and sleep until a question starts them.
static sem_t begun[2], turns[2], ended;
static atomic_int is_over;
static atomic_ullong taken;
static int cpu;

static void *take_turns(void *me) {
    intptr_t mine = (intptr_t)me;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
    for (;;) {
        while (sem_wait(&begun[mine]) != 0) {}
        uint64_t count = 0;
        for (int over = 0; !over; count++) {
            while (sem_wait(&turns[mine]) != 0) {}
            over = atomic_load(&is_over);
            sem_post(&turns[!mine]);
        }
        atomic_fetch_add(&taken, count);
        sem_post(&ended);
    }
    return NULL;
}

static double switches(int ms) {
    static int is_there;
    if (!is_there) {
        cpu = sched_getcpu();
        for (intptr_t i = 0; i < 2; i++) {
            pthread_t thread;
            sem_init(&begun[i], 0, 0);
            if (pthread_create(&thread, NULL, take_turns, (void *)i) != 0) exit(1);
        }
        sem_init(&ended, 0, 0);
        is_there = 1;
    }
    atomic_store(&is_over, 0);
    atomic_store(&taken, 0);
    for (int i = 0; i < 2; i++) sem_init(&turns[i], 0, i == 0);
    // The process's CPU time is the time of the turns, because the two threads run one at a time.
    double from = seconds(CLOCK_PROCESS_CPUTIME_ID);
    for (int i = 0; i < 2; i++) sem_post(&begun[i]);
    usleep(ms * 1000);
    atomic_store(&is_over, 1);
    for (int i = 0; i < 2; i++) while (sem_wait(&ended) != 0) {}
    return (seconds(CLOCK_PROCESS_CPUTIME_ID) - from) * 1e9 / atomic_load(&taken);
}

static atomic_int there;

static void *sleeps(void *none) {
    atomic_fetch_add(&there, 1);
    for (;;) pause();
    return none;
}

static int threads(int count) {
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 * 1024);
    for (int i = 0; i < count; i++) {
        pthread_t thread;
        if (pthread_create(&thread, &small, sleeps, NULL) != 0) return i;
    }
    while (atomic_load(&there) < count) usleep(100);
    return count;
}

static double trace(int pid, unsigned long address) {
    static int tids[1 << 16];
    const unsigned long words_written = 0x99990055; // DR7: enables all four, for writes of eight bytes
    char path[64];
    int count = 0, status;
    double from = seconds(CLOCK_MONOTONIC);
    snprintf(path, sizeof path, "/proc/%d/task", pid);
    DIR *tasks = opendir(path);
    if (tasks == NULL) return -1;
    for (struct dirent *task; (task = readdir(tasks)) != NULL && count < 1 << 16;)
        if (*task->d_name != '.') tids[count++] = atoi(task->d_name);
    closedir(tasks);
    for (int i = 0; i < count; i++) if (ptrace(PTRACE_SEIZE, tids[i], 0, 0) != 0) return -1;
    for (int i = 0; i < count; i++) if (ptrace(PTRACE_INTERRUPT, tids[i], 0, 0) != 0) return -1;
    for (int i = 0; i < count; i++) if (waitpid(tids[i], &status, __WALL) != tids[i]) return -1;
    for (int i = 0; i < count; i++) {
        size_t debug = offsetof(struct user, u_debugreg);
        for (int k = 0; k < 4; k++)
            if (ptrace(PTRACE_POKEUSER, tids[i], debug + 8 * k, address + 8 * k) != 0) return -1;
        if (ptrace(PTRACE_POKEUSER, tids[i], debug + 8 * 7, words_written) != 0) return -1;
    }
    for (int i = 0; i < count; i++) if (ptrace(PTRACE_CONT, tids[i], 0, 0) != 0) return -1;
    return (seconds(CLOCK_MONOTONIC) - from) * 1e3;
}

int main(void) {
    char line[128], what[16];
    int a;
    unsigned long address;
    setvbuf(stdout, NULL, _IOLBF, 0);
    while (fgets(line, sizeof line, stdin) != NULL) {
        if (strcmp(line, "address\n") == 0) printf("%lu\n", (unsigned long)watched);
        else if (sscanf(line, "hits %d", &a) == 1 && a > 0) printf("%.3f\n", hits(a, CLOCK_THREAD_CPUTIME_ID));
        else if (sscanf(line, "stops %d", &a) == 1 && a > 0) printf("%.3f\n", hits(a, CLOCK_MONOTONIC));
        else if (sscanf(line, "many %d %lu", &a, &address) == 2 && a > 0) printf("%.3f\n", many(a, (long)address));
        else if (sscanf(line, "own %15s", what) == 1) printf("%d\n", watch_own(what));
        else if (strcmp(line, "seen\n") == 0) printf("%.0f\n", seen());
        else if (sscanf(line, "hot %d", &a) == 1) printf("%.4f\n", hot(a));
        else if (sscanf(line, "switch %d", &a) == 1) printf("%.3f\n", switches(a));
        else if (sscanf(line, "threads %d", &a) == 1) printf("%d\n", threads(a));
        else if (sscanf(line, "gap %d", &a) == 1) printf("%.0f\n", gap(a / 1e3));
        else if (sscanf(line, "trace %d %lu", &a, &address) == 2) printf("%.3f\n", trace(a, address));
        else printf("what?\n");
    }
    return 0;
}
