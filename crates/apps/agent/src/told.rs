//! A library of the program's tells that a thread waits for a lock of its own: what [`crate::ports`] has it call.
//! Also in signal handlers: no lock, no libc, and nothing is waited for.
//!
//! What is noted lies where waits at futexes are noted, see [`crate::locks`].

use core::arch::naked_asm;

use tiptoe_futex::calls::Thread;
use tiptoe_futex::reported::ReportedWait;
use tiptoe_port::{Label, MODE_SHIFT};

use crate::clockwork;
use crate::locks::Here;

/// What ports are given: `begin`, and `end`.
pub fn calls() -> [u64; 2] {
    let begin = begins_entry as unsafe extern "C" fn(*const Label, u64) -> u64;
    [begin as usize as u64, ends as *const () as u64]
}

/// `begin` of a port of locks, with where it was called from: the caller's stack pointer, and where it goes on.
#[unsafe(naked)]
unsafe extern "C" fn begins_entry(label: *const Label, what: u64) -> u64 {
    naked_asm!(
        "lea rdx, [rsp + 8]",
        "mov rcx, [rsp]",
        "jmp {begins}",
        begins = sym begins,
    )
}

/// What it returns is the place in the stack by which the end is known.
extern "C" fn begins(label: *const Label, what: u64, place: u64, site: u64) -> u64 {
    let Some(here) = Here::find() else { return 0 };
    let wait = ReportedWait {
        address: what & ((1 << MODE_SHIFT) - 1),
        mode: what >> MODE_SHIFT,
        label: label as u64,
        place,
        site,
    };
    here.thread().reported_begins(&wait, clockwork::ticks);
    place
}

/// `end` of a port of locks.
extern "C" fn ends(token: u64, outcome: u64) {
    let Some(here) = Here::find() else { return };
    let name = |label: u64| {
        // SAFETY: what the same call of the program's began with: a label, which stays where it is.
        unsafe { &*(label as *const Label) }.text().as_bytes()
    };
    let thread: Thread = here.thread();
    thread.reported_ends(token, outcome, (clockwork::ticks, clockwork::ns), name);
}
