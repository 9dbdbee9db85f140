// Functions that differ in their first instruction. Each adds its own number to its argument. Another tool may restore
// only the first byte of tiptoe's jump. So that this is harmless, some later bytes of the jump are fixed (`guard.rs`).
        .text
        .macro first name
        .p2align 4
        .globl \name
        .type \name, @function
\name:
        .endm
        .macro last name
        ret
        .size \name, . - \name
        .endm

first first_push
        push %rbx
        mov %rdi, %rbx
        lea 1(%rbx), %rax
        pop %rbx
last first_push

first first_push15                      // a jump has a trap byte after the prefix
        push %r15
        mov %rdi, %r15
        lea 2(%r15), %rax
        pop %r15
last first_push15

first first_endbr64
        endbr64
        mov %rdi, %rax
        add $3, %rax
last first_endbr64

first first_mov
        mov %rdi, %rax
        add $4, %rax
last first_mov

first first_mov32                       // no jump is safe here, so the patch is on the next one
        mov $5, %eax
        add %rdi, %rax
last first_mov32

first first_load                        // three bytes of a jump would be fixed, so the patch is on the next one
        mov 8(%rsi), %eax
        lea 6(%rdi), %rax
last first_load

first first_xor                         // a jump keeps the second byte
        xor %eax, %eax
        lea 7(%rdi,%rax), %rax
last first_xor

first first_lea                         // four bytes, guarded by an invalid operand
        .byte 0x8d, 0x44, 0x27, 8       // lea 8(%rdi), %eax
        mov %eax, %eax
last first_lea

first first_lea32                       // six bytes, guarded by an invalid operand
        .byte 0x8d, 0x87, 9, 0, 0, 0    // lea 9(%rdi), %eax
        mov %eax, %eax
last first_lea32

first first_sub
        sub $24, %rsp
        lea 10(%rdi), %rax
        add $24, %rsp
last first_sub

first first_call
        call add_one
        add $10, %rax
last first_call

first first_jmp
        .byte 0xe9                      // jmp add_twelve, five bytes
        .long add_twelve - . - 4
        .size first_jmp, . - first_jmp

first first_nop5                        // the kernel replaces it by a call
        .byte 0x0f, 0x1f, 0x44, 0, 0
        lea 13(%rdi), %rax
last first_nop5

first first_nops
        nop; nop; nop; nop; nop
        lea 14(%rdi), %rax
last first_nops

first first_frame
        push %rbp
        mov %rsp, %rbp
        lea 15(%rdi), %rax
        pop %rbp
last first_frame

first first_two                         // two bytes in all: a short jump to an island, or a trap
        push %rdi
        pop %rax
last first_two

first first_loop                        // jumps back into any patch but a trap
        xor %eax, %eax
1:      inc %eax
        cmp $16, %eax
        jb 1b
        add %rdi, %rax
last first_loop

first add_one
        lea 1(%rdi), %rax
last add_one

first add_twelve
        lea 12(%rdi), %rax
last add_twelve

        .section .note.GNU-stack, "", @progbits
