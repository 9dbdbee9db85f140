// cflags: -O2 -rdynamic -Wno-frame-address
// ret_caller MODE [wait]: functions that find and print their caller.
#include "ret_common.h"
#include <dlfcn.h>
#include <execinfo.h>
#include <sys/mman.h>
#include <unwind.h>

enum { ROUNDS = 20, MOST = 64 };
#define FRAMED __attribute__((optimize("no-omit-frame-pointer")))

// `dladdr` fails for a tracer's code, which is in no file.
static void show(const char *what, void *place) {
    Dl_info info;
    CHECK(place && dladdr(place, &info));
    const char *file = strrchr(info.dli_fname, '/'), *name = info.dli_sname;
    size_t far = (size_t)((char *)place - (char *)(name ? info.dli_saddr : info.dli_fbase));
    printf("%s: %s %s+%zu\n", what, file ? file + 1 : info.dli_fname, name ? name : "", far);
}

PROBED void *own(void) { return __builtin_return_address(0); }
PROBED void *own_late(int x) {
    char room[200];
    snprintf(room, sizeof room, "%d", x);
    KEEP();
    return room[0] ? __builtin_return_address(0) : NULL;
}
// `jumps` makes a sibling call, so the callee returns to the caller of `jumps`.
PROBED void *jumps(void) { return own(); }
PROBED void *jumps_twice(void) { return jumps(); }
PROBED void *calls(void) {
    void *place = own();
    KEEP();
    return place;
}
void ask_own(void) {
    show("own", own());
    show("own_late", own_late(7));
    show("calls", calls());
    show("jumps_twice", jumps_twice());
}

PROBED FRAMED void *above(void) { return __builtin_return_address(1); }
PROBED FRAMED void *middle(void) {
    void *place = above();
    KEEP();
    return place;
}
PROBED FRAMED void *outer(void) {
    void *place = middle();
    KEEP();
    return place;
}
void ask_above(void) {
    show("middle", middle());
    show("outer", outer());
}

static void show_frames(void **frames, int count) {
    for (int i = 0; i < count && i < 6; i++) show("frame", frames[i]);
}
PROBED int traced(int depth) {
    void *frames[MOST];
    if (depth) return traced(depth - 1) + 1;
    show_frames(frames, backtrace(frames, MOST));
    return 0;
}
void ask_backtrace(void) { CHECK(traced(3) == 3); }

struct walk { void *frames[MOST]; int count; };
static _Unwind_Reason_Code note(struct _Unwind_Context *context, void *argument) {
    struct walk *walk = argument;
    if (walk->count < MOST) walk->frames[walk->count++] = (void *)_Unwind_GetIP(context);
    return _URC_NO_REASON;
}
PROBED int unwound(int depth) {
    struct walk walk = {.count = 0};
    if (depth) return unwound(depth - 1) + 1;
    _Unwind_Backtrace(note, &walk);
    show_frames(walk.frames, walk.count);
    return 0;
}
void ask_unwinder(void) { CHECK(unwound(3) == 3); }

// Overrides libc's function. In the wrappers, `dlsym` finds the next definition by its caller's address.
int getpagesize(void) { return 12345; }
PROBED void *wrapped(const char *name) { return dlsym(RTLD_NEXT, name); }
PROBED void *wrapped_inside(const char *name) {
    void *found = dlsym(RTLD_NEXT, name);
    KEEP();
    return found;
}
PROBED void *wrapped_by_pointer(void *(*find)(void *, const char *), const char *name) {
    return find(RTLD_NEXT, name);
}
void ask_next(void) {
    show("wrapped", wrapped("getpagesize"));
    show("wrapped_inside", wrapped_inside("getpagesize"));
    show("wrapped_by_pointer", wrapped_by_pointer(dlsym, "getpagesize"));
}

// Generated code without unwind information: `push rbp; mov rbp, rsp; call rdi; pop rbp; ret`. The function that it
// calls looks in its own frame for its return address into this code, as functions of Java's runtime do.
static const char made[] = "\x55\x48\x89\xe5\xff\xd7\x5d\xc3";
enum { AFTER_CALL = 6 };
static void **volatile frame;
static char *pages;
static int is_from_pages(void) { return frame[1] == pages + AFTER_CALL; }
PROBED FRAMED int looked_for(void) {
    frame = __builtin_frame_address(0);
    int found = is_from_pages();
    KEEP();
    return found;
}
void ask_generated(void) {
    if (!pages) {
        pages = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(pages != MAP_FAILED);
        memcpy(pages, made, sizeof made);
        CHECK(!mprotect(pages, 4096, PROT_READ | PROT_EXEC));
    }
    int (*generated)(int (*)(void)) = (int (*)(int (*)(void)))pages;
    printf("generated: %d %d\n", generated(looked_for), looked_for());
}

static const struct mode modes[] = {
    {"own", ask_own}, {"above", ask_above}, {"backtrace", ask_backtrace}, {"unwinder", ask_unwinder},
    {"next", ask_next}, {"generated", ask_generated},
};

int main(int argc, char **argv) {
    for (int i = 0; i < ROUNDS; i++) {
        int status = RUN(modes, argc, argv);
        if (status) return status;
        argc -= i == 0 && !strcmp(argv[argc - 1], "wait");
    }
    return 0;
}
