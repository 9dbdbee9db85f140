#pragma once

// Only a trap byte fits, because a jump would cover the target of the loop's branch.
int only_trap(int rounds);
__asm__(
    ".text\n.globl only_trap\n.type only_trap,@function\n"
    "only_trap: .cfi_startproc\n push %rbx\n.cfi_adjust_cfa_offset 8\n"
    "1: dec %edi\n jg 1b\n mov $7,%eax\n pop %rbx\n.cfi_adjust_cfa_offset -8\n ret\n.cfi_endproc\n"
    ".size only_trap,.-only_trap\n");
