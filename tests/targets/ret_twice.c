// cflags: -O2 -pthread -D_FORTIFY_SOURCE=0
// ret_twice MODE [wait]: libc functions that return twice, or read their caller's address. Only their entries may be
// counted.
#include "ret_common.h"
#include <dlfcn.h>
#include <setjmp.h>
#include <sys/wait.h>
#include <ucontext.h>

enum { ROUNDS = 500 };
CALLS(next_tail); CALLS(next_inside); CALLS(opens_tail); CALLS(keeps);
static jmp_buf place;

PROBED int keeps(int x) { ENTER(keeps); KEEP(); LEAVE(keeps); return x + 1; }

static void by_setjmp(void) {
    volatile int again = 0, landed = 0;
    for (volatile int i = 0; i < ROUNDS; i++) {
        again = 0;
        int got = _setjmp(place);
        CHECK(got == again && keeps(got) == got + 1);
        landed += got != 0;
        if (got == 0) { again = i + 1; longjmp(place, i + 1); }
    }
    CHECK(landed == ROUNDS);
    expect("_setjmp", ROUNDS);
}
static void by_sigsetjmp(void) {
    sigjmp_buf mine;
    volatile int landed = 0;
    for (volatile int i = 0; i < ROUNDS; i++) {
        int got = __sigsetjmp(mine, 1);
        CHECK(keeps(got) == got + 1);
        if (got == 0) siglongjmp(mine, 3);
        landed += got == 3;
    }
    CHECK(landed == ROUNDS);
    expect("__sigsetjmp", ROUNDS);
}
static void by_getcontext(void) {
    static ucontext_t context;
    volatile int landed = 0;
    for (volatile int i = 0; i < ROUNDS; i++) {
        volatile int second = 0;
        CHECK(getcontext(&context) == 0 && keeps(second) == second + 1);
        landed += second;
        if (!second) { second = 1; setcontext(&context); }
    }
    CHECK(landed == ROUNDS);
    expect("getcontext", ROUNDS);
}
static void by_vfork(void) {
    for (volatile int i = 0; i < ROUNDS / 10; i++) {
        int status;
        pid_t pid = vfork();
        if (pid == 0) _exit(i % 100);
        CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == i % 100);
    }
    expect("vfork", ROUNDS / 10);
}

// dlsym finds its caller by the return address, which after this sibling call is in next_tail's caller.
PROBED void *next_tail(const char *name) {
    ENTER(next_tail);
    LEAVE(next_tail);
    return dlsym(RTLD_NEXT, name);
}
PROBED void *next_inside(const char *name) {
    ENTER(next_inside);
    void *found = dlsym(RTLD_NEXT, name);
    CHECK(found);
    LEAVE(next_inside);
    return found;
}
int getpagesize(void) { return 12345; }
static void by_dlsym(void) {
    for (int i = 0; i < ROUNDS; i++) {
        int (*real)(void) = (int (*)(void))next_inside("getpagesize");
        CHECK(real && real != getpagesize && real() == (int)sysconf(_SC_PAGESIZE));
        CHECK(next_tail("getpagesize") == (void *)real && keeps(i) == i + 1);
    }
    expect("dlsym", 2 * ROUNDS);
}

PROBED void *opens_tail(const char *name, int mode) {
    ENTER(opens_tail);
    LEAVE(opens_tail);
    return dlopen(name, mode);
}
// $ORIGIN is the folder of the caller's file, where dlopen finds this program, which is no library.
static void by_dlopen(void) {
    char self[4096] = {0}, name[4096] = "$ORIGIN";
    CHECK(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    strcat(name, strrchr(self, '/'));
    for (int i = 0; i < ROUNDS; i++) {
        CHECK(dlopen(name, RTLD_NOW) == NULL && strstr(dlerror(), "position-independent executable"));
        void *library = opens_tail("libm.so.6", RTLD_NOW);
        CHECK(library && dlsym(library, "cos") && dlclose(library) == 0);
    }
    expect("dlopen", 2 * ROUNDS);
}

static const struct mode modes[] = {
    {"_setjmp", by_setjmp}, {"__sigsetjmp", by_sigsetjmp}, {"getcontext", by_getcontext}, {"vfork", by_vfork},
    {"dlsym", by_dlsym}, {"dlopen", by_dlopen},
};

int main(int argc, char **argv) {
    int status = RUN(modes, argc, argv);
    if (status) return status;
    TELL(keeps); TELL(next_inside);
    // Both functions jump to a function that reads its caller's address, so a tracer may time neither.
    expect("next_tail", next_tail_calls.entered);
    expect("opens_tail", opens_tail_calls.entered);
    return 0;
}
