// cflags: -O2
// names CALLS [wait]: C++ names, and exceptions that cross probed functions.
#include "common.h"
#include <stdexcept>
#include <string>

namespace shop {
struct Cart {
    int total = 0;
    PROBED void add(int price) { KEEP(); total += price; }
    PROBED int check(int limit) const {
        KEEP();
        if (total > limit) throw std::runtime_error("too much");
        return total;
    }
};
template <typename T> PROBED T larger(T a, T b) { KEEP(); return a > b ? a : b; }
PROBED int guarded(const Cart &cart, int limit) {
    std::string note(100, 'x');
    int result = cart.check(limit);
    return result + static_cast<int>(note.size()) - 100;
}
}  // namespace shop

int main(int argc, char **argv) {
    int calls = static_cast<int>(number(argc, argv, 1, 1000)), thrown = 0;
    wait_for_start(argc, argv);
    shop::Cart cart;
    for (int i = 0; i < calls; i++) {
        cart.add(1);
        CHECK(shop::larger(i, 5) == (i > 5 ? i : 5));
        try {
            CHECK(shop::guarded(cart, calls / 2) == i + 1);
        } catch (const std::runtime_error &error) {
            thrown += std::string(error.what()) == "too much";
        }
    }
    CHECK(thrown == calls - calls / 2);
    expect("shop::Cart::add", static_cast<uint64_t>(calls));
    expect("shop::Cart::check", static_cast<uint64_t>(calls));
    expect("shop::guarded", static_cast<uint64_t>(calls));
    return 0;
}
