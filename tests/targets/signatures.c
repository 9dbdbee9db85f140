// cflags: -O2 -g
// Functions with other parameters than two integers.
#include "common.h"

enum colour { RED };

struct pair {
    long one, other;
};

typedef const int *volatile place;

PROBED void takes_none(void) { KEEP(); }
PROBED void takes_one(long one) { KEEP(); (void)one; }
PROBED void takes_two(place one, enum colour other) { KEEP(); (void)one, (void)other; }
PROBED void takes_real(double real, int one) { KEEP(); (void)real, (void)one; }
PROBED void takes_pair(struct pair pair) { KEEP(); (void)pair; }
PROBED void takes_more(int count, ...) { KEEP(); (void)count; }

int main(void) {
    static const int seven = 7;
    takes_none();
    takes_one(41);
    takes_two(&seven, RED);
    takes_real(0.5, 42);
    takes_pair((struct pair){1, 2});
    takes_more(1, 3);
    return 0;
}
