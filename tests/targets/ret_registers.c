// cflags: -O2 -pthread ret_registers.S -lm
// ret_registers CALLS [wait]: callees fill scratch and vector registers and the x87 stack before they return.
#include "ret_common.h"
#include <fenv.h>
#include <immintrin.h>
#include <pthread.h>

struct state { uint64_t general[16]; uint64_t vectors[16][4]; uint64_t x87[8][2]; };
typedef void register_check(void (*callee)(void), const struct state *in, struct state *out);
register_check regs_after_sse, regs_after_avx, regs_after_x87;
void fill_sse(void), fill_avx(void), fill_x87(void), fill_through(void), fill_jump(void);

enum { RSP = 7 };
static const struct { const char *name; void (*callee)(void); register_check *call; int words, x87; } callees[] = {
    {"fill_avx", fill_avx, regs_after_avx, 4, 0},
    {"fill_x87", fill_x87, regs_after_x87, 0, 1},
    {"fill_through", fill_through, regs_after_sse, 2, 0},
    {"fill_jump", fill_jump, regs_after_sse, 2, 0},
    {"fill_sse", fill_sse, regs_after_sse, 2, 0},
};
enum { CALLEES = sizeof callees / sizeof callees[0] };
static uint64_t calls;
static int avx;

static uint64_t mix(uint64_t x) { x ^= x >> 29; x *= 0xbf58476d1ce4e5b9u; return x ^ x >> 32; }

static unsigned short control(void) {
    unsigned short word;
    __asm__ volatile("fnstcw %0" : "=m"(word));
    return word;
}

static void fill(struct state *in, uint64_t seed) {
    uint64_t *words = (uint64_t *)in;
    for (size_t w = 0; w < sizeof *in / 8; w++) words[w] = mix(seed * 256 + w);
    // Numbers are normal, because the processor changes other numbers when it loads them.
    for (int n = 0; n < 8; n++) {
        in->x87[n][0] |= 1ull << 63;
        in->x87[n][1] = 0x3fff;
    }
}

static void check(int c, struct state *in) {
    struct state out;
    memset(&out, 0xff, sizeof out);
    callees[c].call(callees[c].callee, in, &out);
    in->general[RSP] = out.general[RSP];
    CHECK(memcmp(in->general, out.general, sizeof in->general) == 0);
    for (int n = 0; n < 16; n++) CHECK(memcmp(in->vectors[n], out.vectors[n], 8u * (size_t)callees[c].words) == 0);
    for (int n = 0; n < 8 && callees[c].x87; n++) CHECK(memcmp(in->x87[n], out.x87[n], 10) == 0);
}

static void *work(void *seed) {
    struct state in;
    // A probe must not reset the rounding mode and the masked exceptions.
    CHECK(fesetround(FE_UPWARD) == 0);
    unsigned int mxcsr = _mm_getcsr();
    unsigned short word = control();
    for (uint64_t i = 0; i < calls; i++)
        for (int c = avx ? 0 : 1; c < CALLEES; c++) {
            fill(&in, i * CALLEES + (uint64_t)c + (uint64_t)seed);
            check(c, &in);
        }
    CHECK(((mxcsr ^ _mm_getcsr()) & ~0x3fu) == 0 && word == control());
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t other;
    calls = number(argc, argv, 1, 1000);
    avx = __builtin_cpu_supports("avx") != 0;
    wait_for_start(argc, argv);
    CHECK(pthread_create(&other, NULL, work, (void *)1) == 0);
    work((void *)2);
    CHECK(pthread_join(other, NULL) == 0);
    // fill_through and fill_jump lead to fill_sse, so it runs three times in each round.
    for (int c = avx ? 0 : 1; c < CALLEES; c++)
        truth(callees[c].name, 2 * calls * (c == CALLEES - 1 ? 3 : 1), 0, 0);
    return 0;
}
