# regs_after(callee, in, out): calls a callee that fills every register from `in` (rsi), and stores all of them as
# they are after its return. Layout of both: 16 words, 16 vectors of 32 bytes, 8 x87 values of 16 bytes.
        .text
        .macro each op
        .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
        \op \n
        .endr
        .endm
        .macro load_sse n
        movups 128+32*\n(%rsi), %xmm\n
        .endm
        .macro load_avx n
        vmovups 128+32*\n(%rsi), %ymm\n
        .endm
        .macro store_sse n
        movups %xmm\n, 128+32*\n(%rax)
        .endm
        .macro store_avx n
        vmovups %ymm\n, 128+32*\n(%rax)
        .endm

        .macro function name
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

        .macro general
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
        .endm

        function fill_sse
        each load_sse
        general
        ret
        finish fill_sse

        function fill_avx
        each load_avx
        general
        ret
        finish fill_avx

        function fill_x87
        endbr64
        .irp n, 7, 6, 5, 4, 3, 2, 1, 0
        fldt 640+16*\n(%rsi)
        .endr
        general
        rep ret
        finish fill_x87

# Calls fill_sse, so two calls return, one after the other.
        function fill_through
        sub $8, %rsp
        call fill_sse
        lea 8(%rsp), %rsp
        ret
        finish fill_through

# Jumps to fill_sse, so one instruction returns from both functions.
        function fill_jump
        nopl 0(%rax,%rax,1)
        jmp fill_sse
        finish fill_jump

        .macro behind name, store
        function \name
        push %rbx
        push %rbp
        push %r12
        push %r13
        push %r14
        push %r15
        push %rdx                       # out
        call *%rdi
        push %rax
        mov 8(%rsp), %rax               # out
        \store
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
        pop %rdx
        pop %r15
        pop %r14
        pop %r13
        pop %r12
        pop %rbp
        pop %rbx
        ret
        finish \name
        .endm
        .macro store_all_x87
        .irp n, 0, 1, 2, 3, 4, 5, 6, 7
        fstpt 640+16*\n(%rax)
        .endr
        .endm
        .macro store_all_avx
        each store_avx
        vzeroupper
        .endm
        .macro store_all_sse
        each store_sse
        .endm

        behind regs_after_sse, store_all_sse
        behind regs_after_avx, store_all_avx
        behind regs_after_x87, store_all_x87
        .section .note.GNU-stack, "", @progbits
