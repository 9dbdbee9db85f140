//! The code that runs in the borrowed thread (the *stub*), and its parameters.
//!
//! The stub's image is [`Params`], then position-independent code. tiptoe writes the image into unused bytes of a
//! text page (the *cave*). The stub maps two pages (the *home*: image, then [`Mailbox`]), copies itself there, and
//! drops the cave's page, which restores the file's bytes. Home stays mapped, because code cannot unmap its own page;
//! the next injection starts there.
//!
//! # Rules of the code
//! 1. The stub must not depend on tiptoe: its waits end after [`Params::lease`] without a heartbeat of tiptoe.
//! 2. The stub's first system call blocks all signals. The last restores the mask, after the program's stack pointer
//!    and flags are restored.
//! 3. The stub waits in ppoll, not in nanosleep or futex, because those two calls change the kernel's restart block,
//!    by which the program's interrupted nanosleep continues.
//! 4. The stub restarts the program's call, unless a signal arrived in between whose handler ends the call. Then the
//!    call fails with EINTR, as it would without tiptoe.
//! 5. The last instruction but one stores `departure::RETURNED`, after which home may be rewritten.
//!    `departure::RETURNING` is stored before the mask is restored, because a handler that then runs may never return
//!    (longjmp, cancellation).

use std::mem::{offset_of, size_of};

/// The first bytes of every home.
pub(super) const MAGIC: [u8; 16] = *b"tiptoe stub v1\0\0";
pub(super) const PAGE: u64 = 4096;

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

/// Polls of `go` before a wait's first nap. Together they take 10 to 25 us, depending on the CPU's `pause`.
const LOOKS: u32 = 500;

#[repr(C)]
pub(super) struct Params {
    pub magic: [u8; 16],
    /// Home's address, which may not be mapped yet.
    pub home: u64,
    /// The cave's page, which the stub drops; 0 if the stub starts at home.
    pub cave_page: u64,
    /// Bytes of a temporary mapping: extended state, then the stack.
    pub scratch: u64,
    pub all_signals: u64,
    pub mask: u64,
    /// The number of naps (0.06 ms each) without a heartbeat after which the stub assumes that tiptoe is dead.
    pub lease: u64,
    /// A `crate::inject::restart::Restart`.
    pub restart: u64,
    pub registers: Registers,
    /// Where the program continues if a pending handler ends the call with EINTR.
    pub interrupted_rip: u64,
}

/// The words through which tiptoe (by /proc/PID/mem) and the stub talk. tiptoe alone writes `go`, `heartbeat`,
/// `abandon`, `tid`, `path` and the words from `dlopen` to `entry_offset`; the stub alone writes the other words.
#[repr(C)]
pub(super) struct Mailbox {
    pub state: u32,
    /// The highest step that the stub may take.
    pub go: u32,
    /// Changes while tiptoe lives.
    pub heartbeat: u32,
    /// Non-zero: the stub should give up.
    pub abandon: u32,
    /// A value of `departure`, or 0.
    pub left: u32,
    pub cave_result: i32,
    /// The descriptors of agent, data and plan; a negative word is an errno.
    pub fds: [i32; 4],
    /// The agent's load base.
    pub base: u64,
    pub result: u64,
    pub dlopen: u64,
    pub mode: u64,
    pub errno_location: u64,
    /// The entry of an agent that is already loaded, or 0.
    pub entry: u64,
    pub entry_offset: u64,
    /// The borrowed thread, once it is in the stub.
    pub tid: u64,
    /// Scratch memory: the pending signals, then a kernel `sigaction`.
    pub work: [u64; 5],
    pub path: [u8; 128],
}

pub(super) mod state {
    /// The stub waits for step 1.
    pub const ARRIVED: u32 = 1;
    /// The descriptors exist; the stub waits for step 2.
    pub const OFFERED: u32 = 2;
    // 3: the loader and the agent run.
    /// `base` and `result` are valid.
    pub const DONE: u32 = 4;
    pub const ABANDONED: u32 = 5;
    /// `dlopen` returned NULL.
    pub const REFUSED: u32 = 6;
    /// A system call failed; `fds` has the errno.
    pub const FAILED: u32 = 7;
}

pub(super) mod departure {
    /// The stub restores only flags, mask and registers from here on; pending handlers may run.
    pub const RETURNING: u32 = 1;
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

pub(super) fn image(params: &Params) -> Vec<u8> {
    let begin = &raw const tiptoe_stub_begin;
    // SAFETY: from `begin` on the assembler put `len()` initialized bytes, which never change.
    let mut bytes = unsafe { std::slice::from_raw_parts(begin, len()) }.to_vec();
    // SAFETY: `Params` is repr(C) without padding (asserted above), so every byte is initialized.
    let head = unsafe {
        std::slice::from_raw_parts(std::ptr::from_ref(params).cast::<u8>(), size_of::<Params>())
    };
    bytes[..head.len()].copy_from_slice(head);
    bytes
}

pub(super) fn len() -> usize {
    (&raw const tiptoe_stub_end).addr() - (&raw const tiptoe_stub_begin).addr()
}

pub(super) const FROM_CAVE: u64 = size_of::<Params>() as u64;

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
