// cflags: -O2 -Wl,-z,noexecstack
// replaced copy|other [wait]: replaces the page of a probed function by the same code or its own trap.
#include "common.h"
#include <signal.h>
#include <sys/mman.h>

__asm__(".section .text.page,\"ax\",@progbits\n"
        ".p2align 12\n"
        ".globl tiny\n.type tiny,@function\n"
        "tiny: ret\n"
        ".size tiny, .-tiny\n"
        "mov %rdi, %rax\nret\n"
        ".p2align 12\n"
        ".byte 0\n"
        ".text\n");
void tiny(void);

static volatile int own;
static void trapped(int signal) { own += signal == SIGTRAP; }

int main(int argc, char **argv) {
    const size_t page = 4096;
    char *place = (char *)&tiny;
    CHECK(argc > 1);
    CHECK(signal(SIGTRAP, trapped) != SIG_ERR);
    wait_for_start(argc, argv);
    for (int i = 0; i < 1000; i++) tiny();
    char *spare = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(spare != MAP_FAILED);
    int copy = strcmp(argv[1], "copy") == 0;
    memcpy(spare, copy ? place : "\xcc\xc3", copy ? page : 2);
    CHECK(mprotect(spare, page, PROT_READ | PROT_EXEC) == 0);
    CHECK(mremap(spare, page, page, MREMAP_MAYMOVE | MREMAP_FIXED, place) == place);
    for (int i = 0; i < 1000; i++) tiny();
    CHECK(own == (copy ? 0 : 1000));
    expect("tiny", copy ? 2000 : 1000);
    return 0;
}
