// cflags: -O2 -fno-omit-frame-pointer -mno-omit-leaf-frame-pointer -pthread
// framed_waits: waits by an inline futex call in a function with a frame pointer.
#include "common.h"
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>

static atomic_int word;

PROBED long framed_futex(int operation, int value) {
    register long timeout __asm__("r10") = 0;
    long result;
    __asm__ volatile("mov $202, %%eax\n\tsyscall\n\tcmp $-4096, %%rax"
                     : "=a"(result)
                     : "D"(&word), "S"(operation), "d"(value), "r"(timeout)
                     : "rcx", "r11", "memory", "cc");
    return result;
}

PROBED void wait_framed(int for_what) {
    for (int seen; (seen = atomic_load(&word)) < for_what;) framed_futex(FUTEX_WAIT_PRIVATE, seen);
}

static void *waiter(void *unused) {
    for (int turn = 1; turn <= 10; turn++) wait_framed(turn);
    return unused;
}

int main(void) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, waiter, NULL) == 0);
    for (int turn = 1; turn <= 10; turn++) {
        usleep(20000);
        atomic_store(&word, turn);
        framed_futex(FUTEX_WAKE_PRIVATE, 1);
        usleep(1000);
    }
    CHECK(pthread_join(thread, NULL) == 0);
    return 0;
}
