// cflags: -O2 -pthread
// unseen: before each of its inline futex calls, a thread blocks every signal by an inline system call.
#include "common.h"
#include <signal.h>
#include <sys/syscall.h>

static volatile int over;
static uint64_t passes;
static int word;

static long block_everything(void) {
    uint64_t all = ~0ull;
    long result;
    register long size __asm__("r10") = 8;
    __asm__ volatile("syscall" : "=a"(result)
                     : "a"((long)SYS_rt_sigprocmask), "D"((long)SIG_SETMASK), "S"(&all), "d"(0L), "r"(size)
                     : "rcx", "r11", "memory");
    return result;
}

// One call is within an aligned word, one crosses a word's end.
#define FUTEX(pad)                                                                                 \
    ({                                                                                             \
        long woken;                                                                                \
        __asm__ volatile(".balign 16\n\t.skip " #pad ", 0x90\n\tmov $202,%%eax\n\tsyscall"         \
                         : "=a"(woken) : "D"(&word), "S"(129L), "d"(1L) : "rcx", "r11", "memory"); \
        woken;                                                                                     \
    })

PROBED long within(void) { return FUTEX(0); }
PROBED long across(void) { return FUTEX(6); }

static void *pass(void *unused) {
    (void)unused;
    while (!over) {
        CHECK(block_everything() == 0);
        CHECK(within() == 0 && across() == 0);
        passes++;
    }
    return NULL;
}

int main(void) {
    pthread_t id;
    char line[64];
    CHECK(pthread_create(&id, NULL, pass, NULL) == 0);
    puts("ready");
    fflush(stdout);
    while (read(0, line, sizeof line) > 0);
    over = 1;
    CHECK(pthread_join(id, NULL) == 0);
    expect("within", passes);
    return 0;
}
