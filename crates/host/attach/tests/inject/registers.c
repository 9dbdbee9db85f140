// Fills every register, waits in a loop that uses only its counter's register, and compares. argv: the control page's
// file. Words of the page: stop, rounds, errors, ready.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

// Returns 0 if every register, and the red zone, kept its value.
long round_of_registers(void);

__asm__(
    ".text\n"
    ".type round_of_registers, @function\n"
    "round_of_registers:\n"
    ".cfi_startproc\n"
#define SAVE(r) "push %" r "\n .cfi_adjust_cfa_offset 8\n"
#define BACK(r) "pop %" r "\n .cfi_adjust_cfa_offset -8\n"
    SAVE("rbx") SAVE("rbp") SAVE("r12") SAVE("r13") SAVE("r14") SAVE("r15")
    "movq $0x5151, -8(%rsp)\n"
    "movq $0x5252, -128(%rsp)\n"
    "mov $0x1111, %rax\n movq %rax, %xmm0\n"
    "mov $0x2222, %rax\n movq %rax, %xmm7\n pshufd $0x44, %xmm7, %xmm7\n"
    "mov $0x3333, %rax\n movq %rax, %xmm15\n pshufd $0x44, %xmm15, %xmm15\n"
    "mov $101, %rax\n mov $102, %rbx\n mov $103, %rdx\n mov $104, %rsi\n mov $105, %rdi\n"
    "mov $106, %rbp\n mov $107, %r8\n mov $108, %r9\n mov $109, %r10\n mov $110, %r11\n"
    "mov $111, %r12\n mov $112, %r13\n mov $113, %r14\n mov $114, %r15\n"
    "mov $2000000, %rcx\n"
    "stc\n"
    "1: jnc 9f\n"                          // dec and loop keep the carry flag
    "loop 1b\n"
    "jnc 9f\n"
#define SAME(r, v) "cmp $" v ", %" r "\n jne 9f\n"
    SAME("rax", "101") SAME("rbx", "102") SAME("rdx", "103") SAME("rsi", "104")
    SAME("rdi", "105") SAME("rbp", "106") SAME("r8", "107") SAME("r9", "108")
    SAME("r10", "109") SAME("r11", "110") SAME("r12", "111") SAME("r13", "112")
    SAME("r14", "113") SAME("r15", "114") SAME("rcx", "0")
    "cmpq $0x5151, -8(%rsp)\n jne 9f\n"
    "cmpq $0x5252, -128(%rsp)\n jne 9f\n"
    "movq %xmm0, %rax\n cmp $0x1111, %rax\n jne 9f\n"
    "movhlps %xmm7, %xmm0\n movq %xmm0, %rax\n cmp $0x2222, %rax\n jne 9f\n"
    "movhlps %xmm15, %xmm0\n movq %xmm0, %rax\n cmp $0x3333, %rax\n jne 9f\n"
    "xor %eax, %eax\n"
    "jmp 8f\n"
    "9: mov $1, %eax\n"
    "8:\n"
    BACK("r15") BACK("r14") BACK("r13") BACK("r12") BACK("rbp") BACK("rbx")
    "ret\n"
    ".cfi_endproc\n"
    ".size round_of_registers, . - round_of_registers\n");

__attribute__((target("avx"))) static long round_of_ymm(void) {
    long bad = 0;
    __asm__ volatile("vpcmpeqd %%xmm3, %%xmm3, %%xmm3\n vinsertf128 $1, %%xmm3, %%ymm3, %%ymm3\n"
                     "mov $500000, %%rcx\n 1: loop 1b\n"
                     "vextractf128 $1, %%ymm3, %%xmm3\n vmovq %%xmm3, %%rcx\n"
                     "cmp $-1, %%rcx\n setne %b0\n vzeroupper"
                     : "+r"(bad)::"rcx", "xmm3", "cc");
    return bad;
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    pid_t parent = getppid();
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != parent) return 6;
    int fd = open(argv[1], O_RDWR);
    volatile long *control = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    int avx = __builtin_cpu_supports("avx");
    control[3] = getpid();
    while (!control[0]) {
        control[2] += round_of_registers();
        if (avx) control[2] += round_of_ymm();
        control[1]++;
    }
    return control[2] != 0;
}
