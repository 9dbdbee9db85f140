// cflags: -O2 -pthread
// ret_calls MODE [wait]: variadic calls, a red zone, the smallest signal stack, blocked signals.
#include "ret_common.h"
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>

enum { ROUNDS = 1000 };
CALLS(mixes); CALLS(prints); CALLS(forwards); CALLS(red_zone); CALLS(called); CALLS(handles); CALLS(many);
static char text[4096];

PROBED double mixes(const char *kinds, ...) {
    va_list list;
    double sum = 0;
    ENTER(mixes);
    va_start(list, kinds);
    for (; *kinds; kinds++) {
        switch (*kinds) {
        case 'i': sum += va_arg(list, int); break;
        case 'd': sum += va_arg(list, double); break;
        case 'l': sum += (double)va_arg(list, long double); break;
        case 'v': sum += (double)(va_arg(list, __int128) >> 64); break;
        default: sum += (double)strlen(va_arg(list, const char *));
        }
    }
    va_end(list);
    LEAVE(mixes);
    return sum;
}

PROBED int forwards(char *into, const char *format, va_list list) {
    ENTER(forwards);
    int length = vsprintf(into, format, list);
    LEAVE(forwards);
    return length;
}
PROBED __attribute__((format(printf, 2, 3))) int prints(char *into, const char *format, ...) {
    va_list list;
    ENTER(prints);
    va_start(list, format);
    int length = forwards(into, format, list);
    va_end(list);
    LEAVE(prints);
    return length;
}

PROBED _Complex double many(long a, double b, long c, double d, long e, double f, long g, long h, double i, long j,
                            double k, double l, double m, double n, double o, long p, __int128 q) {
    ENTER(many);
    _Complex double sum = (double)(a + c + e + g + h + j + p) + b + d + f + i + k + l + m + n + o;
    sum += (double)(long)(q >> 70) * 1.0i;
    LEAVE(many);
    return sum;
}

static void variadic(void) {
    for (int i = 0; i < ROUNDS; i++) {
        CHECK(mixes("") == 0 && mixes("i", i) == i && mixes("d", i / 2.0) == i / 2.0);
        CHECK(mixes("idlvs", i, 0.5, 0.25L, (__int128)i << 64, "four") == 2 * i + 4.75);
        CHECK(mixes("ddddddddddiiiiiii", 1., 2., 3., 4., 5., 6., 7., 8., 9., 10., 1, 2, 3, 4, 5, 6, i) == 76 + i);
        CHECK(prints(text, "%d %.3f %s %Lg %c", i, i / 8.0, "s", 1.5L, 'x') > 0);
        char expected[4096];
        sprintf(expected, "%d %.3f %s %Lg %c", i, i / 8.0, "s", 1.5L, 'x');
        CHECK(strcmp(text, expected) == 0);
        CHECK(many(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, i, (__int128)i << 70) == 120 + i + i * 1.0i);
    }
}

// A call in this function would overwrite the values, which are below the stack pointer.
PROBED uint64_t red_zone(uint64_t x) {
    volatile uint64_t below[15];
    ENTER(red_zone);
    for (int i = 0; i < 15; i++) below[i] = x + (uint64_t)i;
    uint64_t sum = 0;
    for (int i = 0; i < 15; i++) sum += below[i];
    LEAVE(red_zone);
    return sum;
}
static void leaf(void) {
    for (uint64_t i = 0; i < 100 * ROUNDS; i++) CHECK(red_zone(i) == 15 * i + 105);
}

PROBED int called(int x) { ENTER(called); KEEP(); LEAVE(called); return x + 1; }
static volatile sig_atomic_t seen;
PROBED void handles(int signal) {
    ENTER(handles);
    int x = called(signal);
    seen += x == signal + 1;
    LEAVE(handles);
}

// A probed function needs up to 1 KB of stack, and a signal frame if no jump fits.
static void smallest_stack(void) {
    struct sigaction action = {.sa_handler = handles, .sa_flags = SA_ONSTACK};
    use_guarded_stack(2 * signal_frame() + 1024);
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    for (int i = 0; i < ROUNDS; i++) {
        CHECK(raise(SIGUSR1) == 0 && called(i) == i + 1);
    }
    CHECK(seen == ROUNDS);
}
static void *on_small_stack(void *unused) { smallest_stack(); return unused; }
static void small_stack(void) {
    pthread_t id;
    smallest_stack();
    seen = 0;
    CHECK(pthread_create(&id, NULL, on_small_stack, NULL) == 0 && pthread_join(id, NULL) == 0);
}

static void *works(void *unused) {
    for (int i = 0; i < ROUNDS; i++) CHECK(called(i) == i + 1 && red_zone(1) == 120);
    return unused;
}
static void blocked(void) {
    sigset_t all;
    pthread_t id;
    sigfillset(&all);
    CHECK(pthread_sigmask(SIG_SETMASK, &all, NULL) == 0);
    works(NULL);
    CHECK(pthread_create(&id, NULL, works, NULL) == 0 && pthread_join(id, NULL) == 0);
    variadic();
}

static const struct mode modes[] = {
    {"variadic", variadic}, {"leaf", leaf}, {"small_stack", small_stack}, {"blocked", blocked},
};

int main(int argc, char **argv) {
    int status = RUN(modes, argc, argv);
    if (status) return status;
    printf("text %s\n", text);
    TELL(mixes); TELL(prints); TELL(forwards); TELL(many); TELL(red_zone); TELL(called); TELL(handles);
    return 0;
}
