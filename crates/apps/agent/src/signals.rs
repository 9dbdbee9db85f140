//! SIGTRAP and SIGILL: ours while probes stand, and still the program's.
//!
//! | the program does | it gets |
//! |---|---|
//! | sigaction, signal | its own old handler; its new one is noted, ours stays |
//! | blocks them | the mask it asked for, when it asks; the kernel's never blocks them |
//! | a fault or `int3` of its own | its own handler, called as the kernel would, or the default |
//! | kill(SIGTRAP) while it blocks it | pending until it unblocks or waits for it |
//!
//! The noted disposition is one of a ring of records that are written before
//! they are named, so that the handler reads it whole without a lock.

use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use tiptoe_sys::raw::{self, call, nr, sleep_ns};

mod pending;
mod trap;

pub use pending::{deliver_pending, pending_set, set_waiter, take_pending};
use trap::on_trap;

use crate::asm::tiptoe_restorer;

/// Bit of SIGILL in a kernel signal set.
pub const ILL: u64 = 1 << 3;
/// Bit of SIGTRAP in a kernel signal set.
pub const TRAP: u64 = 1 << 4;
/// Signals that the program can never block in the kernel while we are here.
pub const OURS: u64 = ILL | TRAP;

const SIG_DFL: u64 = 0;
const SIG_IGN: u64 = 1;
const SA_SIGINFO: u64 = 4;
const SA_RESTORER: u64 = 0x0400_0000;
const SA_NODEFER: u64 = 0x4000_0000;
const SA_RESETHAND: u64 = 0x8000_0000;
const RING: usize = 64;

/// A signal's disposition as rt_sigaction(2) takes it.
#[repr(C)]
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Action {
    /// SIG_DFL, SIG_IGN or a function.
    pub handler: u64,
    /// SA_ flags.
    pub flags: u64,
    /// What the handler returns to.
    pub restorer: u64,
    /// Signals blocked while it runs.
    pub mask: u64,
}

/// siginfo_t, as far as it is looked into.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Info {
    signal: i32,
    errno: i32,
    code: i32,
    rest: [u32; 29],
}

/// ucontext_t, as far as it is looked into.
#[repr(C)]
pub struct Context {
    head: [u64; 5],
    registers: [u64; 32],
    mask: u64,
}

const RIP: usize = 16;

/// What the program believes of one owned signal.
struct Believed {
    ring: [[AtomicU64; 4]; RING],
    newest: AtomicUsize,
    pending: AtomicU32,
    info: [AtomicU32; 32],
    waiter: AtomicU32,
}

#[expect(
    clippy::declare_interior_mutable_const,
    reason = "a pattern for array initialisers"
)]
const ZERO: AtomicU64 = AtomicU64::new(0);
#[expect(
    clippy::declare_interior_mutable_const,
    reason = "a pattern for array initialisers"
)]
const NOTHING: Believed = Believed {
    ring: [const { [ZERO; 4] }; RING],
    newest: AtomicUsize::new(0),
    pending: AtomicU32::new(0),
    info: [const { AtomicU32::new(0) }; 32],
    waiter: AtomicU32::new(0),
};

static BELIEVED: [Believed; 2] = [NOTHING; 2];
static OWNED: AtomicU64 = AtomicU64::new(0);
/// For each signal the owned bits that the program put into its handler's mask.
static MASKS: [AtomicU64; 65] = [ZERO; 65];

fn believed(signal: usize) -> Option<&'static Believed> {
    let owned = OWNED.load(Ordering::Acquire); // pairs with `own`
    match signal {
        4 if owned & ILL != 0 => BELIEVED.first(),
        5 if owned & TRAP != 0 => BELIEVED.last(),
        _ => None,
    }
}

impl Believed {
    fn action(&self) -> Action {
        let newest = self.newest.load(Ordering::Acquire); // pairs with `set_action`
        let word = |at: usize| {
            let record = self.ring.get(newest % RING);
            record
                .and_then(|record| record.get(at))
                .map_or(0, |word| word.load(Ordering::Relaxed))
        };
        Action {
            handler: word(0),
            flags: word(1),
            restorer: word(2),
            mask: word(3),
        }
    }

    fn set_action(&self, action: Action) {
        let next = self.newest.load(Ordering::Relaxed) + 1;
        let words = [action.handler, action.flags, action.restorer, action.mask];
        if let Some(record) = self.ring.get(next % RING) {
            for (word, value) in record.iter().zip(words) {
                word.store(value, Ordering::Relaxed); // named by the store below
            }
        }
        self.newest.store(next, Ordering::Release); // pairs with `action`
    }
}

