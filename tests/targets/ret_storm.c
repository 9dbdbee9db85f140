// cflags: -O2 -pthread
// ret_storm MODE SIGNALS [wait]: a timer's signal interrupts probed functions anywhere; its handler runs them, too.
// MODE: returns, altstack, jumps (by siglongjmp, so `inner`, `twice` and `deep` may be off by one for each signal).
#include "ret_common.h"
#include <setjmp.h>
#include <signal.h>
#include <sys/time.h>

CALLS(twice); CALLS(inner); CALLS(deep); CALLS(handles);
static volatile sig_atomic_t seen, armed;
static int signals, jumping;
static sigjmp_buf place;

PROBED int inner(int x) { ENTER(inner); KEEP(); LEAVE(inner); return x + 1; }
PROBED int twice(int x) {
    ENTER(twice);
    int result = inner(x) + inner(x);
    LEAVE(twice);
    return result;
}
PROBED int deep(int n) {
    ENTER(deep);
    int rest = n ? deep(n - 1) : 0;
    __asm__ volatile("" : "+r"(rest));
    LEAVE(deep);
    return rest + 1;
}

static int once(int x) { return twice(x) == 2 * x + 2 && inner(x) == x + 1 && deep(x % 4) == x % 4 + 1; }

PROBED void handles(int signal) {
    ENTER(handles);
    CHECK(signal == SIGALRM && once(seen % 1000));
    seen++;
    if (jumping && armed) siglongjmp(place, 1);
    LEAVE(handles);
}

static void rearm(void) {
    struct itimerval timer = {.it_value = {0, 20 + seen % 60}};
    CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0);
}

static void run(int flags) {
    struct sigaction action = {.sa_handler = handles, .sa_flags = flags};
    use_alternate_stack();
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    while (seen < signals) {
        int before = seen;
        if (sigsetjmp(place, 1) == 0) {
            rearm();
            armed = 1;
            for (int x = 0; seen == before; x++) CHECK(once(x % 1000));
        }
        armed = 0;
    }
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "returns";
    signals = (int)number(argc, argv, 2, 2000);
    jumping = !strcmp(mode, "jumps");
    wait_for_start(argc, argv);
    run(!strcmp(mode, "altstack") ? SA_ONSTACK : 0);
    printf("signals %d\n", seen);
    TELL(twice); TELL(inner); TELL(deep); TELL(handles);
    return 0;
}
