//! Declares the stubs apart from `asm`, because `asm` uses modules that call the stubs.

unsafe extern "C" {
    // Only trampolines (generated code) call or jump to these six.
    pub fn tiptoe_cold_entry();
    pub fn tiptoe_hook_entry();
    pub fn tiptoe_clone_cleared();
    pub fn tiptoe_clone_born();
    pub fn tiptoe_slow_entry();
    pub fn tiptoe_futex_entry();
    pub fn tiptoe_first_slab() -> u64;
    pub fn tiptoe_restorer();
    pub fn tiptoe_spawn(flags: usize, stack: usize, tid: *const u32, tls: usize) -> isize;
}
