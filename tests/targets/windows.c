// cflags: -O1 -fcf-protection=none
// windows [CALLS] [wait]: calls a function whose first three instructions are overwritten by one jump.
#include "common.h"

int window(int);
__asm__(".text\n"
        ".globl window\n"
        ".type window, @function\n.balign 16\n"
        "window: mov %edi, %eax\n" // two bytes
        "        nop\n"
        "        add $1, %eax\n" // three bytes; the jump covers two of them
        "        xor $0x100, %eax\n"
        "        ret\n"
        ".size window, . - window\n.balign 16\n");

int main(int argc, char **argv) {
    uint64_t calls = number(argc, argv, 1, 1000);
    wait_for_start(argc, argv);
    for (uint64_t i = 0; i < calls; i++) CHECK(window((int)i) == (((int)i + 1) ^ 0x100));
    expect("window", calls);
    return 0;
}
