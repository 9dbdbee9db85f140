// cflags: -O2 -shared -fPIC
// Tests preload this library into tiptoe. Its first child prints `stuck` and blocks when it closes a descriptor, like
// an exec from a file system that does not answer.
#include "common.h"
#include <dlfcn.h>
#include <stdatomic.h>

static pid_t first;
static atomic_int *forked;

__attribute__((constructor)) static void init(void) {
    first = getpid();
    forked = mmap(NULL, sizeof *forked, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

int close(int fd) {
    static int (*real)(int);
    if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, "close");
    if (first && getpid() != first && atomic_exchange(forked, 1) == 0) {
        CHECK(write(1, "stuck\n", 6) == 6);
        for (;;) pause();
    }
    return real(fd);
}
