// cflags: -O2 -g
// inlined CALLS [wait]: a function that is inlined into one of two callers.
#include "common.h"

static volatile int sink;
extern int hot(int x);
static inline __attribute__((always_inline)) int body(int x) { sink = x; return x + 1; }
int hot(int x) { return body(x); }
PROBED int all(int n) {
    int sum = 0;
    for (int i = 0; i < n; i++) sum += hot(i);
    return sum;
}

int main(int argc, char **argv) {
    int calls = (int)number(argc, argv, 1, 100);
    int (*volatile called)(int) = hot;
    wait_for_start(argc, argv);
    int sum = all(10 * calls);
    for (int i = 0; i < calls; i++) sum += called(i);
    CHECK(sum != 0);
    expect("hot", (uint64_t)calls);
    return 0;
}
