// The program of `tiptoe-dev bench lock`. Each line of stdin is a question; each answer is one line.
//   pair mutex|other|read|write MS   CPU ns of an uncontended lock and unlock
//   wait MS                    CPU ns of a futex wait that returns at once
//   wake MS                    CPU ns of an unlock that wakes no thread
//   floor wait|wake MS         CPU ns that the cheapest hooks would add to such a call
//   convoy THREADS MS          wall ns of a contended lock, a section of 150 ns and an unlock
//   pingpong sem|cond|mutex MS wall ns of a turn of two threads on one CPU that sleep in between
//   armed                      1 if libc's futex calls are patched
#define _GNU_SOURCE
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, other_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static sem_t turns[2];
static pthread_cond_t turned = PTHREAD_COND_INITIALIZER;
static intptr_t turn;
static atomic_int stopped, counting;
static atomic_ullong done;

static double now(clockid_t clock) {
    struct timespec then;
    clock_gettime(clock, &then);
    return then.tv_sec * 1e9 + then.tv_nsec;
}

static void pair_mutex(void) {
    pthread_mutex_lock(&mutex);
    pthread_mutex_unlock(&mutex);
}

static void pair_other(void) {
    pthread_mutex_lock(&other_mutex);
    pthread_mutex_unlock(&other_mutex);
}

static void pair_read(void) {
    pthread_rwlock_rdlock(&rwlock);
    pthread_rwlock_unlock(&rwlock);
}

static void pair_write(void) {
    pthread_rwlock_wrlock(&rwlock);
    pthread_rwlock_unlock(&rwlock);
}

static void wait_at_once(void) {
    static int word;
    syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 1, NULL, NULL, 0);
}

// Sets the mutex's word to 2 (a thread may be waiting), so that the unlock makes the system call.
static void wake_nobody(void) {
    mutex.__data.__lock = 2;
    mutex.__data.__owner = (int)getpid();
    mutex.__data.__nusers = 1;
    pthread_mutex_unlock(&mutex);
}

// The cheapest hooks. The code jumps to a trampoline, which moves the stack pointer below the red zone and calls a
// stub. The stub saves the registers that a function may change, and calls a function, which reads the clock before a
// wait. A second hook runs after a wait.
__asm__(".macro enter name, hook\n"
        "\\name: push %r11; push %r10; push %r9; push %r8; push %rdi; push %rsi; push %rbp; push %rdx; push %rcx; push %rax\n"
        "mov %rsp, %rbp; and $-16, %rsp; call \\hook; mov %rbp, %rsp\n"
        "pop %rax; pop %rcx; pop %rdx; pop %rbp; pop %rsi; pop %rdi; pop %r8; pop %r9; pop %r10; pop %r11; ret $8\n"
        ".endm\n"
        ".macro tell entry\n"
        "lea -128(%rsp), %rsp; push $0; call \\entry; lea 128(%rsp), %rsp\n"
        ".endm\n"
        "reads_clock: rdtsc; ret\n"
        "does_nothing: ret\n"
        ".p2align 6; enter waits, reads_clock\n"
        ".p2align 6; enter passes, does_nothing\n"
        ".p2align 6; futex_bare: xor %r10d, %r10d; mov $202, %eax; syscall; ret\n"
        ".p2align 6; futex_wakes: xor %r10d, %r10d; mov $202, %eax; jmp 1f; 2: syscall; ret\n"
        ".p2align 6; 1: tell passes; jmp 2b\n"
        ".p2align 6; futex_waits: xor %r10d, %r10d; mov $202, %eax; jmp 1f; 2: syscall; jmp 3f; 4: ret\n"
        ".p2align 6; 1: tell waits; jmp 2b\n"
        ".p2align 6; 3: tell passes; jmp 4b\n");

long futex_bare(int *, int, int), futex_wakes(int *, int, int), futex_waits(int *, int, int);
static int nobodys;

static void bare_wait(void) { futex_bare(&nobodys, FUTEX_WAIT_PRIVATE, 1); }
static void bare_wake(void) { futex_bare(&nobodys, FUTEX_WAKE_PRIVATE, 1); }
static void told_wait(void) { futex_waits(&nobodys, FUTEX_WAIT_PRIVATE, 1); }
static void told_wake(void) { futex_wakes(&nobodys, FUTEX_WAKE_PRIVATE, 1); }

static double each(void (*call)(void), double ms) {
    double begun = now(CLOCK_THREAD_CPUTIME_ID), took = 0;
    uint64_t calls = 0;
    while (took < ms * 1e6) {
        for (int i = 0; i < 1000; i++) call();
        calls += 1000;
        took = now(CLOCK_THREAD_CPUTIME_ID) - begun;
    }
    return took / calls;
}

// Returns how much longer `call` takes than `than`, measured in turns, because the load of other programs changes.
static double more(void (*call)(void), void (*than)(void), double ms) {
    double sum = 0;
    for (int i = 0; i < 16; i++) sum += each(call, ms / 16) - each(than, ms / 16);
    return sum / 16;
}

static int steps;

static void section(void) {
    for (volatile int i = 0; i < steps; i++) {}
}

