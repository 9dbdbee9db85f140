//! Handles threads that may not read the time stamp counter. After prctl(PR_SET_TSC, PR_TSC_SIGSEGV), reading raises
//! SIGSEGV in the thread, and in threads and processes that it starts.
//!
//! Trampolines (probes' generated code) read the counter only after they have pushed or found a call's frame (our
//! record). So the agent hides the thread's frames from trampolines ([`tls::hide_frames`]), which then call the agent
//! at each entry and return. Other threads execute no additional instruction.
//!
//! | in such a thread | result |
//! |---|---|
//! | a call that would be timed | it is only counted |
//! | the return of a call that was timed from its entry | it is timed by the kernel's clock |
//! | a call that would be recorded | it is only counted, in slab 0, which all threads share |
//! | a wait, a scope | it is timed by the kernel's clock |
//!
//! The hook (interception) of prctl sees a thread's own change. Other changes are found by [`look`], which checks at
//! the thread's first *followed* call (whose return counts), and when the thread enters a later session. Two cases are
//! not handled:
//! - a prctl without a hook after this check (if calls are recorded, after the thread's first hit);
//! - a prctl in a signal handler that interrupted a trampoline right before the reading.

use tiptoe_sys::raw::{call, nr};

use crate::clockwork;
use crate::own_thread::take_slab_away;
use crate::program_call::{self, Frame};
use crate::shared;
use crate::tls;

const PR_GET_TSC: usize = 25;
const PR_SET_TSC: usize = 26;
const ENABLE: u32 = 1;
const SIGSEGV: u32 = 2;

/// Lets the agent's thread read the counter, because that thread may have inherited the prohibition. Then compares the
/// counter with the kernel's clock.
pub fn begin() {
    // SAFETY: the call concerns this thread only.
    let _ = unsafe { call(nr::PRCTL, [PR_SET_TSC, ENABLE as usize, 0, 0, 0, 0]) };
    clockwork::compare();
}

pub fn is() -> bool {
    tls::are_frames_hidden()
}

/// Performs the program's prctl(PR_SET_TSC).
pub fn change(frame: &Frame) -> i64 {
    let wanted = frame.rsi as u32;
    // A forked child need not hide its frames, because without counters its trampolines never read the clock. A child
    // that shares this memory (vfork) must not, because that would hide its parent's frames.
    let shared = shared::at_home();
    if shared.is_some() && wanted == SIGSEGV {
        forbid();
    }
    let result = program_call::perform(nr::PRCTL, frame);
    if shared.is_some() {
        look();
    }
    result
}

/// Asks the kernel whether the calling thread may read the counter, and hides or shows its frames.
pub fn look() -> bool {
    let mut now = 0u32;
    let into = &raw mut now as usize;
    // SAFETY: the kernel writes one word, which lives through the call.
    let result = unsafe { call(nr::PRCTL, [PR_GET_TSC, into, 0, 0, 0, 0]) };
    let is_forbidden = result.is_ok() && now == SIGSEGV;
    match is_forbidden {
        true => forbid(),
        false => tls::show_frames(),
    }
    is_forbidden
}

fn forbid() {
    tls::hide_frames();
    let data = shared::get().and_then(|shared| shared.data());
    if data.is_some_and(|data| data.geometry().rings) {
        take_slab_away();
    }
}
