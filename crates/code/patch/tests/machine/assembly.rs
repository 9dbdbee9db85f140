//! Enters and leaves generated code, and replaces the agent.

std::arch::global_asm!(
    ".section .tbss,\"awT\",@nobits",
    ".balign 8",
    "tiptoe_test_tls: .zero 16",
    ".data",
    ".balign 8",
    ".globl tiptoe_test_state, tiptoe_test_calls",
    "tiptoe_test_state: .zero 19*8",
    "tiptoe_test_calls: .zero 8*8",
    // Code has its own stack, always at the same address.
    ".bss",
    ".balign 64",
    "tiptoe_test_stack: .zero 1<<18",
    "tiptoe_test_stack_end: .zero 64",
    "tiptoe_test_caller: .zero 8",
    ".text",
    ".globl tiptoe_test_run, tiptoe_test_set_tls, tiptoe_test_cold, tiptoe_test_hook",
    ".globl tiptoe_test_slow, tiptoe_test_time, tiptoe_test_set_frames, tiptoe_test_frames",
    // Sets the thread's descriptor; returns the offset of the pointer.
    "tiptoe_test_set_tls:",
    "mov tiptoe_test_tls@gottpoff(%rip), %rax",
    "mov %rdi, %fs:(%rax)",
    "ret",
    // Sets the end of its frames.
    "tiptoe_test_set_frames:",
    "mov tiptoe_test_tls@gottpoff(%rip), %rax",
    "mov %rdi, %fs:8(%rax)",
    "ret",
    "tiptoe_test_frames:",
    "mov tiptoe_test_tls@gottpoff(%rip), %rax",
    "mov %fs:8(%rax), %rax",
    "ret",
    "tiptoe_test_run:",
    "push %rbx; push %rbp; push %r12; push %r13; push %r14; push %r15",
    "mov %rsp, tiptoe_test_caller(%rip)",
    "lea tiptoe_test_stack_end(%rip), %rsp",
    "lea tiptoe_test_state(%rip), %rbx",
    "mov 144(%rbx), %rcx; lea -8(%rsp), %rax; mov %rax, (%rcx)",
    "push 128(%rbx); popfq",
    "mov 0(%rbx), %rax; mov 8(%rbx), %rcx; mov 16(%rbx), %rdx; mov 40(%rbx), %rbp",
    "mov 48(%rbx), %rsi; mov 56(%rbx), %rdi; mov 64(%rbx), %r8; mov 72(%rbx), %r9",
    "mov 80(%rbx), %r10; mov 88(%rbx), %r11; mov 96(%rbx), %r12; mov 104(%rbx), %r13",
    "mov 112(%rbx), %r14; mov 120(%rbx), %r15; mov 24(%rbx), %rbx",
    "call *136+tiptoe_test_state(%rip)",
    "mov %rbx, 24+tiptoe_test_state(%rip)",
    "lea tiptoe_test_state(%rip), %rbx",
    "mov %rax, 0(%rbx); mov %rcx, 8(%rbx); mov %rdx, 16(%rbx); mov %rbp, 40(%rbx)",
    "mov %rsi, 48(%rbx); mov %rdi, 56(%rbx); mov %r8, 64(%rbx); mov %r9, 72(%rbx)",
    "mov %r10, 80(%rbx); mov %r11, 88(%rbx); mov %r12, 96(%rbx); mov %r13, 104(%rbx)",
    "mov %r14, 112(%rbx); mov %r15, 120(%rbx)",
    "mov %rsp, 32(%rbx)",
    "pushfq; pop 128(%rbx)",
    "cld",
    "mov tiptoe_test_caller(%rip), %rsp",
    "pop %r15; pop %r14; pop %r13; pop %r12; pop %rbp; pop %rbx",
    "ret",
    "tiptoe_test_cold:",
    "push %rax",
    "mov 16(%rsp), %rax",
    "mov %rax, 8+tiptoe_test_calls(%rip)",
    "incq tiptoe_test_calls(%rip)",
    "pop %rax",
    "ret $8",
    "tiptoe_test_slow:",
    "mov %rcx, 32+tiptoe_test_calls(%rip)",
    "mov 40(%rsp), %rax",
    "mov %rax, 40+tiptoe_test_calls(%rip)",
    "incq 48+tiptoe_test_calls(%rip)",
    "xor %eax, %eax",
    "ret $8",
    "tiptoe_test_time:",
    "incq 56+tiptoe_test_calls(%rip)",
    "xor %eax, %eax; xor %edx, %edx",
    "ret",
    "tiptoe_test_hook:",
    "pushfq",
    "push %rax",
    "mov 24(%rsp), %rax",
    "mov %rax, 24+tiptoe_test_calls(%rip)",
    "incq 16+tiptoe_test_calls(%rip)",
    // Makes getppid itself, and every call whose number is in the register.
    "cmp $110, %rax",
    "je 1f",
    "cmp $-1, %rax",
    "pop %rax",
    "jne 2f",
    "push %rax",
    "1: pop %rax",
    "mov $0x1234, %eax",
    "addq $24, 8(%rsp)",
    "2: popfq",
    "ret $8",
    options(att_syntax),
);

unsafe extern "C" {
    pub static mut tiptoe_test_state: [u64; 19];
    pub static mut tiptoe_test_calls: [u64; 8];
    pub fn tiptoe_test_run();
    pub fn tiptoe_test_set_tls(descriptor: *const u64) -> u64;
    pub fn tiptoe_test_cold();
    pub fn tiptoe_test_hook();
    pub fn tiptoe_test_slow();
    pub fn tiptoe_test_time();
    pub fn tiptoe_test_set_frames(end: u64);
    pub fn tiptoe_test_frames() -> u64;
}
