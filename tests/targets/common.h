#pragma once
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

// Keeps a function separate, and its calls unmerged.
#define PROBED __attribute__((noinline, noclone, used))
#define KEEP() __asm__ volatile("")

#define CHECK(condition)                                                                      \
    do {                                                                                      \
        if (!(condition)) {                                                                   \
            fprintf(stderr, "%s:%d: wrong: %s (errno %d)\n", __FILE__, __LINE__, #condition, errno); \
            _exit(99);                                                                        \
        }                                                                                     \
    } while (0)

static inline void expect(const char *name, uint64_t count) {
    printf("expect %s %llu\n", name, (unsigned long long)count);
    fflush(stdout);
}

// The call is inlined, because tiptoe hooks only system calls whose number is loaded as a constant right before.
static inline __attribute__((always_inline)) long own_call(long number, long first, long second, long third, long fourth, long fifth) {
    register long r10 __asm__("r10") = fourth;
    register long r8 __asm__("r8") = fifth;
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(first), "S"(second), "d"(third), "r"(r10), "r"(r8) : "rcx", "r11", "memory");
    return result;
}

// With `wait` as last argument, prints `ready` and waits for a line.
static inline void wait_for_start(int argc, char **argv) {
    char line[64];
    if (argc < 2 || strcmp(argv[argc - 1], "wait") != 0) return;
    puts("ready");
    fflush(stdout);
    CHECK(read(0, line, sizeof line) > 0);
}

static inline void die_with_parent(void) {
    pid_t parent = getppid();
    CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
    if (getppid() != parent) _exit(1);
}

// Waits until a thread sleeps in this system call. With `object`, the call's first argument must be within `size`
// bytes from `object`. Allocates nothing.
static inline void until_asleep(pid_t thread, long call, const void *object, size_t size) {
    char path[64], text[96];
    snprintf(path, sizeof path, "/proc/self/task/%d/syscall", (int)thread);
    for (;; usleep(1000)) {
        int file = open(path, O_RDONLY);
        ssize_t length = file < 0 ? -1 : read(file, text, sizeof text - 1);
        CHECK(length > 0 && close(file) == 0);
        text[length] = 0;
        char *rest;
        long number = strtol(text, &rest, 10);
        if (rest == text || number != call) continue;
        uintptr_t at = strtoull(rest, NULL, 16), first = (uintptr_t)object;
        if (!object || (at >= first && at < first + size)) return;
    }
}

static inline uint64_t number(int argc, char **argv, int index, uint64_t otherwise) {
    if (index >= argc || strcmp(argv[index], "wait") == 0) return otherwise;
    return strtoull(argv[index], NULL, 10);
}

// glibc may crash if a thread ends while it is being detached, so the thread is created detached.
static inline void start_detached(void *(*run)(void *), void *arg) {
    pthread_attr_t attr;
    pthread_t id;
    CHECK(pthread_attr_init(&attr) == 0);
    CHECK(pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED) == 0);
    CHECK(pthread_create(&id, &attr, run, arg) == 0);
    pthread_attr_destroy(&attr);
}

// Returns the size of a signal frame: 0.5 to 11 KB.
static inline size_t signal_frame(void) {
    enum { NUMBER = 51 };
    size_t frame = getauxval(NUMBER);
    return frame ? frame : MINSIGSTKSZ;
}

// Makes a stack above a page without access. Returns its lowest byte.
static inline char *use_guarded_stack(size_t size) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (size + page - 1) / page * page;
    char *memory = (char *)mmap(NULL, page + whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED && mprotect(memory, page, PROT_NONE) == 0);
    stack_t stack = {.ss_sp = memory + page, .ss_flags = 0, .ss_size = size};
    CHECK(sigaltstack(&stack, NULL) == 0);
    return memory + page;
}

// Four handlers may nest. Each needs a signal frame, and as much for lazy binding, which saves the CPU's state.
static inline void use_alternate_stack(void) { use_guarded_stack(8 * signal_frame() + 32768); }
