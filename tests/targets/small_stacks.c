// cflags: -O2 -g -pthread -fno-inline
// small_stacks MODE: stores to `total` where the stack has less than a signal's frame left.
#define _GNU_SOURCE
#include <alloca.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "common.h"

enum { LEFT = 2048, ROUNDS = 1000, ALTERNATE = 64 << 10 };

long total;
static ucontext_t caller, callee;
static char *alternate;

PROBED void add(void) { __atomic_fetch_add(&total, 1, __ATOMIC_RELAXED); }

static void adds(void) {
    for (int i = 0; i < ROUNDS; i++) add();
}

static char *guarded(size_t size) {
    char *memory = mmap(NULL, size + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    CHECK(mprotect(memory, 4096, PROT_NONE) == 0);
    return memory + 4096;
}

static void coroutine(void) {
    alternate = use_guarded_stack(ALTERNATE);
    CHECK(getcontext(&callee) == 0);
    callee.uc_stack.ss_sp = guarded(4096);
    callee.uc_stack.ss_size = LEFT;
    callee.uc_link = &caller;
    makecontext(&callee, adds, 0);
    CHECK(swapcontext(&caller, &callee) == 0);
}

static void *nearly_exhausted(void *low) {
    alternate = use_guarded_stack(ALTERNATE);
    char here;
    volatile char *below = alloca(&here - (char *)low - LEFT);
    *below = 1;
    adds();
    return NULL;
}

static void exhausted(void) {
    enum { SIZE = 256 << 10 };
    char *low = guarded(SIZE);
    pthread_attr_t attributes;
    pthread_t thread;
    CHECK(pthread_attr_init(&attributes) == 0);
    CHECK(pthread_attr_setstack(&attributes, low, SIZE) == 0);
    CHECK(pthread_create(&thread, &attributes, nearly_exhausted, low) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

static void handler(int signal) {
    (void)signal;
    char here;
    CHECK(&here >= alternate && &here < alternate + ALTERNATE);
    adds();
}

// The alternate stack must remain the program's, also while a handler runs on it.
static void handled(void) {
    alternate = use_guarded_stack(ALTERNATE);
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    CHECK(raise(SIGUSR1) == 0);
    stack_t stack;
    CHECK(sigaltstack(NULL, &stack) == 0);
    CHECK(stack.ss_sp == alternate && stack.ss_size == ALTERNATE && stack.ss_flags == 0);
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    if (!strcmp(argv[1], "coroutine")) coroutine();
    if (!strcmp(argv[1], "exhausted")) exhausted();
    if (!strcmp(argv[1], "handled")) handled();
    printf("total %ld\n", total);
    return 0;
}
