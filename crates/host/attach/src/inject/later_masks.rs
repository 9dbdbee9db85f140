//! Changes the signal masks that a stopped thread will get later, from its system call or from a returning signal
//! handler.

use libc::user_regs_struct;
use tiptoe_wire::tls;

use super::masks::Masks;
use super::process::Process;
use super::restart;

/// epoll_pwait2, which the libc crate lacks.
const SYS_EPOLL_PWAIT2: i64 = 441;
/// The most bytes of a stack to search for signal frames.
const STACK: usize = 64 << 10;
/// Offsets of the saved segment registers and mask in a signal frame, from the frame's return address.
const SEGMENTS: usize = 8 + 40 + 18 * 8;
const MASK: usize = 8 + 40 + 32 * 8;
/// Segment selectors of a 64-bit program.
const CODE: u64 = 0x33;
const STACK_SEGMENT: u64 = 0x2b;

/// If a thread sleeps in a call whose mask blocks `masks.signals`, makes the call restart with a copy of the mask
/// without these signals. The copy is in the thread's words. Returns whether `regs`, the registers at the stop, were
/// changed.
pub(super) fn replace_mask(masks: &Masks, process: &Process, regs: &mut user_regs_struct) -> bool {
    let number = regs.orig_rax as i64;
    if !restart::is_interrupted(regs) {
        return false;
    }
    let read = |at: u64| {
        Some(at)
            .filter(|at| *at != 0)
            .and_then(|at| process.read_u64(at).ok())
    };
    let pair = regs.r9;
    let given = match number {
        libc::SYS_rt_sigsuspend => read(regs.rdi),
        libc::SYS_ppoll => read(regs.r10),
        libc::SYS_epoll_pwait | SYS_EPOLL_PWAIT2 => read(regs.r8),
        libc::SYS_pselect6 => read(pair).and_then(read),
        _ => None,
    };
    let Some(given) = given.filter(|mask| mask & masks.signals != 0) else {
        return false;
    };
    let copy = masks.words.at(regs.fs_base, tls::MASK);
    let words = [given & !masks.signals, copy, 8, given];
    let bytes: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
    let call = regs.rip | (number as u64) << tls::NUMBER_SHIFT;
    let noted = process.write(copy, &bytes).and_then(|()| {
        process.write(masks.words.at(regs.fs_base, tls::TRAMPOLINE), &[0; 8])?;
        process.write(
            masks.words.at(regs.fs_base, tls::WAIT_CALL),
            &call.to_le_bytes(),
        )
    });
    if noted.is_err() {
        return false;
    }
    match number {
        libc::SYS_rt_sigsuspend => regs.rdi = copy,
        libc::SYS_ppoll => regs.r10 = copy,
        libc::SYS_pselect6 => regs.r9 = copy + 8,
        _ => regs.r8 = copy,
    }
    true
}

/// Unblocks `masks.signals` in all signal frames above the address `stack`. Returns the old mask of the innermost
/// frame.
pub(super) fn clear_frames(
    masks: &Masks,
    process: &Process,
    stack: u64,
    restorer: Option<u64>,
) -> Option<u64> {
    let restorer = restorer?;
    let bytes = process.read_some(stack, STACK);
    let word = |at: usize| {
        let bytes = bytes.get(at..at + 8)?;
        bytes.try_into().ok().map(u64::from_le_bytes)
    };
    let is_frame = |at: &usize| {
        let segments = word(at + SEGMENTS).unwrap_or(0);
        word(*at) == Some(restorer) && segments & 0xffff == CODE && segments >> 48 == STACK_SEGMENT
    };
    let mut innermost = None;
    for at in (0..bytes.len()).step_by(8).filter(is_frame) {
        let Some(mask) = word(at + MASK) else { break };
        innermost.get_or_insert(mask);
        if mask & masks.signals != 0 {
            // The write cannot fail, because this memory was just read.
            let _ = process.write(
                stack + (at + MASK) as u64,
                &(mask & !masks.signals).to_le_bytes(),
            );
        }
    }
    innermost
}
