//! A call of the program that a hook (a patch) has intercepted.

use tiptoe_sys::raw::syscall6;

/// The registers as `tiptoe_hook_entry` pushed them.
#[repr(C)]
pub struct Frame {
    pub(crate) rax: u64,
    pub(crate) rcx: u64,
    pub(crate) rdx: u64,
    pub(crate) rbx: u64,
    pub(crate) rbp: u64,
    pub(crate) rsi: u64,
    pub(crate) rdi: u64,
    pub(crate) r8: u64,
    pub(crate) r9: u64,
    pub(crate) r10: u64,
    pub(crate) r11: u64,
    pub(crate) r12: u64,
    pub(crate) r13: u64,
    pub(crate) r14: u64,
    pub(crate) r15: u64,
    pub(crate) flags: u64,
    pub(crate) back: u64,
    pub(crate) what: u64,
}

impl Frame {
    pub(crate) fn return_address(&mut self) -> &mut u64 {
        const RED_ZONE: usize = 128;
        let end = core::ptr::from_mut(self).wrapping_add(1);
        // SAFETY: the hook's code lowered the stack pointer by the red zone and pushed `what`, this record's last word.
        // At a function's entry the stack pointer is at the return address.
        unsafe { &mut *end.cast::<u8>().wrapping_add(RED_ZONE).cast::<u64>() }
    }
}

pub(crate) fn perform(number: usize, frame: &Frame) -> i64 {
    let [a, b, c] = [frame.rdi, frame.rsi, frame.rdx].map(|word| word as usize);
    let [d, e, f] = [frame.r10, frame.r8, frame.r9].map(|word| word as usize);
    // SAFETY: this is the program's own call with its own arguments.
    unsafe { syscall6(number, a, b, c, d, e, f) as i64 }
}
