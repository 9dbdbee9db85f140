//! The code that runs in the borrowed thread, and the parameters that it carries.
//!
//! The image is position-independent: [`Params`], then code. It is written into unused bytes of a text page (the
//! *cave*). From there the code maps two pages (the *home*: image, then [`Mailbox`]), copies the image home, and drops
//! the cave's page, which restores the file's bytes. Home stays mapped, because code cannot unmap the page that it runs
//! in. The next injection starts at home and needs no cave.
//!
//! # Rules of the code
//! 1. It must not depend on tiptoe: every wait ends when tiptoe's heartbeat stops for a lease.
//! 2. It blocks all signals in its first call, and restores the mask in its last, when the program's
//!    stack pointer and flags are already restored.
//! 3. It must not change the kernel's restart block, through which an interrupted nanosleep continues.
//!    So it waits in ppoll, not in nanosleep or futex.
//! 4. A restartable call is made again only if no handler is due for a signal that arrived in
//!    between; otherwise it fails with EINTR, as it would have without us.
//! 5. The last instruction but one stores `departure::RETURNED`: from then on home may be rewritten. A handler
//!    that runs when the mask is restored may never return to the stub (longjmp, cancellation), so
//!    `departure::RETURNING` is stored before.

use std::mem::{offset_of, size_of};

/// The first bytes of every home, by which a later injection finds it.
pub(super) const MAGIC: [u8; 16] = *b"tiptoe stub v1\0\0";
pub(super) const PAGE: u64 = 4096;

/// The registers with which the program continues.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct Registers {
    pub rax: u64,
    pub rbx: u64,
    pub rcx: u64,
    pub rdx: u64,
    pub rsi: u64,
    pub rdi: u64,
    pub rbp: u64,
    pub rsp: u64,
    pub r8: u64,
    pub r9: u64,
    pub r10: u64,
    pub r11: u64,
    pub r12: u64,
    pub r13: u64,
    pub r14: u64,
    pub r15: u64,
    pub flags: u64,
    pub rip: u64,
}

/// How often the stub polls `go` before it naps: 10 to 25 us, depending on the CPU's `pause`.
const LOOKS: u32 = 500;

/// What the stub needs before tiptoe can talk to it. All fields are words, so there is no padding.
#[repr(C)]
pub(super) struct Params {
    pub magic: [u8; 16],
    /// The address of home, which may not be mapped yet.
    pub home: u64,
    /// The cave's page, which the stub must drop; 0 if it starts at home.
    pub cave_page: u64,
    /// Bytes of the temporary mapping: extended state at its start, the stack at its end.
    pub scratch: u64,
    /// A signal set of all ones.
    pub all_signals: u64,
    /// The program's own signal mask.
    pub mask: u64,
    /// The number of slices of about 0.06 ms after which, without a heartbeat, the stub assumes that tiptoe is dead.
    pub lease: u64,
    /// One of `crate::inject::restart::Restart`.
    pub restart: u64,
    pub registers: Registers,
    /// The address at which the program continues if a pending handler ends the call with EINTR.
    pub interrupted_rip: u64,
}

/// The words through which tiptoe and the stub talk. tiptoe accesses them through /proc/PID/mem.
/// Each word has one writer, which its comment names.
#[repr(C)]
pub(super) struct Mailbox {
    /// Written by the stub: one of `state`.
    pub state: u32,
    /// Written by tiptoe: the highest step that the stub may take.
    pub go: u32,
    /// Written by tiptoe: changes while tiptoe lives.
    pub heartbeat: u32,
    /// Written by tiptoe: a non-zero value asks the stub to give up.
    pub abandon: u32,
    /// Written by the stub: one of `departure`, or 0.
    pub left: u32,
    /// Written by the stub: the result of dropping the cave's page.
    pub cave_result: i32,
    /// Written by the stub: descriptors of agent, data and plan; a negative value is an errno.
    pub fds: [i32; 4],
    /// Written by the stub: the agent's load base.
    pub base: u64,
    /// Written by the stub: the result of the agent's entry.
    pub result: u64,
    /// Written by tiptoe: the address of `dlopen`.
    pub dlopen: u64,
    /// Written by tiptoe: the mode argument of `dlopen`.
    pub mode: u64,
    /// Written by tiptoe: the address of `__errno_location`.
    pub errno_location: u64,
    /// Written by tiptoe: the entry of an agent that is already loaded, or 0.
    pub entry: u64,
    /// Written by tiptoe: the entry's distance from the load base.
    pub entry_offset: u64,
    /// Written by tiptoe: the id of the borrowed thread, once that thread is in the stub.
    pub tid: u64,
    /// Used only by the stub: pending signals, then a kernel `sigaction`.
    pub work: [u64; 5],
    /// Written by tiptoe: the name argument of `dlopen`.
    pub path: [u8; 128],
}

