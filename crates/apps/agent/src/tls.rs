//! Three words of each thread, in the static TLS block: the pointer to its
//! descriptor, the signals that it believes to block, and the end of its frames.
//!
//! `thread_local!` would call `__tls_get_addr`, which may allocate; the
//! initial-exec form is one load relative to %fs.

use core::arch::{asm, global_asm};
use tiptoe_uprobe::claim::Descriptor;

global_asm!(
    ".section .tdata,\"awT\",@progbits",
    ".p2align 3",
    ".hidden tiptoe_tls_descriptor",
    ".type tiptoe_tls_descriptor, @object",
    ".size tiptoe_tls_descriptor, 8",
    "tiptoe_tls_descriptor: .quad {nobody}",
    ".hidden tiptoe_tls_blocked",
    ".type tiptoe_tls_blocked, @object",
    ".size tiptoe_tls_blocked, 8",
    "tiptoe_tls_blocked: .quad 0",
    ".hidden tiptoe_tls_frames",
    ".type tiptoe_tls_frames, @object",
    ".size tiptoe_tls_frames, 8",
    "tiptoe_tls_frames: .quad {noframes} + 4096",
    ".text",
    nobody = sym NOBODY,
    noframes = sym NOFRAMES,
);

/// Where the end of a thread's frames points that has none: to the end of a page, at
/// which trampolines ask for more, behind a frame that is none.
#[repr(C, align(4096))]
pub struct Noframes([u64; 1024]);

static NOFRAMES: Noframes = Noframes([0; 1024]);

/// What a thread without a descriptor points at: 64 bytes of 0, never written.
#[repr(C, align(64))]
pub struct Nobody([u64; 8]);

static NOBODY: Nobody = Nobody([0; 8]);

/// Offset from %fs of the descriptor word, for trampolines.
pub fn descriptor_offset() -> i64 {
    let offset: i64;
    // SAFETY: reads the offset that the loader put into the GOT.
    unsafe {
        asm!("mov {}, qword ptr [rip + tiptoe_tls_descriptor@GOTTPOFF]", out(reg) offset,
             options(nostack, pure, readonly, preserves_flags));
    }
    offset
}

fn blocked_offset() -> i64 {
    let offset: i64;
    // SAFETY: as in `descriptor_offset`.
    unsafe {
        asm!("mov {}, qword ptr [rip + tiptoe_tls_blocked@GOTTPOFF]", out(reg) offset,
             options(nostack, pure, readonly, preserves_flags));
    }
    offset
}

/// Offset from %fs of the end of a thread's frames, for trampolines.
pub fn frames_offset() -> i64 {
    let offset: i64;
    // SAFETY: as in `descriptor_offset`.
    unsafe {
        asm!("mov {}, qword ptr [rip + tiptoe_tls_frames@GOTTPOFF]", out(reg) offset,
             options(nostack, pure, readonly, preserves_flags));
    }
    offset
}

fn load(offset: i64) -> u64 {
    let value: u64;
    // SAFETY: the offset is of one of our own words in this thread's block.
    unsafe {
        asm!("mov {}, qword ptr fs:[{}]", out(reg) value, in(reg) offset,
             options(nostack, readonly, preserves_flags));
    }
    value
}

fn store(offset: i64, value: u64) {
    // SAFETY: as in `load`.
    unsafe {
        asm!("mov qword ptr fs:[{}], {}", in(reg) offset, in(reg) value,
             options(nostack, preserves_flags));
    }
}

/// This thread's descriptor, as an address.
pub fn descriptor() -> u64 {
    load(descriptor_offset())
}

/// Points this thread's trampolines at a descriptor.
pub fn set_descriptor(descriptor: &'static Descriptor) {
    store(descriptor_offset(), core::ptr::from_ref(descriptor) as u64);
}

/// The end of this thread's frames, as an address; `None` where it has none.
pub fn frames() -> Option<u64> {
    let none = core::ptr::from_ref(&NOFRAMES) as u64 + 4096;
    Some(load(frames_offset())).filter(|end| *end != none)
}

/// Moves the end of this thread's frames.
pub fn set_frames(end: u64) {
    store(frames_offset(), end);
}

/// The owned signals that this thread believes to block.
pub fn blocked() -> u64 {
    load(blocked_offset())
}

/// Notes the owned signals that this thread believes to block.
pub fn set_blocked(mask: u64) {
    store(blocked_offset(), mask);
}