/// rt_sigaction as the kernel has it.
fn kernel_action(signal: usize, new: Option<&Action>) -> Result<Action, raw::Errno> {
    let mut old = Action::default();
    let new = new.map_or(0, |new| core::ptr::from_ref(new) as usize);
    let args = [signal, new, &raw mut old as usize, 8, 0, 0];
    // SAFETY: both pointers are valid or NULL; the handlers installed are ours
    // or ones that the program installed before.
    unsafe { call(nr::RT_SIGACTION, args) }.map(|_| old)
}

fn our_action() -> Action {
    Action {
        handler: on_trap as *const () as u64,
        flags: SA_SIGINFO | SA_RESTORER | SA_NODEFER,
        restorer: tiptoe_restorer as *const () as u64,
        // Nothing else may run on top: its handler could meet a trap too.
        mask: !OURS,
    }
}

fn number(bit: u64) -> usize {
    bit.trailing_zeros() as usize + 1
}

/// Takes a signal over: notes the program's disposition, and keeps our signals
/// out of the masks that its handlers run under. Returns 0 or an errno.
pub fn own(bit: u64) -> u64 {
    let owned = OWNED.load(Ordering::Relaxed); // agent's thread is the only writer
    if owned & bit != 0 {
        return 0;
    }
    if owned == 0 {
        clear_masks();
    }
    let signal = number(bit);
    let Ok(old) = kernel_action(signal, None) else {
        return 22;
    };
    let slot = if bit == ILL {
        BELIEVED.first()
    } else {
        BELIEVED.last()
    };
    if let Some(slot) = slot {
        slot.set_action(old);
    }
    OWNED.store(owned | bit, Ordering::Release); // pairs with `believed`
    match kernel_action(signal, Some(&our_action())) {
        Ok(_) => 0,
        Err(errno) => errno.0 as u64,
    }
}

fn clear_masks() {
    for signal in (1..65).filter(|signal| ![4, 5, 9, 19].contains(signal)) {
        if let Ok(old) = kernel_action(signal, None)
            && old.handler > SIG_IGN
            && old.mask & OURS != 0
        {
            note_mask(signal, old.mask);
            let _ = kernel_action(
                signal,
                Some(&Action {
                    mask: old.mask & !OURS,
                    ..old
                }),
            );
        }
    }
}

fn note_mask(signal: usize, mask: u64) {
    if let Some(word) = MASKS.get(signal) {
        word.store(mask & OURS, Ordering::Relaxed); // only ever read back whole
    }
}

/// The owned bits that the program has in a handler's mask.
pub fn noted_mask(signal: usize) -> u64 {
    MASKS
        .get(signal)
        .map_or(0, |word| word.load(Ordering::Relaxed)) // as in `note_mask`
}

/// Puts our handlers back where the program installed its own in the instant
/// before the hooks stood, and notes what it installed.
pub fn insist() {
    for bit in [ILL, TRAP] {
        let signal = number(bit);
        let ours = our_action();
        if let Some(believed) = believed(signal)
            && let Ok(now) = kernel_action(signal, None)
            && now.handler != ours.handler
        {
            believed.set_action(now);
            let _ = kernel_action(signal, Some(&ours));
        }
    }
}

/// Gives both signals and all masks back to the program.
pub fn disown() {
    for bit in [ILL, TRAP] {
        let signal = number(bit);
        if let Some(believed) = believed(signal) {
            let _ = kernel_action(signal, Some(&believed.action()));
        }
    }
    OWNED.store(0, Ordering::Release); // pairs with `believed`
    for signal in 1..65 {
        let noted = noted_mask(signal);
        if noted != 0
            && let Ok(old) = kernel_action(signal, None)
        {
            let _ = kernel_action(
                signal,
                Some(&Action {
                    mask: old.mask | noted,
                    ..old
                }),
            );
            note_mask(signal, 0);
        }
    }
}

/// The program's own rt_sigaction call, in all its forms.
pub fn program_action(signal: usize, new: Option<Action>) -> Result<Action, raw::Errno> {
    if let Some(believed) = believed(signal) {
        let old = believed.action();
        if let Some(new) = new {
            believed.set_action(Action {
                mask: new.mask,
                ..new
            });
        }
        return Ok(old);
    }
    let noted = noted_mask(signal);
    let kept = if OWNED.load(Ordering::Acquire) != 0 {
        OURS
    } else {
        0
    };
    let asked = new.map(|new| Action {
        mask: new.mask & !kept,
        ..new
    });
    let old = kernel_action(signal, asked.as_ref())?;
    if let Some(new) = new {
        note_mask(signal, new.mask & kept);
    }
    Ok(Action {
        mask: old.mask | noted,
        ..old
    })
}

/// Waits until no thread has one of our signals pending in the kernel, so that
/// none can arrive after the handlers are gone; bounded to about 2 s.
pub fn wait_until_none_pending() {
    for _ in 0..100 {
        sleep_ns(20_000_000);
        if !crate::tasks::any_pending(OURS) {
            return;
        }
    }
}
