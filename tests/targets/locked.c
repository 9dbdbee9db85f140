// cflags: -O2
// locked CALLS [wait]: locks all its memory. At its end it must be able to allocate, with little more memory locked.
#include "common.h"
#include <sys/mman.h>

PROBED int called(int x) { KEEP(); return x + 1; }

static long locked_kilobytes(void) {
    char line[200];
    long locked = -1;
    FILE *status = fopen("/proc/self/status", "r");
    CHECK(status != NULL);
    while (fgets(line, sizeof line, status)) if (sscanf(line, "VmLck: %ld", &locked) == 1) break;
    fclose(status);
    return locked;
}

int main(int argc, char **argv) {
    uint64_t calls = number(argc, argv, 1, 1000);
    CHECK(mlockall(MCL_CURRENT | MCL_FUTURE) == 0);
    long before = locked_kilobytes();
    CHECK(before > 0);
    wait_for_start(argc, argv);
    for (uint64_t i = 0; i < calls; i++) CHECK(called((int)i) == (int)i + 1);
    char *more = malloc(1 << 20);
    CHECK(more != NULL);
    memset(more, 5, 1 << 20);
    long after = locked_kilobytes();
    CHECK(after >= before + 1024 && after < before + 4096);
    expect("called", calls);
    return 0;
}
