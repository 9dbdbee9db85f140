/*
 * Runs each instruction of a file of code and records what it changed.
 *
 * Arguments: FILE OF CODE, OUTPUT. For each number N on standard input, maps the file, runs its
 * first N slots REPEAT times, writes the results, and unmaps the file. All addresses are fixed
 * and below 4 GiB, because the code contains 32-bit addresses. opcodes.rs has a slot's layout.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>

enum {
    SLOT = 192, BEGIN = 128, REPEAT = 2,
    /* Between unmapped pages, so that a string instruction that does not stop faults. */
    DATA = 0x20000000, DATA_LEN = 0x3000,
    /* Targets of jumps through memory and registers. popf may load them as flags, so no harmful bit is set. */
    FAR = 0x30000000, FALL = 0x30001000,
    CODE = 0x40000000,
};

struct result {
    uint64_t registers[16], flags, exit, signal, vectors, memory;
};

/* The assembly below uses the fields' offsets. */
struct state {
    uint64_t in[16], out[16], flags, exit, target, stack, base;
    uint64_t padding[3];
    uint8_t before[8192], after[8192];
} __attribute__((aligned(64)));

struct state state;
static volatile uint64_t signal_seen;
extern void run_instruction(void);
extern void leave_instruction(void);

__asm__(
    ".text\n.globl run_instruction\nrun_instruction:\n"
    "  push %rbx; push %rbp; push %r12; push %r13; push %r14; push %r15\n"
    "  mov %rsp, state+280(%rip)\n"
    "  rdfsbase %rax; mov %rax, state+288(%rip)\n"
    "  mov $-1, %eax; mov $-1, %edx; xrstor64 state+320(%rip)\n"
    "  push $0x202; popfq\n"
    "  mov state(%rip), %rax; mov state+8(%rip), %rcx; mov state+16(%rip), %rdx; mov state+24(%rip), %rbx\n"
    "  mov state+32(%rip), %rsp; mov state+40(%rip), %rbp; mov state+48(%rip), %rsi; mov state+56(%rip), %rdi\n"
    "  mov state+64(%rip), %r8; mov state+72(%rip), %r9; mov state+80(%rip), %r10; mov state+88(%rip), %r11\n"
    "  mov state+96(%rip), %r12; mov state+104(%rip), %r13; mov state+112(%rip), %r14; mov state+120(%rip), %r15\n"
    "  jmp *state+272(%rip)\n"
    ".globl leave_instruction\nleave_instruction:\n"
    "  mov %rax, state+128(%rip); mov %rcx, state+136(%rip); mov %rdx, state+144(%rip); mov %rbx, state+152(%rip)\n"
    "  mov %rsp, state+160(%rip); mov %rbp, state+168(%rip); mov %rsi, state+176(%rip); mov %rdi, state+184(%rip)\n"
    "  mov %r8, state+192(%rip); mov %r9, state+200(%rip); mov %r10, state+208(%rip); mov %r11, state+216(%rip)\n"
    "  mov %r12, state+224(%rip); mov %r13, state+232(%rip); mov %r14, state+240(%rip); mov %r15, state+248(%rip)\n"
    "  mov state+280(%rip), %rsp\n"
    "  pushfq; pop state+256(%rip); push $0x202; popfq\n"
    "  mov state+288(%rip), %rax; wrfsbase %rax\n"
    "  mov $-1, %eax; mov $-1, %edx; xsave64 state+8512(%rip)\n"
    "  xrstor64 state+320(%rip)\n"
    "  pop %r15; pop %r14; pop %r13; pop %r12; pop %rbp; pop %rbx\n"
    "  ret\n");

/* Must not use thread-local storage, because the instruction may have changed fs. */
__attribute__((optimize("no-stack-protector")))
static void caught(int signal, siginfo_t *info, void *context) {
    static uint64_t target;
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    (void)info;
    /* An instruction that still runs at the second tick would run forever. */
    if (signal == SIGVTALRM && (target != state.target || registers[REG_RIP] < DATA)) {
        target = state.target;
        return;
    }
    signal_seen = signal;
    registers[REG_RIP] = (greg_t)leave_instruction;
    registers[REG_EFL] = 0x202;
}

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static uint8_t *map(uint64_t at, size_t len, int protection, int fd) {
    int flags = MAP_PRIVATE | MAP_FIXED_NOREPLACE | (fd < 0 ? MAP_ANONYMOUS : 0);
    uint8_t *got = mmap((void *)at, len, protection, flags, fd, 0);
    if (got != (uint8_t *)at) fail("mmap");
    return got;
}

static uint64_t mix(uint64_t sum, const void *bytes, size_t len) {
    uint64_t word;
    for (size_t at = 0; at < len; at += 8) {
        memcpy(&word, (const char *)bytes + at, 8);
        sum = (sum ^ word) * 0x9e3779b97f4a7c15;
        sum ^= sum >> 29;
    }
    return sum;
}

/* mov $number, exit; jmp leave_instruction */
static void landing(uint8_t *at, uint32_t number) {
    uint32_t exit = (uint32_t)(uintptr_t)&state.exit;
    *at++ = 0xc7, *at++ = 0x04, *at++ = 0x25;
    memcpy(at, &exit, 4), memcpy(at + 4, &number, 4);
    at[8] = 0xe9;
    int32_t distance = (intptr_t)leave_instruction - (intptr_t)(at + 13);
    memcpy(at + 9, &distance, 4);
}

