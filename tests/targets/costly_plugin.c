// cflags: -O2 -shared -fPIC
// `costly` loads this library twice. Only a trap fits into its function.
int plugin_trap(int rounds);
__asm__(
    ".text\n.globl plugin_trap\n.type plugin_trap,@function\n"
    "plugin_trap: .cfi_startproc\n push %rbx\n.cfi_adjust_cfa_offset 8\n"
    "1: dec %edi\n jg 1b\n mov $7,%eax\n pop %rbx\n.cfi_adjust_cfa_offset -8\n ret\n.cfi_endproc\n"
    ".size plugin_trap,.-plugin_trap\n");
