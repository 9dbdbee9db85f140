// cflags: -O2
// Ends at once, after seven futex calls.
#include "common.h"
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

static int word;

int main(void) {
    for (int i = 0; i < 7; i++) syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 1, 0);
    return 0;
}
