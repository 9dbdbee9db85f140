//! Debug traps that come without their reason: a virtual machine was seen to lose it, of a few accesses in a million while
//! breakpoints were moved and 100 threads shared two CPUs. The kernel takes such a trap for the instruction `int1`, and
//! would end the program by SIGTRAP.

use core::sync::atomic::Ordering::Relaxed;

use super::{SLOT, hits};
use crate::shared;
use crate::text;

const INT1: u8 = 0xf1;

/// Takes a trap that nobody has a reason for, of a thread that stands here; whether it is none of the program's own.
pub fn take_stray(ip: u64) -> bool {
    // Relaxed: the agent's thread wrote it before any breakpoint stood.
    let is_own = |at| byte(at) == Some(INT1);
    // An `int1` of the program's own leaves the pointer after itself, and at itself under KVM on AMD.
    if SLOT.load(Relaxed) == 0 || is_own(ip.wrapping_sub(1)) || is_own(ip) {
        return false;
    }
    if let Some(shared) = shared::at_home()
        && let Some(hits) = shared.data().as_ref().and_then(hits)
    {
        hits.note_stray();
    }
    true
}

/// The byte at an address, where nothing may be mapped.
fn byte(address: u64) -> Option<u8> {
    let mut byte = [0];
    text::read_directly(address, &mut byte).then_some(byte[0])
}
