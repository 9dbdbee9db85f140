//! Times calls. When a call returns, its duration is added to the probe's words in the thread's slab (block of
//! counters).
//!
//! The exit of a trampoline (generated code) calls `tiptoe_time_entry`. rax has the elapsed ticks, rcx the end of the
//! call's frame (our record), rdx the byte offset of the probe's words. Every other register is preserved. In a hot
//! loop this takes 0.5 ns, because it overlaps with the next reading of the time stamp counter.
//!
//! A call saves the number of its duration's histogram bucket, and the probe's next call in the thread increments that
//! bucket. An immediate increment would store to an address that depends on the duration just measured. Later loads may
//! alias that address, so they would wait 15 ns. The exchange of buckets needs no lock prefix, because only a signal
//! handler of the same thread can interrupt it.
//!
//! The histogram's bucket `i` holds (2^(i/8), 2^((i+1)/8)] ns. The leading one bit of ns - 1 and the three bits after
//! it select one of eight equal parts of the octave. Each part but the last contains one bucket boundary, with which ns
//! is compared.

use core::arch::global_asm;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tiptoe_event::THRESHOLDS;
use tiptoe_sys::raw::{nr, syscall6};
use tiptoe_wire::Clock;

use crate::tls;

/// The session's clock. `tiptoe_time_entry` reads the first two words at fixed offsets.
#[repr(C)]
struct Clockwork {
    /// Nanoseconds in a tick, times 2^32.
    ns_per_tick: AtomicU64,
    /// The duration below which calls are not timed.
    slower_ns: AtomicU64,
    /// The same moment in ticks and in ns. Relaxed throughout: the agent's thread writes both at its start, usually
    /// before a probe is patched. A torn pair would only shift computed ticks.
    moment_ticks: AtomicU64,
    moment_ns: AtomicU64,
}

static CLOCKWORK: Clockwork = Clockwork {
    ns_per_tick: AtomicU64::new(0),
    slower_ns: AtomicU64::new(0),
    moment_ticks: AtomicU64::new(0),
    moment_ns: AtomicU64::new(0),
};

pub fn set(clock: &Clock) {
    // Relaxed: set before the first patch whose code reads these words.
    CLOCKWORK.ns_per_tick.store(clock.ns_per_tick, Relaxed);
    CLOCKWORK.slower_ns.store(clock.slower_ns, Relaxed);
}

/// Called only by the agent's thread.
pub fn compare() {
    CLOCKWORK.moment_ns.store(monotonic_ns(), Relaxed);
    CLOCKWORK.moment_ticks.store(counter(), Relaxed);
}

/// Returns the time stamp counter, or computes it if the thread may not read it.
#[inline(always)]
pub fn ticks() -> u64 {
    match tls::are_frames_hidden() {
        true => kernels_ticks(CLOCKWORK.ns_per_tick.load(Relaxed)),
        false => counter(),
    }
}

/// The calling thread must be allowed to read the time stamp counter.
#[inline(always)]
pub fn counter() -> u64 {
    // SAFETY: every x86-64 CPU has the instruction, and the calling thread may execute it.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cold]
#[inline(never)]
fn kernels_ticks(ns_per_tick: u64) -> u64 {
    let passed = monotonic_ns().wrapping_sub(CLOCKWORK.moment_ns.load(Relaxed));
    let Some(whole) = passed.checked_div(ns_per_tick) else {
        return 0;
    };
    // Computes passed * 2^32 / ns_per_tick without a 128-bit division. A tick is below 4 ns, so the shift does not
    // overflow.
    let rest = ((passed % ns_per_tick) << 30) / ns_per_tick;
    let ticks = (whole << 32).wrapping_add(rest << 2);
    CLOCKWORK.moment_ticks.load(Relaxed).wrapping_add(ticks)
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

pub fn ns(ticks: u64) -> u64 {
    let product = u128::from(ticks) * u128::from(CLOCKWORK.ns_per_tick.load(Relaxed));
    (product >> 32) as u64
}

pub fn is_on() -> bool {
    CLOCKWORK.ns_per_tick.load(Relaxed) != 0
}

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
    // rsi becomes the address of the probe's words. Without a session, or in a forked child, there is no slab.
    "mov rsi, qword ptr [rip + tiptoe_tls_descriptor@GOTTPOFF]",
    "mov rsi, qword ptr fs:[rsi]",
    "mov rsi, qword ptr [rsi]",
    "test rsi, rsi",
    "jz 9f",
    "add rsi, rdx",
    "mul qword ptr [rip + {clockwork}]",
    "shrd rax, rdx, 32",
    "inc qword ptr [rsi + 8]",
    // Adds the duration to the callees' time in the caller's frame.
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
    // rcx becomes the duration's bucket; for 0 and 1 ns that is the duration.
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
    pub fn tiptoe_time_entry();
}
