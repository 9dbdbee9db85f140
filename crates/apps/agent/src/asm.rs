//! The stubs: what must be exact to the register.
//!
//! `tiptoe_cold_entry` and `tiptoe_hook_entry` are called by trampolines with
//! one argument on the stack, which they pop; they preserve every register
//! (the cold entry all but rax and the flags, which its trampoline restores).
//! The Rust code behind them is compiled for baseline x86-64, so it can
//! change no more of the vector state than xmm0-15: legacy SSE instructions
//! leave the upper halves alone.
//!
//! Each says at each instruction where its caller's registers are: a signal may have a
//! profiler look at the stack from here.

use core::arch::global_asm;

global_asm!(
    ".text",
    ".macro tiptoe_begin name",
    ".hidden \\name",
    ".global \\name",
    ".p2align 4",
    "\\name:",
    ".cfi_startproc",
    ".endm",
    ".macro tiptoe_push registers:vararg",
    ".irp register, \\registers",
    "push \\register",
    ".cfi_adjust_cfa_offset 8",
    ".cfi_rel_offset \\register, 0",
    ".endr",
    ".endm",
    ".macro tiptoe_pop registers:vararg",
    ".irp register, \\registers",
    "pop \\register",
    ".cfi_adjust_cfa_offset -8",
    ".cfi_restore \\register",
    ".endr",
    ".endm",
    ".macro tiptoe_save_xmm",
    "sub rsp, 256",
    "movups [rsp], xmm0", "movups [rsp+16], xmm1", "movups [rsp+32], xmm2",
    "movups [rsp+48], xmm3", "movups [rsp+64], xmm4", "movups [rsp+80], xmm5",
    "movups [rsp+96], xmm6", "movups [rsp+112], xmm7", "movups [rsp+128], xmm8",
    "movups [rsp+144], xmm9", "movups [rsp+160], xmm10", "movups [rsp+176], xmm11",
    "movups [rsp+192], xmm12", "movups [rsp+208], xmm13", "movups [rsp+224], xmm14",
    "movups [rsp+240], xmm15",
    ".endm",
    ".macro tiptoe_restore_xmm",
    "movups xmm0, [rsp]", "movups xmm1, [rsp+16]", "movups xmm2, [rsp+32]",
    "movups xmm3, [rsp+48]", "movups xmm4, [rsp+64]", "movups xmm5, [rsp+80]",
    "movups xmm6, [rsp+96]", "movups xmm7, [rsp+112]", "movups xmm8, [rsp+128]",
    "movups xmm9, [rsp+144]", "movups xmm10, [rsp+160]", "movups xmm11, [rsp+176]",
    "movups xmm12, [rsp+192]", "movups xmm13, [rsp+208]", "movups xmm14, [rsp+224]",
    "movups xmm15, [rsp+240]",
    ".endm",
    // Hands the record on the stack to a function that may change it.
    ".macro tiptoe_pass_record function",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    "and rsp, -16",
    "tiptoe_save_xmm",
    "cld",
    "mov rdi, rbp",
    "call \\function",
    "tiptoe_restore_xmm",
    "mov rsp, rbp",
    ".cfi_def_cfa_register rsp",
    ".endm",
    // Stack on entry: return address, slot. The first two arguments of the program's call
    // are in rdi and rsi still; they become the third and the second of ours.
    "tiptoe_begin tiptoe_cold_entry",
    "tiptoe_push rbp, rdi, rsi, rdx, rcx, r8, r9, r10, r11",
    "lea rbp, [rsp+64]",
    ".cfi_def_cfa rbp, 16",
    "and rsp, -16",
    "tiptoe_save_xmm",
    "cld",
    "mov rdx, rdi",
    "mov rdi, [rbp+16]",
    "call {cold}",
    "tiptoe_restore_xmm",
    "lea rsp, [rbp-64]",
    ".cfi_def_cfa rsp, 80",
    "tiptoe_pop r11, r10, r9, r8, rcx, rdx, rsi, rdi, rbp",
    "ret 8",
    ".cfi_endproc",
    // Stack on entry: return address, what is hooked. Builds a `hooks::Frame`.
    "tiptoe_begin tiptoe_hook_entry",
    "pushfq",
    ".cfi_adjust_cfa_offset 8",
    "tiptoe_push r15, r14, r13, r12, r11, r10, r9, r8, rdi, rsi, rbp, rbx, rdx, rcx, rax",
    "tiptoe_pass_record {hook}",
    "tiptoe_pop rax, rcx, rdx, rbx, rbp, rsi, rdi, r8, r9, r10, r11, r12, r13, r14, r15",
    "popfq",
    ".cfi_adjust_cfa_offset -8",
    "ret 8",
    ".cfi_endproc",
    // Stack on entry: return address, what is asked, rdx, rcx, rax, and the word
    // where the followed call's return address stands. Builds a `calls::Asked`;
    // rax comes back as the answer.
    "tiptoe_begin tiptoe_slow_entry",
    "tiptoe_push r11, r10, r9, r8, rdi, rsi, rbp, rdx, rcx, rax",
    "tiptoe_pass_record {slow}",
    "tiptoe_pop rax, rcx, rdx, rbp, rsi, rdi, r8, r9, r10, r11",
    "ret 8",
    ".cfi_endproc",
    // Stack on entry: return address, what is known of the place. Builds a `locks::Told`. It
    // runs so often that vector registers are not saved: what it calls uses none, which
    // xtask looks after, but for the way through `tiptoe_first_slab`.
    // Nor is the direction flag, which is clear where a compiler makes a call: `cld` takes 4 ns.
    // The thread's slab is the second argument: all that is noted waits for that, which is behind
    // three loads, so they come first.
    "tiptoe_begin tiptoe_futex_entry",
    "tiptoe_push r11",
    "mov r11, [rip + tiptoe_tls_descriptor@GOTTPOFF]",
    "tiptoe_push rsi",
    "mov rsi, fs:[r11]",
    "mov rsi, [rsi]",
    "tiptoe_push r10, r9, r8, rdi, rbp, rdx, rcx, rax",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    "and rsp, -16",
    "mov rdi, rbp",
    "call {futex}",
    "mov rsp, rbp",
    ".cfi_def_cfa_register rsp",
    "tiptoe_pop rax, rcx, rdx, rbp, rdi, r8, r9, r10, rsi, r11",
    "ret 8",
    ".cfi_endproc",
    // Called as any function, by one that may not touch vector registers.
    "tiptoe_begin tiptoe_first_slab",
    "tiptoe_push rbp",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    "and rsp, -16",
    "cld",
    "tiptoe_save_xmm",
    "call {first_slab}",
    "tiptoe_restore_xmm",
    "mov rsp, rbp",
    ".cfi_def_cfa_register rsp",
    "tiptoe_pop rbp",
    "ret",
    ".cfi_endproc",
    // What a signal handler returns to: unwinders know it by these very bytes,
    // `mov rax, 15` in seven and `syscall`.
    ".hidden tiptoe_restorer",
    ".global tiptoe_restorer",
    ".p2align 4",
    "nop",
    "tiptoe_restorer:",
    ".byte 0x48, 0xc7, 0xc0, 15, 0, 0, 0",
    "syscall",
    // tiptoe_spawn(flags, stack, tid, tls) -> tid or -errno; the child calls
    // `run` on its stack and ends.
    ".hidden tiptoe_spawn",
    ".global tiptoe_spawn",
    ".p2align 4",
    "tiptoe_spawn:",
    "mov r8, rcx",
    "mov r10, rdx",
    "mov eax, 56",
    "syscall",
    "test rax, rax",
    "jz 2f",
    "ret",
    "2:",
    "xor ebp, ebp",
    "and rsp, -16",
    "call {run}",
    "mov eax, 60",
    "xor edi, edi",
    "syscall",
    "ud2",
    cold = sym crate::hit::cold,
    hook = sym crate::hooks::hook,
    slow = sym crate::calls::slow,
    futex = sym crate::locks::futex,
    first_slab = sym crate::locks::first_slab,
    run = sym crate::thread::run,
);

