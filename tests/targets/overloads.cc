// cflags: -O2
// overloads CALLS [wait]: two functions of one name.
#include "common.h"

namespace shop {
PROBED int put(int x) { KEEP(); return x + 1; }
PROBED double put(double x) { KEEP(); return x + 1; }
}  // namespace shop

int main(int argc, char **argv) {
    int calls = static_cast<int>(number(argc, argv, 1, 1000));
    wait_for_start(argc, argv);
    for (int i = 0; i < calls; i++) {
        CHECK(shop::put(i) == i + 1);
        if (i % 2 == 0) CHECK(shop::put(0.5 * i) == 0.5 * i + 1);
    }
    expect("shop::put(int)", static_cast<uint64_t>(calls));
    expect("shop::put(double)", static_cast<uint64_t>((calls + 1) / 2));
    return 0;
}
