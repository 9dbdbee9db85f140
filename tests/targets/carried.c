// cflags: -O1
// carried CALLS: a function whose first instruction reads the flags, unlike compilers' code.
#include "common.h"

int carried(int a);
__asm__(".text\n.globl carried\n.type carried, @function\n.p2align 4\ncarried:\n.cfi_startproc\n"
        "setc %al\nxor %eax, %eax\nlea 1(%rdi), %eax\nret\n.cfi_endproc\n.size carried, . - carried");

PROBED int plain(int a) { KEEP(); return a + 2; }

int main(int argc, char **argv) {
    uint64_t calls = number(argc, argv, 1, 1000);
    for (uint64_t i = 0; i < calls; i++) CHECK(carried((int)i) == (int)i + 1 && plain((int)i) == (int)i + 2);
    expect("carried", calls);
    expect("plain", calls);
    return 0;
}
