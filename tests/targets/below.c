// cflags: -O2
// below: waits for lines in the function `waits`. Words on its stack look like return addresses, to mislead an unwinder
// that guesses.
#include "common.h"

PROBED int waits(void) {
    char line[64];
    ssize_t got = read(0, line, sizeof line);
    return got > 0;
}

int main(void) {
    volatile uintptr_t words[4096];
    for (int i = 0; i < 4096; i++) words[i] = (uintptr_t)malloc + (uintptr_t)i;
    puts("ready");
    fflush(stdout);
    uint64_t calls = 1;
    for (; waits(); calls++) {
        puts("and waits again");
        fflush(stdout);
    }
    CHECK(words[7] == (uintptr_t)malloc + 7);
    expect("waits", calls);
}
