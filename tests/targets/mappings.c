// cflags: -O2 -pthread
// mappings ROUNDS [wait]: three threads map, split, move and unmap code while a fourth hits traps. Prints `settled`
// when no more mappings change.
#include "common.h"
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

enum { MAPPERS = 3, PAGES = 8 };
static const size_t page = 4096;
static uint64_t rounds;
static atomic_int mapping = MAPPERS;
static uint64_t traps;

// Only a trap byte fits, because code follows.
__asm__(".text\n.p2align 4\n.globl tiny\n.type tiny,@function\n"
        "tiny: mov %edi, %eax\nret\n"
        ".size tiny, .-tiny\n"
        "mov %rdi, %rcx\nmov %rcx, %rdx\nmov %rdx, %rsi\nret\n");
int tiny(int a);

static int file(uint64_t round) {
    if (round % 16) return open("/proc/self/exe", O_RDONLY);
    int fresh = memfd_create("code", 0);
    CHECK(fresh >= 0 && ftruncate(fresh, PAGES * page) == 0);
    return fresh;
}

static char *code(uint64_t round, char *at, size_t pages) {
    int from = file(round);
    CHECK(from >= 0);
    int flags = MAP_PRIVATE | (at ? MAP_FIXED : 0);
    char *mapped = mmap(at, pages * page, PROT_READ | PROT_EXEC, flags, from, 0);
    CHECK(mapped != MAP_FAILED && close(from) == 0);
    return mapped;
}

static void *map(void *unused) {
    (void)unused;
    for (uint64_t round = 0; round < rounds; round++) {
        char *home = mmap(NULL, 4 * PAGES * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(home != MAP_FAILED);
        char *other = home + 2 * PAGES * page;
        code(round, home, PAGES);
        CHECK(mprotect(home + page, page, PROT_READ) == 0);
        CHECK(munmap(home + 3 * page, page) == 0);
        CHECK(mremap(home + 4 * page, 2 * page, 2 * page, MREMAP_MAYMOVE | MREMAP_FIXED, other) == other);
        CHECK(mprotect(home + page, page, PROT_READ | PROT_EXEC) == 0);
        CHECK(mmap(other, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == other);
        char *loose = code(round, NULL, PAGES);
        CHECK(mremap(loose, PAGES * page, 2 * page, 0) == loose);
        CHECK(munmap(loose, 2 * page) == 0);
        if (round % 10) CHECK(munmap(home, 4 * PAGES * page) == 0);
        usleep(3000);
    }
    mapping--;
    return NULL;
}

static void *trap(void *unused) {
    (void)unused;
    while (mapping) {
        for (int i = 0; i < 50; i++, traps++) CHECK(tiny((int)traps) == (int)traps);
        usleep(1000);
    }
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t threads[MAPPERS + 1];
    char line[64];
    rounds = number(argc, argv, 1, 100);
    wait_for_start(argc, argv);
    for (int i = 0; i <= MAPPERS; i++)
        CHECK(pthread_create(&threads[i], NULL, i < MAPPERS ? map : trap, NULL) == 0);
    for (int i = 0; i <= MAPPERS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    expect("tiny", traps);
    puts("settled");
    fflush(stdout);
    while (read(0, line, sizeof line) > 0) {}
    return 0;
}
