// cflags: -O2 -fcf-protection=none
// dispatched CALLS [own] [wait]: calls a function on which only a trap byte fits. Before the second half, it makes
// system calls from outside libc raise SIGSYS, whose handler must not run. It enables this by prctl or, with `own`,
// by an inline system call.
#include "common.h"
#include "only_trap.h"

enum { SET_SYSCALL_USER_DISPATCH = 59, ON = 1, OFF = 0 };
static volatile char selector; // 0 allows, 1 dispatches
static volatile int dispatched;

static void handler(int signal) {
    (void)signal;
    dispatched++;
    selector = 0;
}

static void of_libc(unsigned long *start, unsigned long *len) {
    char line[512], rights[8];
    unsigned long from, to;
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps != NULL);
    *len = 0;
    while (fgets(line, sizeof line, maps)) {
        CHECK(sscanf(line, "%lx-%lx %7s", &from, &to, rights) == 3);
        if (strstr(line, "libc.so") && rights[2] == 'x') *start = from, *len = to - from;
    }
    fclose(maps);
    CHECK(*len != 0);
}

int main(int argc, char **argv) {
    CHECK(argc >= 2);
    int calls = atoi(argv[1]);
    unsigned long start, len;
    wait_for_start(argc, argv);
    CHECK(signal(SIGSYS, handler) != SIG_ERR);
    for (int i = 0; i < calls / 2; i++) CHECK(only_trap(3) == 7);
    of_libc(&start, &len);
    int is_own = argc > 2 && !strcmp(argv[2], "own");
    long refused = is_own ? own_call(SYS_prctl, SET_SYSCALL_USER_DISPATCH, ON, start, len, (long)&selector)
                          : prctl(SET_SYSCALL_USER_DISPATCH, ON, start, len, &selector);
    if (refused) {
        puts("no dispatch");
    } else {
        selector = 1;
        for (int i = 0; i < calls - calls / 2; i++) CHECK(only_trap(3) == 7);
        selector = 0;
        CHECK(prctl(SET_SYSCALL_USER_DISPATCH, OFF, 0, 0, 0) == 0);
    }
    printf("dispatched %d\n", dispatched);
    return 0;
}
