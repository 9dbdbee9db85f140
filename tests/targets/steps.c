// cflags: -O1 -fcf-protection=none
// steps: single-steps itself by the trap flag. Its handler must see each instruction once, at its own address, although
// functions are patched.
#include "common.h"
#include <ucontext.h>

__asm__(".text\n"
        ".globl many, one, tiny\n"
        ".type many, @function\n.balign 16\n"
        "many:\n"
        "  mov %edi, %ecx\n"
        "  nop\n"
        "  nop\n"
        "  lodsb\n" // executing it twice would be visible
        "  mov %rsi, %rax\n"
        "  ret\n"
        ".size many, . - many\n"
        ".type one, @function\n.balign 16\n"
        "one:\n"
        "  mov $7, %eax\n"
        "  ret\n"
        ".size one, . - one\n"
        ".type tiny, @function\n.balign 16\n"
        "tiny: ret\n"
        ".size tiny, . - tiny\n");
char *many(long, const char *);
int one(void);
void tiny(void);

extern char __executable_start[], etext[];

static const int STEPS_MANY[] = {0, 2, 3, 4, 5, 8}, STEPS_ONE[] = {0, 5}, STEPS_TINY[] = {0};

static uintptr_t seen[64];
static volatile int count, foreign, with_other_code;

static void on_trap(int signal, siginfo_t *info, void *context) {
    uintptr_t rip = (uintptr_t)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
    (void)signal;
    if (info->si_code != TRAP_TRACE) with_other_code++;
    if (rip < (uintptr_t)__executable_start || rip >= (uintptr_t)etext) foreign++;
    if (count < 64) seen[count] = rip;
    count++;
}

static inline void set_flag(int on) {
    if (on) __asm__ volatile("pushfq; orq $0x100, (%%rsp); popfq" ::: "memory", "cc");
    else __asm__ volatile("pushfq; andq $~0x100, (%%rsp); popfq" ::: "memory", "cc");
}

static void check(const void *function, const int *offsets, int steps) {
    int found = 0;
    for (int i = 0; i < count && i < 64; i++) {
        intptr_t offset = (intptr_t)seen[i] - (intptr_t)function;
        if (offset < 0 || offset >= 16) continue;
        CHECK(found < steps && offsets[found] == offset);
        found++;
    }
    CHECK(found == steps && foreign == 0 && with_other_code == 0 && count <= 64);
    count = 0;
}
#define STEPPED(function, call)                                                  \
    do {                                                                         \
        set_flag(1);                                                             \
        call;                                                                    \
        set_flag(0);                                                             \
        check((const void *)function, STEPS_##function, sizeof STEPS_##function / sizeof(int)); \
    } while (0)
#define STEPS_many STEPS_MANY
#define STEPS_one STEPS_ONE
#define STEPS_tiny STEPS_TINY

int main(void) {
    static const char text[64];
    const uint64_t rounds = 10;
    struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO};
    CHECK(sigaction(SIGTRAP, &action, NULL) == 0);
    for (uint64_t i = 0; i < rounds; i++) {
        char *volatile end;
        int volatile seven;
        STEPPED(many, end = many(1, text));
        CHECK(end == text + 1);
        STEPPED(one, seven = one());
        CHECK(seven == 7);
        STEPPED(tiny, tiny());
    }
    expect("many", rounds);
    expect("one", rounds);
    expect("tiny", rounds);
    return 0;
}
