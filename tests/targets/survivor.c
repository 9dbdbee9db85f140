// cflags: -O2 -pthread -I../../crates/apps/scope/include
// survivor THREADS [wait]: threads call functions, wait for a lock and enter scopes (named parts of work).
#include "common.h"

#define TIPTOE_IMPLEMENTATION
#include "tiptoe.h"

#include <stdatomic.h>

static const tiptoe_scope turn_scope = TIPTOE_SCOPE("turn");
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t turns;
static atomic_int stopped;
static atomic_uint_least64_t all;

PROBED int leaf(int x, int y) { KEEP(); return x * 3 + y; }

PROBED int outer(int x) {
    int sum = 0;
    for (int i = 0; i < 10; i++) sum += leaf(i, x);
    return sum;
}

static void *run(void *none) {
    uint64_t own = 0;
    while (!atomic_load(&stopped)) {
        tiptoe_token token = tiptoe_scope_enter(&turn_scope);
        for (int i = 0; i < 50; i++) CHECK(outer(i) == 135 + 10 * i);
        CHECK(pthread_mutex_lock(&lock) == 0);
        turns++, own++;
        for (volatile int i = 0; i < 1000; i++) {}
        CHECK(pthread_mutex_unlock(&lock) == 0);
        tiptoe_scope_exit(token);
        usleep(300);
    }
    atomic_fetch_add(&all, own);
    return none;
}

int main(int argc, char **argv) {
    pthread_t threads[16];
    uint64_t count = number(argc, argv, 1, 4);
    char end;
    CHECK(count <= 16);
    wait_for_start(argc, argv);
    for (uint64_t i = 0; i < count; i++) CHECK(pthread_create(&threads[i], NULL, run, NULL) == 0);
    while (read(0, &end, 1) > 0) {}
    stopped = 1;
    for (uint64_t i = 0; i < count; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(turns == all);
    expect("turns", turns);
    return 0;
}
