// cflags: -O2 -rdynamic -ldl
// reused LIBRARY ROUNDS: unloads a library, runs into traps of its own at the library's address, and loads the library
// again.
#include "common.h"
#include <dlfcn.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>

enum { PAGE = 4096, HEADS = 12 };
static uint64_t opened, caught;
static sigjmp_buf back;

void report_call(const char *name) { opened += strcmp(name, "loaded_work") == 0; }

static void on_trap(int signal) {
    CHECK(signal == SIGTRAP);
    caught++;
    siglongjmp(back, 1);
}

static void run(unsigned char *code) {
    if (sigsetjmp(back, 1) == 0) ((void (*)(void))code)();
}

int main(int argc, char **argv) {
    uint64_t rounds = number(argc, argv, 2, 1);
    CHECK(argc > 1 && signal(SIGTRAP, on_trap) != SIG_ERR);
    for (uint64_t i = 0; i < rounds; i++) {
        void *handle = dlopen(argv[1], RTLD_NOW);
        CHECK(handle != NULL);
        int (*loaded_work)(int) = (int (*)(int))dlsym(handle, "loaded_work");
        CHECK(loaded_work(1) == 4 && dlclose(handle) == 0);
        unsigned char *entry = (unsigned char *)loaded_work;
        unsigned char *page = (unsigned char *)((uintptr_t)entry & -(uintptr_t)PAGE);
        int protection = PROT_READ | PROT_WRITE | PROT_EXEC;
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
        CHECK(mmap(page, 2 * PAGE, protection, flags, -1, 0) == page);
        memset(page, 0xcc, 2 * PAGE);
        for (int head = 0; head < HEADS; head++) run(entry + head);
        CHECK(caught == (i + 1) * HEADS);
        for (int at = 0; at < 2 * PAGE; at++) CHECK(page[at] == 0xcc);
        if (i % 2) CHECK(munmap(page, 2 * PAGE) == 0);
    }
    expect("loaded_work", opened);
    return 0;
}
