//! Handles futex calls before and after they are made. Signal handlers run this code, so it must neither lock nor wait.
//!
//! The records are in the thread's *slab*, its block of counters, at the session's offset for locks. The *board*, where
//! wakers record their call sites ([`tiptoe_futex::board`]), is in slab 0, which all threads share.

use core::ops::Range;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use tiptoe_futex::calls::{Call, Thread};
use tiptoe_futex::holds::LockOperation;
use tiptoe_futex::owner::OwnedLock;
use tiptoe_futex::paths::Paths;
use tiptoe_futex::walk::Frames;
use tiptoe_stack::{Frame, Rule};
use tiptoe_wire::Words;
use tiptoe_wire::futex::frames::{OWNER_SHIFT, owner};
use tiptoe_wire::futex::{AFTER, HOLD, MUTEX, RULE, RWLOCK, UNTIMED, WIDTH, segment};

use crate::clockwork;
use crate::scopes;
use crate::stubs::tiptoe_first_slab;
use crate::tls;

/// How far trampolines (generated code) lower the stack pointer: past the red zone, which the program may use.
const BELOW: u64 = 128;

const _: () = assert!(RULE == (1 << Rule::BITS) - 1);

/// The registers as `tiptoe_futex_entry` and the trampoline pushed them.
#[repr(C)]
pub struct FutexRegisters {
    rax: u64,
    rcx: u64,
    rdx: u64,
    rbp: u64,
    rdi: u64,
    more: [u64; 3],
    rsi: u64,
    r11: u64,
    back: u64,
    what: u64,
}

impl FutexRegisters {
    fn has(&self, flag: i32) -> bool {
        self.what & flag as u64 != 0
    }

    fn sp(&self) -> u64 {
        core::ptr::from_ref(&self.what) as u64 + 8 + BELOW
    }
}

/// The address of slab 0's words, stored because computing it would slow each call; 0 unless locks are recorded.
static SHARED: AtomicU64 = AtomicU64::new(0);

pub fn begin(slot: Option<u32>, slabs: Range<u64>) {
    let Some(slot) = slot else { return };
    let offset = u64::from(slot) * 8;
    let shared = slabs.start + offset;
    let words = area(shared);
    words.store(segment::BEGIN as usize, slabs.start);
    words.store(segment::END as usize, slabs.end);
    words.store(segment::OFFSET as usize, offset);
    SHARED.store(shared, Release); // pairs with the load in `WaitWords::of`
}

pub fn end() {
    SHARED.store(0, Relaxed); // Relaxed: the old address stays mapped
}

fn area(at: u64) -> Words<'static> {
    // SAFETY: in a session that records locks, each slab has WIDTH words here, which stay mapped for ever.
    unsafe { Words::from_raw(at as *const u8, WIDTH as usize * 8) }
}

/// The calling thread's records of waits and wakes.
pub struct WaitWords {
    own: Words<'static>,
    shared: Words<'static>,
    /// The number of the scope (label) that the thread is in.
    scope: u64,
}

impl WaitWords {
    #[inline]
    pub fn find() -> Option<WaitWords> {
        // SAFETY: a thread's word always points to a descriptor (the address of a slab), its own or `EMPTY_DESCRIPTOR`.
        let descriptor = unsafe { &*(tls::descriptor() as *const AtomicU64) };
        WaitWords::of(descriptor.load(Relaxed)) // Relaxed: `of` rejects a stale slab
    }

    /// Returns the calling thread's words. `slab` is the slab in its descriptor, or 0.
    #[inline]
    fn of(slab: u64) -> Option<WaitWords> {
        let shared = SHARED.load(Acquire); // pairs with `begin`
        if shared == 0 {
            return None;
        }
        let slab = match slab {
            // SAFETY: `tiptoe_first_slab` preserves all that the calling convention requires.
            0 => Some(unsafe { tiptoe_first_slab() }).filter(|slab| *slab != 0)?,
            slab => slab,
        };
        let shared = area(shared);
        let [begin, end] = [segment::BEGIN, segment::END].map(|word| shared.load(word as usize));
        // A thread that was preempted after it read `slab` may have an earlier session's slab.
        if slab < begin || slab >= end {
            return None;
        }
        let own = area(slab + shared.load(segment::OFFSET as usize));
        let scope = scopes::of(slab);
        Some(WaitWords { own, shared, scope })
    }

    #[inline]
    pub fn thread(&self) -> Thread<'static> {
        Thread::new(self.own, self.shared).with_scope(self.scope)
    }
}

/// Handles a trampoline's call, in a thread whose descriptor has this slab.
pub extern "C" fn futex(registers: &FutexRegisters, slab: u64) {
    let Some(here) = WaitWords::of(slab) else {
        return;
    };
    let thread = here.thread();
    let rule = Rule::from_bits((registers.what & RULE as u64) as u32);
    let frame = Frame {
        pc: registers.back,
        sp: registers.sp(),
        bp: registers.rbp,
    };
    let place = rule.cfa(&frame).unwrap_or(frame.sp);
    if registers.has(AFTER) {
        let result = registers.rax as i64;
        return thread.ends(place, result, clockwork::ticks, clockwork::ns, read_lock);
    }
    // SAFETY: unwind rules of runtime libraries' frames ([`Frames`]) and of their caller name only words on the stack,
    // above the stack pointer.
    let load = |at: u64| unsafe { (at as *const u64).read_volatile() };
    let operation = LockOperation::of(registers.what as i32);
    let timed = operation.is_none() && thread.is_next_timed(registers.rsi as u32);
    let now = timed.then(clockwork::ticks);
    let paths = Paths::new(here.own);
    let frames = Frames::new(here.shared);
    let mut caller = frames.caller(&paths, rule, frame, load);
    if caller.site == 0 {
        caller.site = registers.back;
    }
    if let Some(operation) = operation {
        let lock = match operation {
            LockOperation::Leaves => registers.rsi,
            _ => registers.rdi,
        };
        return thread.lock_operation(operation, lock, &caller, clockwork::ticks(), clockwork::ns);
    }
    let call = Call {
        address: registers.rdi,
        operation: registers.rsi as u32,
        sp: place,
        caller,
        at: registers.back,
        is_timed: !registers.has(UNTIMED),
    };
    let lock = || owned_lock(registers, caller.via >> OWNER_SHIFT);
    let clock = || now.unwrap_or_else(clockwork::ticks);
    thread.begins(&call, lock, clock, read_lock);
}

/// Returns the kind of the lock for which a futex call waits; `None` if such locks record no holder. `function` is the
/// libc function on the stack that waits for the lock, or 0.
#[inline(always)]
fn owned_lock(registers: &FutexRegisters, function: u64) -> Option<OwnedLock> {
    let function = match function {
        // No waiting function of libc was found on the stack, so the flags of the call's site give the lock's kind.
        0 if registers.has(RWLOCK) => owner::RWLOCK,
        0 if registers.what as i32 & HOLD == MUTEX => owner::MUTEX,
        known => known,
    };
    let (futex, value) = (registers.rdi, registers.rdx as u32);
    OwnedLock::of(function, futex, registers.rsi as u32, value)
}

#[inline(always)]
fn read_lock(at: u64) -> u32 {
    // SAFETY: the word is inside a mutex or rwlock of fixed layout, which libc's function has just used, and will
    // use after the call.
    unsafe { (at as *const u32).read_volatile() }
}
