//! Handles debug traps for which the processor reported no reason. Such traps were seen in a virtual machine, for a few
//! accesses in a million, with 100 threads on two CPUs. The kernel takes such a trap for the instruction `int1`, and
//! its SIGTRAP would end the program.

use core::sync::atomic::Ordering::Relaxed;

use super::{WATCHES, hits};
use crate::shared;
use crate::text;

const INT1: u8 = 0xf1;

/// Returns `false` if the SIGTRAP at `ip` is the program's own.
pub fn take_stray(ip: u64) -> bool {
    // Relaxed: the agent's thread wrote `is_on` before any breakpoint was opened.
    let is_own = |at| byte(at) == Some(INT1);
    // After the program's own `int1`, the instruction pointer is after that instruction, or under KVM on AMD at it.
    if !WATCHES.is_on.load(Relaxed) || is_own(ip.wrapping_sub(1)) || is_own(ip) {
        return false;
    }
    if let Some(shared) = shared::at_home()
        && let Some(hits) = shared.data().as_ref().and_then(hits)
    {
        hits.note_stray();
    }
    true
}

fn byte(address: u64) -> Option<u8> {
    let mut byte = [0];
    text::read_directly(address, &mut byte).then_some(byte[0])
}
