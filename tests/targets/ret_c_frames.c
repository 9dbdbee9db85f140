// C frames that exceptions of ret_throw.cc unwind through.
#include "ret_common.h"

CALLS(c_frame);
CALLS(c_sorts);

PROBED int c_frame(int (*callee)(int), int x) {
    ENTER(c_frame);
    int result = callee(x) + 1;
    LEAVE(c_frame);
    return result;
}

// The exception crosses libc's frames too.
PROBED void c_sorts(int *numbers, size_t count, int (*compare)(const void *, const void *)) {
    ENTER(c_sorts);
    qsort(numbers, count, sizeof *numbers, compare);
    LEAVE(c_sorts);
}

void c_tell(void) {
    TELL(c_frame);
    TELL(c_sorts);
}
