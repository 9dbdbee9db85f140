//! Records waits for libraries' own locks, which the libraries report through ports ([`crate::ports`]). Signal handlers
//! run this code, so it must neither lock nor wait.

use core::arch::naked_asm;

use tiptoe_futex::calls::Thread;
use tiptoe_futex::reported::{ReportedEnd, ReportedWait};
use tiptoe_port::{Label, MODE_SHIFT};

use crate::clockwork;
use crate::locks::WaitWords;

pub fn calls() -> [u64; 2] {
    let begin = begins_entry as unsafe extern "C" fn(*const Label, u64) -> u64;
    [begin as usize as u64, ends as *const () as u64]
}

/// The `begin` of a lock port. Adds the caller's stack pointer and return address to the arguments.
#[unsafe(naked)]
unsafe extern "C" fn begins_entry(label: *const Label, what: u64) -> u64 {
    naked_asm!(
        "lea rdx, [rsp + 8]",
        "mov rcx, [rsp]",
        "jmp {begins}",
        begins = sym begins,
    )
}

/// Returns the stack address by which `ends` identifies the wait.
extern "C" fn begins(label: *const Label, what: u64, place: u64, site: u64) -> u64 {
    let Some(here) = WaitWords::find() else {
        return 0;
    };
    let wait = ReportedWait {
        address: what & ((1 << MODE_SHIFT) - 1),
        mode: what >> MODE_SHIFT,
        label: label as u64,
        frame_end: place,
        site,
    };
    here.thread().reported_begins(&wait, clockwork::ticks);
    place
}

extern "C" fn ends(token: u64, outcome: u64) {
    let Some(here) = WaitWords::find() else {
        return;
    };
    let name = |label: u64| {
        // SAFETY: this wait's `begin` recorded the label that the library passed, and a label never moves.
        unsafe { &*(label as *const Label) }.text().as_bytes()
    };
    let thread: Thread = here.thread();
    let end = ReportedEnd {
        frame_end: token,
        outcome,
    };
    thread.reported_ends(end, clockwork::ticks, clockwork::ns, name);
}
