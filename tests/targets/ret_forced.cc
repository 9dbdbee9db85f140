// cflags: -O2 -pthread -rdynamic
// ret_forced MODE [wait]: _Unwind_ForcedUnwind unwinds probed frames. Its stop function prints each frame as object and
// offset. The output must be the same with probes.
#include "ret_common.h"
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <unwind.h>

extern "C" {
CALLS(lowest); CALLS(middle); CALLS(upper); CALLS(guarded); CALLS(cleans); CALLS(handles);
static __thread jmp_buf back;
static __thread int stops, enough;
static bool prints = true;
static int cleaned;

static void print_frame(const char *what, struct _Unwind_Context *context) {
    void *address = (void *)_Unwind_GetIP(context);
    Dl_info info;
    if (!prints) return;
    if (!dladdr(address, &info)) {
        printf("  %s at no object\n", what);
        return;
    }
    const char *slash = strrchr(info.dli_fname, '/');
    printf("  %s %s+0x%lx\n", what, slash ? slash + 1 : info.dli_fname,
           (unsigned long)((char *)address - (char *)info.dli_fbase));
}

static _Unwind_Reason_Code to_the_end(int version, _Unwind_Action actions, _Unwind_Exception_Class type,
                                      struct _Unwind_Exception *exception, struct _Unwind_Context *context, void *data) {
    CHECK(version == 1 && type == 7 && exception->exception_class == 7 && data == &stops);
    stops++;
    if (actions & _UA_END_OF_STACK) longjmp(back, 1);
    print_frame("frame", context);
    return _URC_NO_REASON;
}

static _Unwind_Reason_Code jumps(int, _Unwind_Action, _Unwind_Exception_Class, struct _Unwind_Exception *,
                                 struct _Unwind_Context *context, void *) {
    if (++stops == enough) longjmp(back, 1);
    print_frame("frame", context);
    return _URC_NO_REASON;
}

// Ends the unwinding at frame number `enough`, before any frame is unwound.
static _Unwind_Reason_Code refuses(int, _Unwind_Action, _Unwind_Exception_Class, struct _Unwind_Exception *,
                                   struct _Unwind_Context *context, void *) {
    print_frame("frame", context);
    return ++stops == enough ? _URC_NORMAL_STOP : _URC_NO_REASON;
}

static _Unwind_Stop_Fn stop;
static struct _Unwind_Exception *next_exception;

PROBED int lowest(int x) {
    ENTER(lowest);
    struct _Unwind_Exception *exception = next_exception;
    memset(exception, 0, sizeof *exception);
    exception->exception_class = 7;
    int code = _Unwind_ForcedUnwind(exception, stop, &stops);
    if (prints) printf("code %d\n", code);
    KEEP();
    LEAVE(lowest);
    return x + 1;
}
PROBED int middle(int x) { ENTER(middle); x = lowest(x); KEEP(); LEAVE(middle); return x + 1; }
PROBED int cleans(int x) { ENTER(cleans); cleaned++; KEEP(); LEAVE(cleans); return x + 1; }
struct Guard { ~Guard() { cleans(1); } };
PROBED int guarded(int x) {
    ENTER(guarded);
    Guard guard;
    x = middle(x);
    KEEP();
    LEAVE(guarded);
    return x + 1;
}
PROBED int upper(int x, int deep) {
    ENTER(upper);
    x = deep ? upper(x, deep - 1) : guarded(x);
    KEEP();
    LEAVE(upper);
    return x + 1;
}

static void unwind(_Unwind_Stop_Fn how, struct _Unwind_Exception *exception, int deep) {
    stop = how, next_exception = exception, stops = 0;
    if (setjmp(back) == 0) upper(1, deep);
    printf("%d stops, %d cleaned\n", stops, cleaned);
}

static struct _Unwind_Exception the_same;
static void end(void) { unwind(to_the_end, &the_same, 3); unwind(to_the_end, &the_same, 0); }
static void jumped(void) { enough = 5; unwind(jumps, &the_same, 3); enough = 7; unwind(jumps, &the_same, 4); }
static void refused(void) { enough = 3; unwind(refuses, &the_same, 3); unwind(refuses, &the_same, 1); }
static void many(void) {
    static struct _Unwind_Exception all[100];
    prints = false, enough = 4;
    for (int i = 0; i < 100; i++) unwind(jumps, &all[i], 1);
    for (int i = 0; i < 1000; i++) unwind(i % 2 ? to_the_end : jumps, &all[i % 7], 2);
}
static void *threaded(void *exception) {
    unwind(to_the_end, (struct _Unwind_Exception *)exception, 2);
    return NULL;
}
// The threads are successive, so that each reuses the previous one's memory.
static void threads(void) {
    for (int i = 0; i < 50; i++) {
        struct _Unwind_Exception exception;
        pthread_t id;
        prints = i == 0;
        CHECK(pthread_create(&id, NULL, threaded, &exception) == 0 && pthread_join(id, NULL) == 0);
    }
}
PROBED void handles(int) {
    ENTER(handles);
    unwind(to_the_end, &the_same, 1);
    LEAVE(handles);
}
static void handled(void) {
    CHECK(signal(SIGUSR1, handles) != SIG_ERR && raise(SIGUSR1) == 0);
}
}

static const struct mode modes[] = {
    {"end", end}, {"jumped", jumped}, {"refused", refused}, {"many", many}, {"threads", threads}, {"handled", handled},
};

int main(int argc, char **argv) {
    int status = RUN(modes, argc, argv);
    if (status) return status;
    TELL(lowest); TELL(middle); TELL(upper); TELL(guarded); TELL(cleans); TELL(handles);
    return 0;
}
