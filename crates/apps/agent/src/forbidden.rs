//! Threads that may not read the time stamp counter. A thread forbids itself the reading by prctl(PR_SET_TSC,
//! PR_TSC_SIGSEGV), and the threads and processes that it starts inherit that. Each reading then raises SIGSEGV.
//!
//! Trampolines read the counter only between the push of a frame and the store of its time, and after a return has
//! found its frame on top. So it suffices to hide the thread's frames from its trampolines ([`tls::hide_frames`]):
//! they then call the agent at each entry and at each return, and hits of other threads need no more instructions.
//! The agent still finds the frames.
//! | in such a thread | result |
//! |---|---|
//! | a call that would be timed | it is only counted |
//! | the return of a call that was timed from its entry | it is timed by the kernel's clock |
//! | a call that would be recorded | it is only counted, in the slab that threads share |
//! | a wait, a scope | it is timed by the kernel's clock |
//!
//! The hook of prctl shows a thread's own change. The kernel is asked at the thread's first followed call, and when
//! the thread enters a later session.
//!
//! Not handled: a prctl without a hook that comes later than these moments, or after the thread's first hit if calls
//! are recorded; and a prctl in a signal handler that interrupted a trampoline right before it reads the counter.

use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tiptoe_sys::raw::{call, nr, syscall6};

use crate::clockwork;
use crate::hooks::{self, Frame};
use crate::shared;
use crate::tls;

const PR_GET_TSC: usize = 25;
const PR_SET_TSC: usize = 26;
const ENABLE: u32 = 1;
const SIGSEGV: u32 = 2;

/// One moment by both clocks. Relaxed throughout: written before the first trampoline is armed, and a torn pair only
/// shifts the ticks of threads that may not read the counter.
static TICKS: AtomicU64 = AtomicU64::new(0);
static NS: AtomicU64 = AtomicU64::new(0);

/// Lets the agent's thread read the time-stamp counter, which the thread that created it may be forbidden to read. Then
/// reads the counter and the clock, so that they can be compared.
pub fn begin() {
    // SAFETY: the call concerns this thread only.
    let _ = unsafe { call(nr::PRCTL, [PR_SET_TSC, ENABLE as usize, 0, 0, 0, 0]) };
    NS.store(monotonic_ns(), Relaxed);
    TICKS.store(clockwork::counter(), Relaxed);
}

/// Returns whether the calling thread may not read the counter, as far as is known.
pub fn is() -> bool {
    tls::are_frames_hidden()
}

/// Performs the program's prctl(PR_SET_TSC).
pub fn change(frame: &Frame) -> i64 {
    let wanted = frame.rsi as u32;
    // A forked child needs no change, because it has no slab, so its trampolines never read the counter. A child that
    // shares this memory (vfork) must make none, because it would hide its parent's frames.
    let shared = shared::at_home();
    if shared.is_some() && wanted == SIGSEGV {
        forbid();
    }
    let result = hooks::perform(nr::PRCTL, frame);
    if shared.is_some() {
        look();
    }
    result
}

/// Asks the kernel whether the calling thread may read the counter, and hides or shows its frames. Returns whether it
/// may not.
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
        hooks::take_slab_away();
    }
}

/// Returns the counter's value, computed from the kernel's clock.
#[cold]
#[inline(never)]
pub fn ticks(ns_per_tick: u64) -> u64 {
    let passed = monotonic_ns().wrapping_sub(NS.load(Relaxed));
    let Some(whole) = passed.checked_div(ns_per_tick) else {
        return 0;
    };
    // In units of 2^-32 ns, without a division of 128 bits. A tick is below 4 ns, so nothing overflows.
    let rest = ((passed % ns_per_tick) << 30) / ns_per_tick;
    let ticks = (whole << 32).wrapping_add(rest << 2);
    TICKS.load(Relaxed).wrapping_add(ticks)
}

/// Returns CLOCK_MONOTONIC without using a vector register.
fn monotonic_ns() -> u64 {
    const MONOTONIC: usize = 1;
    let mut time = [MaybeUninit::<u64>::uninit(); 2];
    let into = time.as_mut_ptr() as usize;
    // SAFETY: the kernel writes a timespec, which fits `time`. The call cannot fail.
    let [seconds, part] = unsafe {
        syscall6(nr::CLOCK_GETTIME, MONOTONIC, into, 0, 0, 0, 0);
        time.map(|word| word.assume_init())
    };
    seconds * 1_000_000_000 + part
}
