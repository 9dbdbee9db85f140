// cflags: -O2
// storm CALLS [wait]: calls a function that is too short for a jump.
#include "common.h"

PROBED int tiny(int a) { KEEP(); return a; }

int main(int argc, char **argv) {
    uint64_t calls = number(argc, argv, 1, 1000);
    wait_for_start(argc, argv);
    for (uint64_t i = 0; i < calls; i++) CHECK(tiny((int)i) == (int)i);
    expect("tiny", calls);
    return 0;
}
