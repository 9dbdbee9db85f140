// cflags: -O2 -pthread registers.S
// registers CALLS [wait]: checks every register after a call.
#include "common.h"
#include <pthread.h>

struct state { uint64_t general[16]; uint64_t vector[32]; };
void regs_around(void (*callee)(void), const struct state *in, struct state *out);
void keep_push(void), keep_endbr(void), keep_nop5(void), keep_short(void), keep_rip(void);
void keep_call(void), keep_jcc(void), keep_stack(void);

static const struct { const char *name; void (*callee)(void); } callees[] = {
    {"keep_endbr", keep_endbr}, {"keep_nop5", keep_nop5}, {"keep_short", keep_short},
    {"keep_rip", keep_rip}, {"keep_call", keep_call}, {"keep_jcc", keep_jcc},
    {"keep_stack", keep_stack}, {"keep_push", keep_push},
};
enum { CALLEES = sizeof callees / sizeof callees[0], RSP = 7 };
static uint64_t calls;

static uint64_t mix(uint64_t x) { x ^= x >> 29; x *= 0xbf58476d1ce4e5b9u; return x ^ x >> 32; }

static void *work(void *seed) {
    struct state in, out;
    uint64_t *words = (uint64_t *)&in;
    for (uint64_t i = 0; i < calls; i++) {
        for (size_t w = 0; w < sizeof in / 8; w++) words[w] = mix(i * 64 + w + (uint64_t)seed);
        for (int c = 0; c < CALLEES; c++) {
            memset(&out, 0, sizeof out);
            regs_around(callees[c].callee, &in, &out);
            in.general[RSP] = out.general[RSP];
            CHECK(memcmp(&in, &out, sizeof in) == 0);
        }
    }
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t other;
    calls = number(argc, argv, 1, 1000);
    wait_for_start(argc, argv);
    CHECK(pthread_create(&other, NULL, work, (void *)1) == 0);
    work((void *)2);
    CHECK(pthread_join(other, NULL) == 0);
    // keep_push is also called by keep_call.
    for (int c = 0; c < CALLEES; c++) expect(callees[c].name, 2 * calls * (c == CALLEES - 1 ? 2 : 1));
    return 0;
}