static void calibrate(double ns) {
    steps = 1000;
    double took = each(section, 1);
    for (int i = 0; i < 4; i++) {
        double again = each(section, 1);
        if (again < took) took = again;
    }
    steps = ns / took * steps;
}

static void *contend(void *none) {
    uint64_t turns_taken = 0;
    while (!atomic_load_explicit(&stopped, memory_order_relaxed)) {
        pthread_mutex_lock(&mutex);
        section();
        pthread_mutex_unlock(&mutex);
        turns_taken += (uint64_t)atomic_load_explicit(&counting, memory_order_relaxed);
    }
    atomic_fetch_add(&done, turns_taken);
    return none;
}

static void on_one_cpu(void) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    sched_setaffinity(0, sizeof one, &one);
}

static void *take_turns_cond(void *me) {
    on_one_cpu();
    intptr_t mine = (intptr_t)me;
    uint64_t taken = 0;
    pthread_mutex_lock(&mutex);
    while (!atomic_load(&stopped)) {
        while (turn != mine && !atomic_load(&stopped)) pthread_cond_wait(&turned, &mutex);
        taken += (uint64_t)atomic_load_explicit(&counting, memory_order_relaxed);
        turn = !mine;
        pthread_cond_signal(&turned);
    }
    pthread_mutex_unlock(&mutex);
    atomic_fetch_add(&done, taken);
    return NULL;
}

static void *take_turns_sem(void *me) {
    on_one_cpu();
    intptr_t mine = (intptr_t)me;
    uint64_t taken = 0;
    for (;;) {
        sem_wait(&turns[mine]);
        int over = atomic_load(&stopped);
        taken += (uint64_t)atomic_load_explicit(&counting, memory_order_relaxed);
        sem_post(&turns[!mine]);
        if (over) break;
    }
    atomic_fetch_add(&done, taken);
    return NULL;
}

// While a thread holds the mutex, it yields the CPU to the other thread, which then waits for the mutex.
static void *take_turns_mutex(void *none) {
    on_one_cpu();
    uint64_t taken = 0;
    while (!atomic_load(&stopped)) {
        pthread_mutex_lock(&mutex);
        taken += (uint64_t)atomic_load_explicit(&counting, memory_order_relaxed);
        sched_yield();
        pthread_mutex_unlock(&mutex);
        sched_yield();
    }
    atomic_fetch_add(&done, taken);
    return none;
}

// The first third is not counted, because the agent must measure the new threads' rates of waits.
static double together(void *(*run)(void *), int threads, int ms) {
    pthread_t all[64];
    atomic_store(&stopped, 0);
    atomic_store(&counting, 0);
    atomic_store(&done, 0);
    sem_init(&turns[0], 0, 1);
    sem_init(&turns[1], 0, 0);
    for (int i = 0; i < threads; i++) pthread_create(&all[i], NULL, run, (void *)(intptr_t)i);
    usleep(ms * 1000 / 3);
    double begun = now(CLOCK_MONOTONIC);
    atomic_store(&counting, 1);
    usleep(ms * 1000 * 2 / 3);
    atomic_store(&stopped, 1);
    for (int i = 0; i < threads; i++) pthread_join(all[i], NULL);
    return (now(CLOCK_MONOTONIC) - begun) / atomic_load(&done);
}

static void *ends(void *none) { return none; }

static const unsigned char number[] = {0xb8, 0xca, 0, 0, 0};

int main(void) {
    char line[128], what[16];
    int a, b;
    unsigned char *site = memmem((void *)sem_post, 256, number, sizeof number);
    setvbuf(stdout, NULL, _IOLBF, 0);
    calibrate(150);
    // In a process that never had a second thread, libc makes no system call to wake waiters.
    pthread_t second;
    if (pthread_create(&second, NULL, ends, NULL) == 0) pthread_join(second, NULL);
    while (fgets(line, sizeof line, stdin) != NULL) {
        if (sscanf(line, "pair %15s %d", what, &a) == 2) {
            void (*call)(void) = *what == 'm'   ? pair_mutex
                                 : *what == 'o' ? pair_other
                                 : *what == 'r' ? pair_read : pair_write;
            printf("%.3f\n", each(call, a));
        } else if (sscanf(line, "wait %d", &a) == 1) {
            printf("%.3f\n", each(wait_at_once, a));
        } else if (sscanf(line, "wake %d", &a) == 1) {
            printf("%.3f\n", each(wake_nobody, a));
        } else if (sscanf(line, "floor %15s %d", what, &a) == 2) {
            printf("%.3f\n", strcmp(what, "wait") == 0 ? more(told_wait, bare_wait, a) : more(told_wake, bare_wake, a));
        } else if (sscanf(line, "convoy %d %d", &a, &b) == 2 && a <= 64) {
            printf("%.3f\n", together(contend, a, b));
        } else if (sscanf(line, "pingpong %15s %d", what, &a) == 2) {
            void *(*run)(void *) = *what == 's' ? take_turns_sem : *what == 'm' ? take_turns_mutex : take_turns_cond;
            printf("%.3f\n", together(run, 2, a));
        } else if (strcmp(line, "armed\n") == 0) {
            printf("%d\n", site == NULL || memcmp(site, number, sizeof number) != 0);
        } else {
            printf("what?\n");
        }
    }
    return 0;
}
