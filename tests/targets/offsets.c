// cflags: -O1
// offsets [again]: calls functions whose results a probe inside an instruction would change. With `again` it execs
// itself.
#include "common.h"

int answer(void);
int locked(void);
__asm__(".text\n"
        ".globl answer, locked\n"
        ".type answer, @function\n"
        ".type locked, @function\n"
        "answer: movl $42, %eax\n" // five bytes
        "        nop\n"
        "        ret\n"
        ".size answer, . - answer\n"
        "        .fill 64, 1, 0x90\n" // in no function
        "locked: lock orq $0, (%rsp)\n"
        "        movl $7, %eax\n"
        "        ret\n"
        ".size locked, . - locked\n");

int main(int argc, char **argv) {
    for (int i = 0; i < 100; i++) CHECK(answer() == 42 && locked() == 7);
    expect("answer", 100);
    if (argc > 1) execl("/proc/self/exe", "offsets", NULL);
    return 0;
}
