// cflags: -O1 -fno-stack-protector -fcf-protection=none
// own_storage MODE: calls a probed function on a thread-local block that is not libc's, which must stay unwritten.
//   none    a child without a block
//   child   a child with its own block
//   set     this thread has its own block for a while
//   inline  the same, by inline system calls
//   written the same, by code written at run time; the block leads trampolines (generated code) to a null pointer
//   thread  a new thread with its own block
#include "common.h"
#include <asm/prctl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { WORDS = 1 << 16, CALLS = 100 };

// Each word points to a pointer to the words in which a trampoline would count.
static uint64_t block[1024], middle[1], counters[WORDS];

PROBED int own(int x) { KEEP(); return x * 3 + 7; }

static void call(void) {
    for (int i = 0; i < CALLS; i++)
        if (own(i) != i * 3 + 7) __builtin_trap();
}

static void check_untouched(void) {
    for (int i = 0; i < 1024; i++) CHECK(block[i] == (uint64_t)middle);
    for (int i = 0; i < WORDS; i++) CHECK(counters[i] == 0);
}

static __attribute__((noinline)) void child(void *storage) {
    int status;
    // glibc's `clone` requires a function and a stack.
    long pid = syscall(SYS_clone, CLONE_SETTLS | SIGCHLD, 0, 0, 0, storage);
    if (!pid) {
        call();
        uint64_t sum = 0;
        for (int i = 0; i < WORDS; i++) sum |= counters[i];
        own_call(SYS_exit_group, sum ? 98 : 77, 0, 0, 0, 0);
    }
    CHECK(pid > 0 && wait(&status) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 77);
}

static __attribute__((noinline)) void set(void *storage) {
    unsigned long before;
    CHECK(syscall(SYS_arch_prctl, ARCH_GET_FS, &before) == 0);
    if (syscall(SYS_arch_prctl, ARCH_SET_FS, storage) == 0) call();
    own_call(SYS_arch_prctl, ARCH_SET_FS, (long)before, 0, 0, 0);
}

static __attribute__((noinline)) void set_inline(void *storage) {
    unsigned long before;
    CHECK(own_call(SYS_arch_prctl, ARCH_GET_FS, (long)&before, 0, 0, 0) == 0);
    if (own_call(SYS_arch_prctl, ARCH_SET_FS, (long)storage, 0, 0, 0) == 0) call();
    own_call(SYS_arch_prctl, ARCH_SET_FS, (long)before, 0, 0, 0);
}

static void set_by_written_code(void *storage) {
    // mov $SYS_arch_prctl,%eax; syscall; ret
    static const uint8_t bytes[] = {0xb8, SYS_arch_prctl, 0, 0, 0, 0x0f, 0x05, 0xc3};
    void *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(code != MAP_FAILED);
    memcpy(code, bytes, sizeof bytes);
    long (*arch_prctl)(long, unsigned long) = (long (*)(long, unsigned long))code;
    unsigned long before;
    CHECK(arch_prctl(ARCH_GET_FS, (unsigned long)&before) == 0);
    middle[0] = 0;
    if (arch_prctl(ARCH_SET_FS, (unsigned long)storage) == 0) call();
    arch_prctl(ARCH_SET_FS, before);
}

static volatile int started, ended;

static int run(void *unused) {
    (void)unused;
    while (!started) own_call(SYS_sched_yield, 0, 0, 0, 0, 0);
    call();
    ended = 1;
    own_call(SYS_exit, 0, 0, 0, 0, 0);
    return 0;
}

static __attribute__((noinline)) void thread(int argc, char **argv) {
    static char stack[1 << 16] __attribute__((aligned(16)));
    int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_SETTLS;
    CHECK(clone(run, stack + sizeof stack, flags, NULL, NULL, block + 512) > 0);
    wait_for_start(argc, argv);
    started = 1;
    while (!ended) sched_yield();
    check_untouched();
    expect("own", CALLS);
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "";
    middle[0] = (uint64_t)counters;
    for (int i = 0; i < 1024; i++) block[i] = (uint64_t)middle;
    if (!strcmp(mode, "thread")) return thread(argc, argv), 0;
    call();
    if (!strcmp(mode, "none")) child(NULL);
    if (!strcmp(mode, "child")) child(block + 512);
    if (!strcmp(mode, "set")) set(block + 512);
    if (!strcmp(mode, "inline")) set_inline(block + 512);
    if (!strcmp(mode, "written")) set_by_written_code(block + 512);
    check_untouched();
    // In the other modes the trace ends before the later calls.
    expect("own", strcmp(mode, "written") ? CALLS : 2 * CALLS);
    return 0;
}
