# coro_switch(save, load): pushes the callee-saved registers, stores the stack pointer in *save, continues on stack `load`.
        .text
        .globl coro_switch
        .type coro_switch, @function
coro_switch:
        .cfi_startproc
        push %rbp
        push %rbx
        push %r12
        push %r13
        push %r14
        push %r15
        mov %rsp, (%rdi)
        mov %rsi, %rsp
        pop %r15
        pop %r14
        pop %r13
        pop %r12
        pop %rbx
        pop %rbp
        ret
        .cfi_endproc
        .size coro_switch, . - coro_switch
        .section .note.GNU-stack, "", @progbits
