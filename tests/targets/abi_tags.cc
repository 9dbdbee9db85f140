// cflags: -O2
// abi_tags CALLS [wait]: functions with an ABI tag (`f[abi:cxx11]`) and with qualifiers.
#include "common.h"
#include <string>

PROBED std::string tagged(int x) { KEEP(); return x & 1 ? "a" : "b"; }

namespace shop {
struct Box {
    int value;
    PROBED std::string label() const { KEEP(); return value ? "x" : "y"; }
};
}  // namespace shop

template <class F> PROBED int repeat(F f, int times) {
    int sum = 0;
    for (int i = 0; i < times; i++) sum += f(i);
    return sum;
}

int main(int argc, char **argv) {
    int calls = static_cast<int>(number(argc, argv, 1, 300));
    wait_for_start(argc, argv);
    shop::Box box{1};
    size_t length = 0;
    for (int i = 0; i < calls; i++) length += tagged(i).size() + box.label().size();
    CHECK(length == 2 * static_cast<size_t>(calls));
    CHECK(repeat([](int x) PROBED { KEEP(); return x * 0 + 1; }, calls) == calls);
    return 0;
}
