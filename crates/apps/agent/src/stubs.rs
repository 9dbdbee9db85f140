//! The names of the stubs in `asm`, in a file of their own, because the stubs call the modules that use the names.

unsafe extern "C" {
    // Only trampolines call or jump to these six; see `asm`.
    pub fn tiptoe_cold_entry();
    pub fn tiptoe_hook_entry();
    pub fn tiptoe_clone_cleared();
    pub fn tiptoe_clone_born();
    pub fn tiptoe_slow_entry();
    pub fn tiptoe_futex_entry();
    /// Calls [`crate::hit::first_slab`] from code that must not touch vector registers.
    pub fn tiptoe_first_slab() -> u64;
    pub fn tiptoe_restorer();
    pub fn tiptoe_spawn(flags: usize, stack: usize, tid: *const u32, tls: usize) -> isize;
}