static uint64_t pattern(uint64_t *seed) {
    *seed = *seed * 6364136223846793005 + 1442695040888963407;
    return *seed ^ *seed >> 31;
}

static uint8_t fresh[DATA_LEN];

static void prepare(void) {
    uint64_t seed = 1;
    for (size_t at = 0; at < sizeof fresh; at += 8) {
        uint64_t word = pattern(&seed) & 0x3fffffff3fffffff;
        memcpy(fresh + at, &word, 8);
    }
    /* rbx and rsp point at addresses of code. */
    uint64_t far = FAR;
    for (size_t at = 0x400; at < 0x500; at += 8) memcpy(fresh + at, &far, 8);
    for (size_t at = 0x1800; at < 0x1900; at += 8) memcpy(fresh + at, &far, 8);
    uint64_t registers[16] = {FAR + 16, 3, 2, DATA + 0x400, DATA + 0x1800, DATA + 0x1000, DATA + 0x1400, DATA + 0x2000};
    for (int number = 8; number < 16; number++) registers[number] = DATA + 0x800 + number * 64;
    memcpy(state.in, registers, sizeof registers);
    __asm__ volatile("fninit; xsave64 %0" : "+m"(state.before) : "a"(-1), "d"(-1));
    /* Fills vector registers only: XSAVE's components 1, 2, 5, 6 and 7. */
    uint64_t known;
    memcpy(&known, state.before + 512, 8);
    uint32_t enabled;
    __asm__("xgetbv" : "=a"(enabled) : "c"(0) : "edx");
    for (size_t at = 160; at < 416; at += 4) {
        uint32_t number = pattern(&seed) & 0x3fffffff;
        memcpy(state.before + at, &number, 4);
    }
    for (int part = 2; part < 8; part++) {
        uint32_t len, offset, leaf = part;
        if (!(enabled >> part & 1) || part == 3 || part == 4) continue;
        __asm__("cpuid" : "=a"(len), "=b"(offset), "+c"(leaf) : "a"(13) : "edx");
        for (size_t at = 0; at < len; at += 4) {
            uint32_t number = pattern(&seed) & 0x3fffffff;
            memcpy(state.before + offset + at, &number, 4);
        }
        known |= 1 << part;
    }
    known |= 3;
    memcpy(state.before + 512, &known, 8);
}

static struct result run(uint64_t slot) {
    struct result result;
    memcpy((void *)(uintptr_t)DATA, fresh, sizeof fresh);
    state.target = CODE + slot * SLOT + BEGIN;
    state.exit = signal_seen = 0;
    memset(state.after, 0, sizeof state.after);
    run_instruction();
    memcpy(result.registers, state.out, sizeof state.out);
    result.flags = state.flags, result.exit = state.exit, result.signal = signal_seen;
    /* Cleared, because a probe may change them: the x87's last address, and which parts of the state are in use. */
    memset(state.after + 8, 0, 8), memset(state.after + 512, 0, 64);
    result.vectors = mix(0, state.after, sizeof state.after);
    result.memory = mix(0, (void *)(uintptr_t)DATA, DATA_LEN);
    return result;
}

int main(int count, char **arguments) {
    if (count != 3) return 2;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    sched_setaffinity(0, sizeof one, &one);
    stack_t stack = {.ss_size = 65536, .ss_sp = malloc(65536)};
    sigaltstack(&stack, 0);
    struct sigaction action = {.sa_sigaction = caught, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
    int signals[] = {SIGILL, SIGSEGV, SIGFPE, SIGBUS, SIGTRAP, SIGVTALRM};
    for (int each = 0; each < 6; each++) sigaction(signals[each], &action, 0);
    struct timeval tick = {.tv_usec = 50000};
    setitimer(ITIMER_VIRTUAL, &(struct itimerval){tick, tick}, 0);
    map(DATA, DATA_LEN, PROT_READ | PROT_WRITE, -1);
    uint8_t *landings = map(FAR, 0x2000, PROT_READ | PROT_WRITE | PROT_EXEC, -1);
    memset(landings, 0x90, 0x2000);
    landing(landings + 0x80, 1), landing(landings + (FALL - FAR), 2);
    /* Write-protected, because an instruction may write to the address in a register. */
    if (mprotect(landings, 0x2000, PROT_READ | PROT_EXEC)) fail("mprotect");
    prepare();
    uint64_t slots;
    while (scanf("%lu", &slots) == 1) {
        int code = open(arguments[1], O_RDONLY), out = open(arguments[2], O_WRONLY | O_CREAT | O_TRUNC, 0600);
        uint8_t *at = map(CODE, slots * SLOT, PROT_READ | PROT_EXEC, code);
        struct result *results = calloc(slots, sizeof *results);
        for (int turn = 0; turn < REPEAT; turn++)
            for (uint64_t slot = 0; slot < slots; slot++) results[slot] = run(slot);
        if (write(out, results, slots * sizeof *results) != (ssize_t)(slots * sizeof *results)) fail("write");
        munmap(at, slots * SLOT);
        free(results), close(code), close(out);
        puts("done"), fflush(stdout);
    }
}
