// cflags: -O1 -fno-stack-protector -fcf-protection=none
// own_storage MODE: runs a probed function on a thread-local block that is not libc's, and checks that nobody wrote there.
//   none    a child without a block
//   child   a child with a block of its own
//   set     this very thread, for a while
// With -DBY_CALL or -DBY_INSTRUCTION it does the last without libc, which can be seen in its file.
#include "common.h"
#include <asm/prctl.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { WORDS = 1 << 16, CALLS = 100 };

// Each word of the block leads to one that leads to what would be counted in.
static uint64_t block[1024], middle[1], counters[WORDS];

PROBED int own(void) { KEEP(); return 7; }

static void call(void) {
    for (int i = 0; i < CALLS; i++)
        if (own() != 7) __builtin_trap();
}

static void check_untouched(void) {
    for (int i = 0; i < 1024; i++) CHECK(block[i] == (uint64_t)middle);
    for (int i = 0; i < WORDS; i++) CHECK(counters[i] == 0);
}

static inline __attribute__((always_inline)) long raw(long number, long first, long second) {
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(first), "S"(second) : "rcx", "r11", "memory");
    return result;
}

static void child(void *storage) {
    int status;
    // glibc's `clone` wants a function and a stack.
    long pid = syscall(SYS_clone, CLONE_SETTLS | SIGCHLD, 0, 0, 0, storage);
    if (!pid) {
        call();
        uint64_t sum = 0;
        for (int i = 0; i < WORDS; i++) sum |= counters[i];
        raw(SYS_exit_group, sum ? 98 : 77, 0);
    }
    CHECK(pid > 0 && wait(&status) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 77);
}

// What is set is a constant only where the file is to tell.
static volatile long back_to = ARCH_SET_FS;

static void set(void *storage) {
    unsigned long before;
    CHECK(syscall(SYS_arch_prctl, ARCH_GET_FS, &before) == 0);
#if defined BY_CALL
    raw(SYS_arch_prctl, ARCH_SET_FS, (long)storage);
    call();
#elif defined BY_INSTRUCTION
    if (getauxval(AT_HWCAP2) & 2) __asm__ volatile("wrfsbase %0" ::"r"(storage) : "memory");
    call();
#else
    if (syscall(SYS_arch_prctl, ARCH_SET_FS, storage) == 0) call();
#endif
    raw(SYS_arch_prctl, back_to, (long)before);
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "";
    middle[0] = (uint64_t)counters;
    for (int i = 0; i < 1024; i++) block[i] = (uint64_t)middle;
    call();
    if (!strcmp(mode, "none")) child(NULL);
    if (!strcmp(mode, "child")) child(block + 512);
    if (!strcmp(mode, "set")) set(block + 512);
    check_untouched();
#if defined BY_CALL || defined BY_INSTRUCTION
    expect("own", 2 * CALLS); // the kernel counts all
#else
    expect("own", CALLS);
#endif
    return 0;
}
