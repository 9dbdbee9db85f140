// The library that the tests inject. Its entry writes the count of its calls plus the plan segment's first word to
// the data segment.
static long calls;

static long call6(long n, long a, long b, long c, long d, long e, long f) {
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    __asm__ volatile("syscall" : "+a"(n) : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return n;
}

// Changes registers, which the injected code that calls `entry` must restore.
static void scribble(void) {
    __asm__ volatile("pcmpeqd %%xmm0, %%xmm0\n pcmpeqd %%xmm7, %%xmm7\n pcmpeqd %%xmm15, %%xmm15\n"
                     "fld1\n fstp %%st(0)\n std\n cld" ::: "xmm0", "xmm7", "xmm15", "cc");
}

long entry(int data_fd, int plan_fd) {
    scribble();
    long data = call6(9, 0, 4096, 3, 1, data_fd, 0);
    long plan = call6(9, 0, 4096, 1, 1, plan_fd, 0);
    if (data < 0 || plan < 0) return -1;
    if (call6(9, 0, 4096, 3, 1, plan_fd, 0) > 0) return -2; // the plan must not be writable
    calls++;
    *(volatile long *)data = calls + *(volatile long *)plan;
    call6(11, data, 4096, 0, 0, 0, 0);
    call6(11, plan, 4096, 0, 0, 0, 0);
    return calls;
}
