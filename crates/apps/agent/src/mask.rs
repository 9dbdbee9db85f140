//! The signals that a thread blocks in the kernel.

use tiptoe_sys::raw::{call, nr};

const SIG_SETMASK: usize = 2;

pub const ILL: u64 = 1 << 3;
pub const TRAP: u64 = 1 << 4;
/// The signals that the program must not block in the kernel during a session.
pub const OURS: u64 = ILL | TRAP;

pub fn set_mask(mask: u64) -> u64 {
    let mut old = 0u64;
    let args = [
        SIG_SETMASK,
        &raw const mask as usize,
        &raw mut old as usize,
        8,
        0,
        0,
    ];
    // SAFETY: both words live through the call.
    let _ = unsafe { call(nr::RT_SIGPROCMASK, args) };
    old
}
