// cflags: -O2 -pthread -mno-avx
// ret_values CALLS [wait]: every kind of return value.
#include "ret_common.h"
#include <complex.h>
#include <immintrin.h>
#include <pthread.h>
#include <stdbool.h>

#define SAME(name, type) CALLS(name); PROBED type name(type x) { ENTER(name); KEEP(); LEAVE(name); return x; }
struct longs { long a, b; };
struct doubles { double a, b; };
struct mixed { long a; double b; };
struct turned { double a; long b; };
struct three { float a, b, c; };
struct chars { char text[13]; };
struct small { short a; char b; };
struct extended { long double a; };
struct large { long words[9]; };
struct with_x87 { long double a; int b; };
union either { double real; long whole; };
typedef int pointed(int);

SAME(of_bool, _Bool) SAME(of_char, signed char) SAME(of_uchar, unsigned char) SAME(of_short, short)
SAME(of_int, int) SAME(of_long, long) SAME(of_pointer, pointed *) SAME(of_int128, __int128)
SAME(of_float, float) SAME(of_double, double) SAME(of_x87, long double) SAME(of_float128, __float128)
SAME(of_half, _Float16) SAME(of_decimal, _Decimal64) SAME(of_cfloat, _Complex float)
SAME(of_cdouble, _Complex double) SAME(of_cx87, _Complex long double) SAME(of_m64, __m64)
SAME(of_m128, __m128) SAME(of_m128i, __m128i) SAME(of_m128d, __m128d) SAME(of_longs, struct longs)
SAME(of_doubles, struct doubles) SAME(of_mixed, struct mixed) SAME(of_turned, struct turned)
SAME(of_three, struct three) SAME(of_chars, struct chars) SAME(of_small, struct small)
SAME(of_extended, struct extended) SAME(of_large, struct large) SAME(of_with_x87, struct with_x87)
SAME(of_union, union either)

CALLS(of_nothing);
PROBED void of_nothing(long *into, long x) { ENTER(of_nothing); *into = x; LEAVE(of_nothing); }

CALLS(of_m256); CALLS(of_m256i);
#define AVX __attribute__((target("avx")))
PROBED AVX __m256d of_m256(__m256d x) { ENTER(of_m256); KEEP(); LEAVE(of_m256); return x; }
PROBED AVX __m256i of_m256i(__m256i x) { ENTER(of_m256i); KEEP(); LEAVE(of_m256i); return x; }

CALLS(sums_x87);
PROBED long double sums_x87(long double a, long double b) {
    ENTER(sums_x87);
    long double sum = of_x87(a) + (of_x87(b) + (of_x87(a * b) + of_x87(a - b)));
    LEAVE(sums_x87);
    return sum;
}

// The function is local, so gcc keeps values in scratch registers across its calls (-fipa-ra).
CALLS(touches_little);
PROBED static long touches_little(long x) {
    __asm__("" : "+r"(x));
    __asm__ volatile("lock incq %0" : "+m"(touches_little_calls.entered));
    __asm__ volatile("lock incq %0" : "+m"(touches_little_calls.returned));
    return x ^ 0x55;
}
static __attribute__((noinline)) long keeps_alive(long a, long b, long c, long d, long e, double f, double g) {
    long sum = 0;
    for (int i = 0; i < 4; i++) {
        sum += touches_little(i) + a * b + c * d + (e ^ a) + i;
        f = f * g + (double)touches_little((long)f);
    }
    return sum + (long)f;
}

#define EQUAL(call, value)                                                        \
    do {                                                                          \
        __typeof__(call) got = call, wanted = value;                              \
        CHECK(memcmp(&got, &wanted, sizeof got) == 0);                            \
    } while (0)

static void scalars(long i) {
    CHECK(of_bool(i & 1) == (i & 1) && of_char((signed char)i) == (signed char)i);
    CHECK(of_uchar((unsigned char)i) == (unsigned char)i && of_short((short)i) == (short)i);
    CHECK(of_int((int)i) == (int)i && of_long(i << 40) == i << 40);
    CHECK(of_pointer((pointed *)i) == (pointed *)i);
    CHECK(of_int128((__int128)i << 80 | i) == ((__int128)i << 80 | i));
    CHECK(of_float((float)i / 3) == (float)i / 3 && of_double((double)i / 3) == (double)i / 3);
    CHECK(of_x87(i / 3.0L) == i / 3.0L && of_float128((__float128)i / 3) == (__float128)i / 3);
    CHECK(of_half((_Float16)(float)(i % 100)) == (_Float16)(float)(i % 100));
    CHECK(of_decimal((_Decimal64)i) == (_Decimal64)i);
    CHECK(of_cfloat((float)i + 2.0f * I) == (float)i + 2.0f * I);
    CHECK(of_cdouble((double)i + 2.0 * I) == (double)i + 2.0 * I);
    _Complex long double pair = i / 3.0L + (i / 7.0L) * I;
    CHECK(of_cx87(pair) == pair);
    CHECK(sums_x87(i, 3) == i + (3 + (i * 3.0L + (i - 3))));
    long into = -1;
    of_nothing(&into, i);
    CHECK(into == i);
}