// What the compiler may call for copies and fills; never visible outside.
global_asm!(
    ".text",
    ".hidden memcpy",
    ".global memcpy",
    ".p2align 4",
    "memcpy:",
    "mov rax, rdi",
    "mov rcx, rdx",
    "rep movsb",
    "ret",
    ".hidden memmove",
    ".global memmove",
    ".p2align 4",
    "memmove:",
    "mov rax, rdi",
    "mov rcx, rdx",
    "mov r8, rdi",
    "sub r8, rsi",
    "cmp r8, rdx",
    "jb 2f",
    "rep movsb",
    "ret",
    "2:",
    "lea rdi, [rdi+rcx-1]",
    "lea rsi, [rsi+rcx-1]",
    "std",
    "rep movsb",
    "cld",
    "ret",
    ".hidden memset",
    ".global memset",
    ".p2align 4",
    "memset:",
    "mov r8, rdi",
    "mov eax, esi",
    "mov rcx, rdx",
    "rep stosb",
    "mov rax, r8",
    "ret",
    ".hidden memcmp",
    ".global memcmp",
    ".hidden bcmp",
    ".global bcmp",
    ".p2align 4",
    "memcmp:",
    "bcmp:",
    "xor eax, eax",
    "xor ecx, ecx",
    "2:",
    "cmp rcx, rdx",
    "jae 3f",
    "movzx eax, byte ptr [rdi+rcx]",
    "movzx r8d, byte ptr [rsi+rcx]",
    "inc rcx",
    "sub eax, r8d",
    "je 2b",
    "ret",
    "3:",
    "xor eax, eax",
    "ret",
);

unsafe extern "C" {
    /// See the module: reached from trampolines only.
    pub fn tiptoe_cold_entry();
    /// See the module: reached from trampolines only.
    pub fn tiptoe_hook_entry();
    /// See the module: reached from trampolines only.
    pub fn tiptoe_slow_entry();
    /// See the module: reached from trampolines only.
    pub fn tiptoe_futex_entry();
    /// [`crate::locks::first_slab`], for one who may not touch vector registers.
    pub fn tiptoe_first_slab() -> u64;
    /// rt_sigreturn.
    pub fn tiptoe_restorer();
    /// Starts the agent's thread.
    pub fn tiptoe_spawn(flags: usize, stack: usize, tid: *const u32, tls: usize) -> isize;
}
