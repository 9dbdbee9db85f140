// cflags: -O2
// The constructor of `early` calls `early_work` 7 times before main.
#include "common.h"

int early_work(int);
extern int early_calls;

PROBED int own_work(int x) { KEEP(); return x + 1; }
__attribute__((constructor)) static void construct(void) { CHECK(own_work(4) == 5); }

int main(void) {
    for (int i = 0; i < 3; i++) CHECK(early_work(i) == i + 1 && own_work(i) == i + 1);
    CHECK(early_calls == 10);
    expect("early_work", 10);
    expect("own_work", 4);
    return 0;
}