static void vectors(long i) {
    EQUAL(of_m64(_mm_set_pi32((int)i, 7)), _mm_set_pi32((int)i, 7));
    _mm_empty();
    EQUAL(of_m128(_mm_set_ps((float)i, 1, 2, 3)), _mm_set_ps((float)i, 1, 2, 3));
    EQUAL(of_m128i(_mm_set_epi64x(i, ~i)), _mm_set_epi64x(i, ~i));
    EQUAL(of_m128d(_mm_set_pd((double)i, 0.5)), _mm_set_pd((double)i, 0.5));
}

static AVX void wide_vectors(long i) {
    EQUAL(of_m256(_mm256_set_pd((double)i, 1, 2, 3)), _mm256_set_pd((double)i, 1, 2, 3));
    EQUAL(of_m256i(_mm256_set_epi64x(i, ~i, 3, 4)), _mm256_set_epi64x(i, ~i, 3, 4));
}

static void structs(long i) {
    EQUAL(of_longs((struct longs){i, ~i}), ((struct longs){i, ~i}));
    EQUAL(of_doubles((struct doubles){(double)i, 0.5}), ((struct doubles){(double)i, 0.5}));
    EQUAL(of_mixed((struct mixed){i, 0.25}), ((struct mixed){i, 0.25}));
    EQUAL(of_turned((struct turned){0.25, i}), ((struct turned){0.25, i}));
    EQUAL(of_three((struct three){(float)i, 2, 3}), ((struct three){(float)i, 2, 3}));
    EQUAL(of_chars((struct chars){"twelve chars"}), ((struct chars){"twelve chars"}));
    struct small small = of_small((struct small){(short)i, (char)i});
    CHECK(small.a == (short)i && small.b == (char)i);
    CHECK(of_extended((struct extended){i / 3.0L}).a == i / 3.0L);
    EQUAL(of_large((struct large){{i, 1, 2, 3, 4, 5, 6, 7, i}}), ((struct large){{i, 1, 2, 3, 4, 5, 6, 7, i}}));
    struct with_x87 with = of_with_x87((struct with_x87){i / 3.0L, (int)i});
    CHECK(with.a == i / 3.0L && with.b == (int)i);
    CHECK(of_union((union either){.whole = i}).whole == i);
}

static uint64_t calls;
static void *work(void *avx) {
    for (uint64_t n = 0; n < calls; n++) {
        long i = (long)n, sum = 0;
        scalars(i);
        vectors(i);
        structs(i);
        if (avx) wide_vectors(i);
        double f = 1.5;
        for (long k = 0; k < 4; k++) {
            sum += (k ^ 0x55) + i * 2 + 3 * 4 + (5 ^ i) + k;
            f = f * 1.25 + (double)((long)f ^ 0x55);
        }
        CHECK(keeps_alive(i, 2, 3, 4, 5, 1.5, 1.25) == sum + (long)f);
    }
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t other;
    int avx = __builtin_cpu_supports("avx");
    calls = number(argc, argv, 1, 1000);
    wait_for_start(argc, argv);
    CHECK(pthread_create(&other, NULL, work, avx ? &calls : NULL) == 0);
    work(avx ? &calls : NULL);
    CHECK(pthread_join(other, NULL) == 0);
    TELL(of_bool); TELL(of_char); TELL(of_uchar); TELL(of_short); TELL(of_int); TELL(of_long); TELL(of_pointer);
    TELL(of_int128); TELL(of_float); TELL(of_double); TELL(of_x87); TELL(of_float128); TELL(of_half);
    TELL(of_decimal); TELL(of_cfloat); TELL(of_cdouble); TELL(of_cx87); TELL(of_m64); TELL(of_m128); TELL(of_m128i);
    TELL(of_m128d); TELL(of_longs); TELL(of_doubles); TELL(of_mixed); TELL(of_turned); TELL(of_three);
    TELL(of_chars); TELL(of_small); TELL(of_extended); TELL(of_large); TELL(of_with_x87); TELL(of_union);
    TELL(of_nothing); TELL(sums_x87); TELL(touches_little); TELL(of_m256); TELL(of_m256i);
    return 0;
}
