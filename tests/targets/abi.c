// cflags: -O2
// abi CALLS [wait]: checks a variadic call's al, a nested function's r10, live scratch registers (-fipa-ra), results in
// rax:rdx, xmm0:xmm1, st0 and memory.
#include "common.h"
#include <stdarg.h>

struct pair { long a, b; };
struct doubles { double a, b; };
struct large { long words[8]; };
typedef int vector __attribute__((vector_size(16)));

PROBED double variadic(int count, ...) {
    va_list list;
    double sum = 0;
    va_start(list, count);
    for (int i = 0; i < count; i++) sum += va_arg(list, double);
    va_end(list);
    return sum;
}
PROBED struct pair pairs(long a, long b) { KEEP(); return (struct pair){b, a}; }
PROBED struct doubles two(double a, double b) { KEEP(); return (struct doubles){b, a}; }
PROBED struct large larger(long x) { struct large l = {{x, 1, 2, 3, 4, 5, 6, x}}; KEEP(); return l; }
PROBED long double extended(long double x) { KEEP(); return x / 3; }
PROBED __int128 wide(__int128 x) { KEEP(); return x * x; }
PROBED vector lanes(vector a, vector b) { KEEP(); return a + b; }
PROBED long eight(long a, long b, long c, long d, long e, long f, long g, long h) {
    KEEP();
    return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h;
}

// Changes only eax, so that gcc may keep other scratch registers live across the call.
static __attribute__((noinline, noclone)) int local(int x) { __asm__("" : "+r"(x)); return x ^ 0x55; }

static long keeps_alive(long a, long b, long c, long d, long e, long f) {
    long sum = 0;
    for (int i = 0; i < 4; i++) sum += local(i) + a * b + c * d + e * f + (a ^ c ^ e) + i;
    return sum;
}

static long nested(long base) {
    __attribute__((noinline, noclone)) long inner(long x) { KEEP(); return base++ + x; }
    return inner(1) + inner(2);
}

int main(int argc, char **argv) {
    uint64_t calls = number(argc, argv, 1, 1000);
    wait_for_start(argc, argv);
    for (uint64_t n = 0; n < calls; n++) {
        long i = (long)n;
        CHECK(variadic(3, 1.0 * i, 2.0, 3.0) == i + 5.0);
        CHECK(pairs(i, 2).a == 2 && pairs(i, 2).b == i);
        CHECK(two(i, 2).a == 2 && two(i, 2).b == i);
        CHECK(larger(i).words[7] == i && larger(i).words[6] == 6);
        CHECK(extended(3.0L * i) == (long double)i);
        CHECK(wide((__int128)i << 40) == ((__int128)i * i) << 80);
        CHECK(lanes((vector){1, 2, 3, 4}, (vector){4, 3, 2, (int)i})[3] == 4 + (int)i);
        CHECK(eight(1, 1, 1, 1, 1, 1, 1, i) == 28 + 8 * i);
        long sum = 0;
        for (int k = 0; k < 4; k++) sum += (k ^ 0x55) + i * 2 + 3 * 4 + 5 * 6 + (i ^ 3 ^ 5) + k;
        CHECK(keeps_alive(i, 2, 3, 4, 5, 6) == sum);
        CHECK(nested(i) == 2 * i + 4);
    }
    expect("variadic", calls);
    expect("pairs", 2 * calls);
    expect("two", 2 * calls);
    expect("larger", 2 * calls);
    expect("extended", calls);
    expect("wide", calls);
    expect("lanes", calls);
    expect("eight", calls);
    expect("local", 4 * calls);
    return 0;
}
