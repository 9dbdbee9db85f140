// cflags: -O2 -pthread -rdynamic -ldl
// costly CALLS MODE [LIBRARY] [wait]: calls functions in which only a trap fits. MODE: `threads` (two later threads
// also call one of them), `many` (thirty functions), `reloaded` (a function of LIBRARY, loaded at two addresses).
#include "common.h"
#include <dlfcn.h>
#include <pthread.h>

#define COSTLY(name)                                                                            \
    int name(int rounds);                                                                       \
    __asm__(".text\n.globl " #name "\n.type " #name ",@function\n" #name ": .cfi_startproc\n"     \
            " push %rbx\n.cfi_adjust_cfa_offset 8\n1: dec %edi\n jg 1b\n mov $7,%eax\n"            \
            " pop %rbx\n.cfi_adjust_cfa_offset -8\n ret\n.cfi_endproc\n"                           \
            ".size " #name ", . - " #name "\n");
#define TEN(make, tens) \
    make(tens##0) make(tens##1) make(tens##2) make(tens##3) make(tens##4) \
    make(tens##5) make(tens##6) make(tens##7) make(tens##8) make(tens##9)
#define THIRTY(make) TEN(make, many_0) TEN(make, many_1) TEN(make, many_2)

COSTLY(costly)
THIRTY(COSTLY)

static uint64_t calls;

static void call(int (*function)(int)) {
    for (uint64_t i = 0; i < calls; i++) CHECK(function(1) == 7);
}

static void *work(void *unused) {
    (void)unused;
    call(costly);
    return NULL;
}

static uintptr_t call_in(void *handle) {
    CHECK(handle != NULL);
    void *function = dlsym(handle, "plugin_trap");
    CHECK(function != NULL);
    call((int (*)(int))function);
    CHECK(dlclose(handle) == 0);
    return (uintptr_t)function & -(uintptr_t)4096;
}

int main(int argc, char **argv) {
    pthread_t ids[2];
    calls = number(argc, argv, 1, 1);
    CHECK(argc > 2);
    if (strcmp(argv[2], "many") == 0) {
#define CALL(name) call(name); expect(#name, calls);
        THIRTY(CALL)
        return 0;
    }
    if (strcmp(argv[2], "reloaded") == 0) {
        CHECK(argc > 3);
        void *handle = dlopen(argv[3], RTLD_NOW);
        wait_for_start(argc, argv);
        uintptr_t page = call_in(handle);
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
        CHECK(mmap((void *)page, 4096, PROT_NONE, flags, -1, 0) == (void *)page);
        CHECK(call_in(dlopen(argv[3], RTLD_NOW)) != page);
        expect("plugin_trap", 2 * calls);
        return 0;
    }
    for (int i = 0; i < 2; i++) CHECK(pthread_create(&ids[i], NULL, work, NULL) == 0);
    work(NULL);
    for (int i = 0; i < 2; i++) CHECK(pthread_join(ids[i], NULL) == 0);
    expect("costly", 3 * calls);
    return 0;
}
