// cflags: -O2
// exec CALLS [wait]: calls `called`, then becomes `exec again`, whose calls are not traced.
#include "common.h"

PROBED int called(int x) { KEEP(); return x + 1; }

int main(int argc, char **argv) {
    int is_second = argc > 1 && !strcmp(argv[1], "again");
    int calls = is_second ? 500 : (int)number(argc, argv, 1, 1000);
    wait_for_start(argc, argv);
    for (int i = 0; i < calls; i++) CHECK(called(i) == i + 1);
    if (is_second) return 0;
    expect("called", (uint64_t)calls);
    execl("/proc/self/exe", "exec", "again", NULL);
    return 98;
}
