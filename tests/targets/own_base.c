// cflags: -O1 -fno-stack-protector -fcf-protection=none
// own_base: calls a probed function while `wrfsbase` has set another thread-local block.
#include "common.h"
#include <sys/auxv.h>

enum { WORDS = 1024, CALLS = 100, FSGSBASE = 2 };

static uint64_t block[WORDS];

PROBED int own(int x) { KEEP(); return x * 3 + 7; }

static void call(void) {
    for (int i = 0; i < CALLS; i++)
        if (own(i) != i * 3 + 7) __builtin_trap();
}

int main(void) {
    call();
    uint64_t before, *own_block = block + WORDS / 2;
    __asm__("mov %%fs:0, %0" : "=r"(before));
    if (getauxval(AT_HWCAP2) & FSGSBASE) {
        __asm__ volatile("wrfsbase %0" ::"r"(own_block) : "memory");
        call();
        __asm__ volatile("wrfsbase %0" ::"r"(before) : "memory");
    } else {
        call();
    }
    for (int i = 0; i < WORDS; i++) CHECK(block[i] == 0);
    expect("own", 2 * CALLS);
    return 0;
}
