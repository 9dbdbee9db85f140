// Registers filled around a call: regs_around(callee, in, out), and callees that change none.
        .text
        .macro vectors op, base
        .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
        \op \n, \base
        .endr
        .endm
        .macro load n, base
        movups 128+16*\n(\base), %xmm\n
        .endm
        .macro store n, base
        movups %xmm\n, 128+16*\n(\base)
        .endm

        .globl regs_around
        .type regs_around, @function
regs_around:
        push %rbx
        push %rbp
        push %r12
        push %r13
        push %r14
        push %r15
        push %rdx                       # out
        push %rdi                       # callee
        vectors load, %rsi
        mov 0(%rsi), %rax
        mov 8(%rsi), %rbx
        mov 16(%rsi), %rcx
        mov 24(%rsi), %rdx
        mov 40(%rsi), %rdi
        mov 48(%rsi), %rbp
        mov 64(%rsi), %r8
        mov 72(%rsi), %r9
        mov 80(%rsi), %r10
        mov 88(%rsi), %r11
        mov 96(%rsi), %r12
        mov 104(%rsi), %r13
        mov 112(%rsi), %r14
        mov 120(%rsi), %r15
        mov 32(%rsi), %rsi
        call *(%rsp)
        push %rax
        mov 16(%rsp), %rax              # out
        vectors store, %rax
        mov %rbx, 8(%rax)
        mov %rcx, 16(%rax)
        mov %rdx, 24(%rax)
        mov %rsi, 32(%rax)
        mov %rdi, 40(%rax)
        mov %rbp, 48(%rax)
        mov %r8, 64(%rax)
        mov %r9, 72(%rax)
        mov %r10, 80(%rax)
        mov %r11, 88(%rax)
        mov %r12, 96(%rax)
        mov %r13, 104(%rax)
        mov %r14, 112(%rax)
        mov %r15, 120(%rax)
        pop %rcx
        mov %rcx, 0(%rax)
        add $16, %rsp
        pop %r15
        pop %r14
        pop %r13
        pop %r12
        pop %rbp
        pop %rbx
        ret
        .size regs_around, . - regs_around

        .macro callee name
        .globl \name
        .type \name, @function
        .p2align 4
\name:
        .cfi_startproc
        .endm
        .macro finish name
        .cfi_endproc
        .size \name, . - \name
        .endm

        callee keep_push
        push %rbp
        mov %rsp, %rbp
        pop %rbp
        ret
        finish keep_push

        callee keep_endbr
        endbr64
        nop
        ret
        finish keep_endbr

        callee keep_nop5
        .byte 0x0f, 0x1f, 0x44, 0x00, 0x00
        ret
        finish keep_nop5

        callee keep_short
        ret
        finish keep_short

        callee keep_rip
        push %rax
        lea regs_around(%rip), %rax
        pop %rax
        ret
        finish keep_rip

        callee keep_call
        call keep_push
        ret
        finish keep_call

        callee keep_jcc
        test %edi, %edi
        je 1f
        nop
1:      ret
        finish keep_jcc

        callee keep_stack
        sub $24, %rsp
        .cfi_adjust_cfa_offset 24
        movups %xmm3, (%rsp)
        movups (%rsp), %xmm3
        add $24, %rsp
        .cfi_adjust_cfa_offset -24
        ret
        finish keep_stack
        .section .note.GNU-stack, "", @progbits
