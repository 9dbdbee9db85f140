// cflags: -O2 -pthread
// ret_tail MODE [N] [wait]: sibling calls, which replace a frame, and frames many thousands deep.
#include "ret_common.h"
#include <pthread.h>

CALLS(first); CALLS(second); CALLS(third); CALLS(plain); CALLS(hop_a); CALLS(hop_b); CALLS(hop_c);
CALLS(down); CALLS(is_even); CALLS(is_odd); CALLS(leaps);
static uint64_t n, result;

PROBED long plain(long x) { ENTER(plain); KEEP(); LEAVE(plain); return x ^ 5; }
PROBED long third(long x) { ENTER(third); LEAVE(third); return plain(x + 3); }
PROBED long second(long x) { ENTER(second); LEAVE(second); return third(x + 2); }
PROBED long first(long x) { ENTER(first); LEAVE(first); return second(x + 1); }

static long (*volatile pointer)(long) = first;
PROBED long leaps(long x) { ENTER(leaps); LEAVE(leaps); return pointer(x); }

PROBED long hop_c(long x, long sum);
PROBED long hop_b(long x, long sum);
PROBED long hop_a(long x, long sum) {
    ENTER(hop_a);
    LEAVE(hop_a);
    return x == 0 ? sum : hop_b(x - 1, sum + x);
}
PROBED long hop_b(long x, long sum) {
    ENTER(hop_b);
    LEAVE(hop_b);
    return x == 0 ? sum : hop_c(x - 1, sum ^ x);
}
PROBED long hop_c(long x, long sum) {
    ENTER(hop_c);
    LEAVE(hop_c);
    return x == 0 ? sum : hop_a(x - 1, sum - 3);
}

PROBED long down(long depth) {
    ENTER(down);
    long rest = depth ? down(depth - 1) : 0;
    __asm__ volatile("" : "+r"(rest));  // otherwise the recursion becomes a loop
    LEAVE(down);
    return rest + 1;
}

PROBED long is_odd(long x);
PROBED long is_even(long x) {
    ENTER(is_even);
    long rest = x ? is_odd(x - 1) : 0;
    __asm__ volatile("" : "+r"(rest));
    LEAVE(is_even);
    return rest + 2;
}
PROBED long is_odd(long x) {
    ENTER(is_odd);
    long rest = x ? is_even(x - 1) : 1;
    __asm__ volatile("" : "+r"(rest));
    LEAVE(is_odd);
    return rest + 3;
}

static void chain(void) {
    for (long i = 0; i < 10000; i++) {
        CHECK(first(i) == ((i + 6) ^ 5) && leaps(i) == ((i + 6) ^ 5));
        result += (uint64_t)(plain(i) + second(i));
    }
}
static void cycle(void) { result = (uint64_t)hop_a((long)(n ? n : 1000000), 7); }
static void cycles(void) {
    for (long i = 0; i < 3000; i++) result += (uint64_t)hop_b(i % 50, i);
}
static void recursion(void) {
    CHECK(down(100000) == 100001);
    for (int i = 0; i < 100; i++) CHECK(down(i * 10) == i * 10 + 1);
}
static void mutual(void) {
    for (long i = 0; i < 300; i++) result += (uint64_t)(is_even(i) + is_odd(i + 1));
    result += (uint64_t)is_even(50001);
}

static const struct mode modes[] = {
    {"chain", chain}, {"cycle", cycle}, {"cycles", cycles}, {"recursion", recursion}, {"mutual", mutual},
};
static const char *asked;
static void *run(void *unused) {
    for (size_t m = 0; m < sizeof modes / sizeof modes[0]; m++)
        if (!strcmp(modes[m].name, asked)) modes[m].run();
    return unused;
}

int main(int argc, char **argv) {
    pthread_attr_t attributes;
    pthread_t id;
    asked = argc > 1 ? argv[1] : "chain";
    n = number(argc, argv, 2, 0);
    wait_for_start(argc, argv);
    CHECK(pthread_attr_init(&attributes) == 0 && pthread_attr_setstacksize(&attributes, 256u << 20) == 0);
    CHECK(pthread_create(&id, &attributes, run, NULL) == 0 && pthread_join(id, NULL) == 0);
    printf("result %llu\n", (unsigned long long)result);
    TELL(first); TELL(second); TELL(third); TELL(plain); TELL(leaps); TELL(hop_a); TELL(hop_b); TELL(hop_c);
    TELL(down); TELL(is_even); TELL(is_odd);
    return 0;
}
