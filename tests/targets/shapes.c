// cflags: -O2 shapes.S
// shapes CALLS [wait]: calls the functions of shapes.S and checks each answer.
#include "common.h"

#define PLAIN(X)                                                                              \
    X(shape_push) X(shape_endbr) X(shape_mov) X(shape_nop5) X(shape_nops) X(shape_short_jcc)  \
    X(shape_jrcxz) X(shape_rip_load) X(shape_rip_compare) X(shape_call_first)                 \
    X(shape_tail_jump) X(shape_short_tail) X(shape_indirect) X(shape_dense)                   \
    X(shape_head_at_four) X(shape_red_zone)

#define DECLARE(name) int name(int);
PLAIN(DECLARE)
int shape_loop_entry(int), shape_loop_inside(int);
void shape_ret(void), shape_ret_first(void), shape_ret_second(void);

int main(int argc, char **argv) {
    int calls = (int)number(argc, argv, 1, 1000);
    uint64_t passes = 0;
    wait_for_start(argc, argv);
    for (int i = 0; i < calls; i++) {
#define CALL(name) CHECK(name(i) == i + 1);
        PLAIN(CALL)
        shape_ret();
        shape_ret_first();
        shape_ret_second();
        passes += (uint64_t)i % 5 + 1;
        CHECK(shape_loop_entry(i % 5 + 1) == 77);
        CHECK(shape_loop_inside(i % 5 + 1) == i % 5 + 1);
    }
    // shape_mov is reached by itself, by a call, and by two jumps.
#define EXPECT(name) expect(#name, (uint64_t)calls * (strcmp(#name, "shape_mov") ? 1 : 4));
    PLAIN(EXPECT)
    expect("shape_ret", (uint64_t)calls);
    expect("shape_ret_first", (uint64_t)calls);
    expect("shape_ret_second", (uint64_t)calls);
    expect("shape_loop_entry", passes);
    expect("shape_loop_inside", (uint64_t)calls);
    return 0;
}
