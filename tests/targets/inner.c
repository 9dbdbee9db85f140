// inner CALLS [wait]: calls a function's second instruction, where a thread resumes if it was interrupted before
// patching.
#include "common.h"

__asm__(".globl inner\n.type inner, @function\n.balign 16\ninner:\n"
        "  .byte 0x89, 0xf8\n"  // mov %edi,%eax
        "  .byte 0x01, 0xf0\n"  // add %esi,%eax
        "  ret\n  nop\n  nop\n  nop\n.size inner, . - inner\n.balign 16\n");
extern const char inner[];

int main(int argc, char **argv) {
    uint64_t calls = number(argc, argv, 1, 1000);
    wait_for_start(argc, argv);
    for (uint64_t i = 0; i < calls; i++) {
        int sum = (int)i;
        // The call would overwrite the red zone.
        __asm__ volatile("lea -128(%%rsp), %%rsp\n call *%2\n lea 128(%%rsp), %%rsp"
                         : "+a"(sum) : "S"(7), "r"(inner + 2) : "cc", "memory");
        CHECK(sum == (int)i + 7);
    }
    expect("inner", 0);
    return 0;
}