/// The values of [`Mailbox::state`].
pub(super) mod state {
    /// The borrowed thread is in the stub, which waits for step 1.
    pub const ARRIVED: u32 = 1;
    /// The descriptors exist; the stub waits for step 2.
    pub const OFFERED: u32 = 2;
    // 3: step 2 was seen; the loader and the agent run.
    /// `base` and `result` are valid.
    pub const DONE: u32 = 4;
    /// tiptoe's heartbeat stopped, or tiptoe asked to give up.
    pub const ABANDONED: u32 = 5;
    /// `dlopen` returned NULL.
    pub const REFUSED: u32 = 6;
    /// A system call failed; `fds` has its errno.
    pub const FAILED: u32 = 7;
}

/// The values of [`Mailbox::left`].
pub(super) mod departure {
    /// The thread calls no code of ours any more. Next, the program's signal mask is restored, and the pending handlers
    /// run.
    pub const RETURNING: u32 = 1;
    /// The thread is back in the program.
    pub const RETURNED: u32 = 2;
}

const _: () = assert!(size_of::<Params>() == 16 + 26 * 8);
const _: () = assert!(size_of::<Mailbox>() == 40 + 13 * 8 + 128);

std::arch::global_asm!(
    include_str!("stub.s"),
    params = const size_of::<Params>(),
    home = const offset_of!(Params, home),
    cave_page = const offset_of!(Params, cave_page),
    scratch = const offset_of!(Params, scratch),
    all_signals = const offset_of!(Params, all_signals),
    mask = const offset_of!(Params, mask),
    lease = const offset_of!(Params, lease),
    looks = const LOOKS,
    restart = const offset_of!(Params, restart),
    registers = const offset_of!(Params, registers),
    interrupted_rip = const offset_of!(Params, interrupted_rip),
    state = const offset_of!(Mailbox, state),
    go = const offset_of!(Mailbox, go),
    heartbeat = const offset_of!(Mailbox, heartbeat),
    abandon = const offset_of!(Mailbox, abandon),
    left = const offset_of!(Mailbox, left),
    returning = const departure::RETURNING,
    returned = const departure::RETURNED,
    cave_result = const offset_of!(Mailbox, cave_result),
    fds = const offset_of!(Mailbox, fds),
    base = const offset_of!(Mailbox, base),
    result = const offset_of!(Mailbox, result),
    dlopen = const offset_of!(Mailbox, dlopen),
    mode = const offset_of!(Mailbox, mode),
    errno_location = const offset_of!(Mailbox, errno_location),
    entry = const offset_of!(Mailbox, entry),
    entry_offset = const offset_of!(Mailbox, entry_offset),
    work = const offset_of!(Mailbox, work),
    path = const offset_of!(Mailbox, path),
);

unsafe extern "C" {
    static tiptoe_stub_begin: u8;
    static tiptoe_stub_from_home: u8;
    static tiptoe_stub_end: u8;
}

/// Returns the image's bytes, with `params` filled in.
pub(super) fn image(params: &Params) -> Vec<u8> {
    let begin = &raw const tiptoe_stub_begin;
    // SAFETY: from `begin` on the assembler put `len()` initialized bytes, which never change.
    let mut bytes = unsafe { std::slice::from_raw_parts(begin, len()) }.to_vec();
    // SAFETY: `Params` is repr(C) without padding, so every byte is initialized.
    let head = unsafe {
        std::slice::from_raw_parts(std::ptr::from_ref(params).cast::<u8>(), size_of::<Params>())
    };
    bytes[..head.len()].copy_from_slice(head);
    bytes
}

pub(super) fn len() -> usize {
    (&raw const tiptoe_stub_end).addr() - (&raw const tiptoe_stub_begin).addr()
}

/// The offset of the first instruction of an image in a cave.
pub(super) const FROM_CAVE: u64 = size_of::<Params>() as u64;

/// Returns the offset of the first instruction of an image at home.
pub(super) fn from_home() -> u64 {
    ((&raw const tiptoe_stub_from_home).addr() - (&raw const tiptoe_stub_begin).addr()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_image_fits_a_page_and_is_small_enough_for_most_caves() {
        assert!(len() < 1600, "{} bytes", len());
        assert!(from_home() > FROM_CAVE);
    }
}
