// cflags: -O2
// ifunc CALLS [wait]: the implementation selected at load time must be counted.
#include "common.h"

static int chosen(int x) { KEEP(); return 2 * x; }
static int rejected(int x) { KEEP(); return -x; }
static int (*resolve(void))(int) { return getenv("TIPTOE_NEVER") ? rejected : chosen; }
int twice(int) __attribute__((ifunc("resolve")));

int main(int argc, char **argv) {
    int calls = (int)number(argc, argv, 1, 1000);
    wait_for_start(argc, argv);
    for (int i = 0; i < calls; i++) CHECK(twice(i) == 2 * i);
    expect("twice", (uint64_t)calls);
    return 0;
}
