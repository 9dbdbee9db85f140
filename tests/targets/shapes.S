// Functions of every odd shape. Each takes edi and returns eax; shapes.c has the calls.
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

        .text
        function shape_push
        push %rbp
        mov %rsp, %rbp
        lea 1(%rdi), %eax
        pop %rbp
        ret
        finish shape_push

        function shape_endbr
        endbr64
        lea 1(%rdi), %eax
        ret
        finish shape_endbr

        function shape_mov
        mov %edi, %eax
        add $1, %eax
        ret
        finish shape_mov

        function shape_nop5
        .byte 0x0f, 0x1f, 0x44, 0x00, 0x00
        lea 1(%rdi), %eax
        ret
        finish shape_nop5

        function shape_nops
        .byte 0x90, 0x90, 0x90, 0x90, 0x90
        lea 1(%rdi), %eax
        ret
        finish shape_nops

        function shape_ret
        ret
        finish shape_ret

        // Two one-byte functions side by side.
        function shape_ret_first
        ret
        .cfi_endproc
        .size shape_ret_first, . - shape_ret_first
        .globl shape_ret_second
        .type shape_ret_second, @function
shape_ret_second:
        .cfi_startproc
        ret
        finish shape_ret_second

        // Branches back to its own entry: each pass is one execution.
        function shape_loop_entry
        dec %edi
        jnz shape_loop_entry
        mov $77, %eax
        ret
        finish shape_loop_entry

        // Branches back into what a 5-byte jump would overwrite.
        function shape_loop_inside
        xor %eax, %eax
1:      inc %eax
        dec %edi
        jnz 1b
        ret
        finish shape_loop_inside

        function shape_short_jcc
        test %edi, %edi
        je 1f
        lea 1(%rdi), %eax
        ret
1:      mov $1, %eax
        ret
        finish shape_short_jcc

        function shape_jrcxz
        mov %rdi, %rcx
        jrcxz 1f
        lea 1(%rdi), %eax
        ret
1:      mov $1, %eax
        ret
        finish shape_jrcxz

        function shape_rip_load
        mov shape_one(%rip), %eax
        add %edi, %eax
        ret
        finish shape_rip_load

        function shape_rip_compare
        cmpl $1, shape_one(%rip)
        jne 1f
        lea 1(%rdi), %eax
        ret
1:      xor %eax, %eax
        ret
        finish shape_rip_compare

        function shape_call_first
        call shape_mov
        ret
        finish shape_call_first

        function shape_tail_jump
        jmp shape_mov
        finish shape_tail_jump

        function shape_short_tail
        jmp 1f
        .byte 0xcc, 0xcc, 0xcc, 0xcc, 0xcc
1:      lea 1(%rdi), %eax
        ret
        finish shape_short_tail

        function shape_indirect
        jmp *shape_pointer(%rip)
        finish shape_indirect

        // Instructions begin at bytes 1, 2, 3 and 4.
        function shape_dense
        push %rbx
        push %rbp
        push %rbx
        push %rbp
        lea 1(%rdi), %eax
        pop %rbp
        pop %rbx
        pop %rbp
        pop %rbx
        ret
        finish shape_dense

        // An instruction begins at byte 4, so the last byte of a jump's displacement must trap.
        function shape_head_at_four
        sub $8, %rsp
        push %rbx
        lea 1(%rdi), %eax
        pop %rbx
        add $8, %rsp
        ret
        finish shape_head_at_four

        function shape_red_zone
        mov %edi, -8(%rsp)
        nop
        mov -8(%rsp), %eax
        add $1, %eax
        ret
        finish shape_red_zone

        .section .data.rel.local, "aw"
        .p2align 3
shape_pointer:
        .quad shape_mov
        .section .rodata
        .p2align 2
shape_one:
        .long 1
        .section .note.GNU-stack, "", @progbits
