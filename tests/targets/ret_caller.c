// cflags: -O2
// ret_caller [wait]: functions that ask for their own return address get a place that stands for the call site:
// one site, one place, however often; another site, another place.
#include "ret_common.h"

enum { ROUNDS = 1000 };
CALLS(asks); CALLS(asks_deep);

PROBED void *asks(int x) {
    ENTER(asks);
    void *place = x ? __builtin_return_address(0) : NULL;
    KEEP();
    LEAVE(asks);
    return place;
}
PROBED void *asks_deep(int depth) {
    ENTER(asks_deep);
    void *place = depth ? asks_deep(depth - 1) : asks(1);
    __asm__ volatile("" : "+r"(place));
    LEAVE(asks_deep);
    return place;
}

int main(int argc, char **argv) {
    wait_for_start(argc, argv);
    void *first = NULL, *second = NULL, *deep = NULL;
    for (int i = 0; i < ROUNDS; i++) {
        void *one = asks(1), *two = asks(2), *below = asks_deep(i % 5);
        KEEP();
        if (i == 0) { first = one; second = two; deep = below; }
        CHECK(one == first && two == second && below == deep);
        CHECK(asks(0) == NULL);
    }
    CHECK(first != second && second != deep && first != deep && first && second && deep);
    printf("places 3\n");
    TELL(asks); TELL(asks_deep);
    return 0;
}
