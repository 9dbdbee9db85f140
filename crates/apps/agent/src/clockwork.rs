//! Timing a call that returned: its duration in nanoseconds, to its thread's words.
//!
//! `tiptoe_time_entry` is called by a trampoline's exit with the ticks that passed in
//! rax, the end of the call's frame in rcx and the byte offset of the probe's words in
//! rdx; it preserves every other register. Behind the reading of the clock it is all but
//! free, as it overlaps with the next: 0.5 ns in a hot loop.
//!
//! Of this duration only the place is noted, and the last one's is counted: a word whose
//! address depends on a time just taken cannot be loaded, nor what may be the same word
//! after it, until that time is known, which took 15 ns. The exchange is one instruction
//! without a lock: a signal handler's calls come before it or behind.
//!
//! The histogram's bucket `i` holds (2^(i/8), 2^((i+1)/8)] ns. With w = ns - 1, the
//! power of two below and the three bits behind the leading one name an eighth of an
//! octave in w; each eighth but the last holds one bucket boundary, with which ns
//! itself is compared.

use core::arch::global_asm;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tiptoe_event::THRESHOLDS;
use tiptoe_wire::Clock;

/// Read by `tiptoe_time_entry` at fixed offsets.
#[repr(C)]
struct Clockwork {
    /// Nanoseconds in a tick, times 2^32.
    ns_per_tick: AtomicU64,
    /// Calls that took less are not timed.
    slower_ns: AtomicU64,
}

static CLOCKWORK: Clockwork = Clockwork {
    ns_per_tick: AtomicU64::new(0),
    slower_ns: AtomicU64::new(0),
};

/// Sets the clock for a session.
pub fn set(clock: &Clock) {
    // Relaxed: set before the first trampoline that reads it is armed.
    CLOCKWORK.ns_per_tick.store(clock.ns_per_tick, Relaxed);
    CLOCKWORK.slower_ns.store(clock.slower_ns, Relaxed);
}

/// The time stamp counter.
pub fn ticks() -> u64 {
    // SAFETY: every x86-64 has it; a program that forbids it to itself (prctl
    // PR_SET_TSC) is not traced with times.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Ticks as nanoseconds.
pub fn ns(ticks: u64) -> u64 {
    let product = u128::from(ticks) * u128::from(CLOCKWORK.ns_per_tick.load(Relaxed));
    (product >> 32) as u64
}

/// Whether the session times calls.
pub fn is_on() -> bool {
    CLOCKWORK.ns_per_tick.load(Relaxed) != 0
}

/// Calls that took less are not timed.
pub fn slower_ns() -> u64 {
    CLOCKWORK.slower_ns.load(Relaxed)
}

global_asm!(
    ".text",
    ".hidden tiptoe_time_entry",
    ".global tiptoe_time_entry",
    ".p2align 4",
    "tiptoe_time_entry:",
    ".cfi_startproc",
    "push rsi",
    ".cfi_adjust_cfa_offset 8",
    "push rdi",
    ".cfi_adjust_cfa_offset 8",
    // rsi: the probe's words. None in a forked child, or when the session is over.
    "mov rsi, qword ptr [rip + tiptoe_tls_descriptor@GOTTPOFF]",
    "mov rsi, qword ptr fs:[rsi]",
    "mov rsi, qword ptr [rsi]",
    "test rsi, rsi",
    "jz 9f",
    "add rsi, rdx",
    // rax: nanoseconds.
    "mul qword ptr [rip + {clockwork}]",
    "shrd rax, rdx, 32",
    "inc qword ptr [rsi + 8]",
    // The caller's frame learns how long its callee took; ours knows it of its own.
    "add qword ptr [rcx - 40], rax",
    "cmp rax, qword ptr [rip + {clockwork} + 8]",
    "jb 9f",
    "add qword ptr [rsi + 32], rax",
    "mov rdx, rax",
    "sub rdx, qword ptr [rcx - 8]",
    "jb 2f",
    "add qword ptr [rsi + 40], rdx",
    "2:",
    "cmp rax, qword ptr [rsi + 48]",
    "jbe 3f",
    "mov qword ptr [rsi + 48], rax",
    "3:",
    // rcx: the place of the duration, here of none or of one nanosecond.
    "push rcx",
    ".cfi_adjust_cfa_offset 8",
    "mov rcx, rax",
    "mov rdx, rax",
    "sub rdx, 1",
    "jbe 4f",
    "bsr rcx, rdx",
    "mov edi, ecx",
    "xor ecx, 63",
    "shl rdx, cl",
    "shl rax, cl",
    "mov rcx, rdx",
    "shr rcx, 60",
    "and ecx, 7",
    "lea rdx, [rip + {thresholds}]",
    "cmp qword ptr [rdx + rcx*8], rax",
    "adc ecx, 0",
    "lea ecx, [rcx + rdi*8 + 1]",
    "cmp ecx, {last}",
    "mov edx, {last}",
    "cmova ecx, edx",
    "4:",
    "mov rax, qword ptr [rsi + 56]",
    "5:",
    "cmpxchg qword ptr [rsi + 56], rcx",
    "jne 5b",
    "inc qword ptr [rsi + rax*8 + 64]",
    "pop rcx",
    ".cfi_adjust_cfa_offset -8",
    "9:",
    "pop rdi",
    ".cfi_adjust_cfa_offset -8",
    "pop rsi",
    ".cfi_adjust_cfa_offset -8",
    "ret",
    ".cfi_endproc",
    clockwork = sym CLOCKWORK,
    thresholds = sym THRESHOLD_TABLE,
    last = const tiptoe_event::HISTOGRAM_BUCKETS,
);

static THRESHOLD_TABLE: [u64; 8] = THRESHOLDS;

unsafe extern "C" {
    /// See the module: reached from trampolines only.
    pub fn tiptoe_time_entry();
}
