// cflags: -O2 -pthread firsts.S
// firsts THREADS [wait]: threads call the functions of firsts.S until stdin closes.
#include "common.h"
#include <pthread.h>
#include <stdatomic.h>

#define ALL(DO)                                                                                    \
    DO(push, 1) DO(push15, 2) DO(endbr64, 3) DO(mov, 4) DO(mov32, 5) DO(load, 6) DO(xor, 7)        \
    DO(lea, 8) DO(lea32, 9) DO(sub, 10) DO(call, 11) DO(jmp, 12) DO(nop5, 13) DO(nops, 14)         \
    DO(frame, 15) DO(two, 0) DO(loop, 16)

#define DECLARE(name, number) extern uint64_t first_##name(uint64_t, uint64_t *);
#define CALL(name, number) CHECK(first_##name(x, cells) == x + number);
#define EXPECT(name, number) expect("first_" #name, rounds);

ALL(DECLARE)

static atomic_int stopped;

static void *work(void *result) {
    uint64_t x = 0, cells[2] = {0, 0};
    do {
        ALL(CALL)
        x++;
    } while (!atomic_load_explicit(&stopped, memory_order_relaxed));
    *(uint64_t *)result = x;
    return NULL;
}

int main(int argc, char **argv) {
    uint64_t threads = number(argc, argv, 1, 2), rounds = 0, done[64];
    pthread_t ids[64];
    char byte;
    CHECK(threads <= 64);
    wait_for_start(argc, argv);
    for (uint64_t i = 0; i < threads; i++) CHECK(pthread_create(&ids[i], NULL, work, &done[i]) == 0);
    while (read(0, &byte, 1) > 0) {}
    atomic_store(&stopped, 1);
    for (uint64_t i = 0; i < threads; i++) {
        CHECK(pthread_join(ids[i], NULL) == 0);
        rounds += done[i];
    }
    ALL(EXPECT)
    return 0;
}
