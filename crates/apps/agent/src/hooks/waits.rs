//! Prepares a system call in which the thread waits for signals (sigtimedwait), or waits under another signal mask
//! (ppoll).
//!
//! The kernel gets a copy of the mask without SIGILL and SIGTRAP. The copy is in thread-local words ([`tls`]), where it
//! stays valid even if the call is restarted. The hook, which runs before the call, records it for the signal handler
//! ([`signals`]).

use super::Frame;
use crate::mask::OURS;
use crate::signals::{self, MaskLocation};
use crate::tls::{self, Call, Mask};

const EINTR: i64 = -4;
/// The distance from the hook's return address in its trampoline (generated code) to the end of the jump to the system
/// call. The jump's last 4 bytes are its displacement.
const JUMP_END: u64 = 24;
const SYSCALL: u64 = 2;

/// Prepares a wait. Returns the call's result if a signal that the agent held back ends the wait before it begins.
pub(super) fn prepare(number: usize, location: MaskLocation, frame: &mut Frame) -> Option<i64> {
    if !signals::owned() {
        return None;
    }
    let blocked = tls::blocked();
    let wanted = match (location, given(number, location, frame)) {
        (_, None) => 0,
        (MaskLocation::Wanted(_), Some(set)) => set & OURS,
        (_, Some(mask)) => {
            replace(location, frame, mask);
            blocked & !mask
        }
    };
    tls::set_call(Call {
        number: number as u64,
        return_address: syscall_return_address(frame),
        trampoline: frame.back,
    });
    if wanted == 0 {
        return None;
    }
    signals::set_waiter(wanted);
    match location {
        MaskLocation::Wanted(_) => take(wanted, frame),
        _ => {
            let mask = given(number, location, frame)?;
            signals::deliver_within(mask).then_some(EINTR)
        }
    }
}

fn take(wanted: u64, frame: &Frame) -> Option<i64> {
    let (signal, info) = signals::take_pending(wanted)?;
    // SAFETY: libc passes NULL or room for a siginfo.
    if let Some(out) = unsafe { (frame.rsi as *mut signals::Info).as_mut() } {
        *out = info;
    }
    Some(signal as i64)
}

fn syscall_return_address(frame: &Frame) -> u64 {
    let distance = (frame.back + JUMP_END - 4) as *const i32;
    // SAFETY: the bytes are in the trampoline that called the hook. Trampolines are never unmapped.
    let distance = unsafe { distance.read_unaligned() };
    (frame.back + JUMP_END + SYSCALL).wrapping_add_signed(distance.into())
}

impl Frame {
    fn slot(&mut self, index: usize) -> Option<&mut u64> {
        Some(match index {
            0 => &mut self.r8,
            1 => &mut self.r9,
            2 => &mut self.r10,
            8 => &mut self.rdi,
            _ => return None,
        })
    }
}

/// Returns the program's mask or set, even if an earlier run of the hook has put the copy's address into the register.
/// `None` if the program passed no mask, or one whose size the kernel refuses.
fn given(number: usize, location: MaskLocation, frame: &mut Frame) -> Option<u64> {
    let size = match number {
        tiptoe_sys::raw::nr::RT_SIGSUSPEND => frame.rsi,
        tiptoe_sys::raw::nr::PPOLL => frame.r8,
        tiptoe_sys::raw::nr::RT_SIGTIMEDWAIT => frame.r10,
        tiptoe_sys::raw::nr::PSELECT6 => 8,
        _ => frame.r9,
    };
    let at = match location {
        MaskLocation::Set(index) | MaskLocation::Wanted(index) => *frame.slot(index)?,
        MaskLocation::Pair(index) => {
            // SAFETY: libc passes NULL or an address and a size.
            let pair = unsafe { (*frame.slot(index)? as *const [u64; 2]).as_ref() }?;
            let [at, size] = *pair;
            if size == 8 { at } else { 0 }
        }
    };
    if let Some(mask) = Mask::at(at) {
        return Some(mask.given());
    }
    // SAFETY: the program passes NULL or a valid set.
    let set = unsafe { (at as *const u64).as_ref() }.copied();
    set.filter(|_| size == 8)
}

fn replace(location: MaskLocation, frame: &mut Frame, mask: u64) {
    let copy = Mask::new(mask, mask & !OURS);
    let (index, at) = match location {
        MaskLocation::Pair(index) => (index, copy.pair()),
        MaskLocation::Set(index) | MaskLocation::Wanted(index) => (index, copy.address()),
    };
    if let Some(register) = frame.slot(index) {
        *register = at;
    }
}
