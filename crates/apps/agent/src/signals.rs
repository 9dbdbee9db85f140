//! Takes SIGTRAP and SIGILL over while there are probes, and emulates both signals for the program.
//!
//! The kernel kills a process if a thread faults while it blocks the fault's signal. So no thread may block SIGTRAP or
//! SIGILL in the kernel while a trap byte (a one-byte patch) may exist. The program's requests to block them are only
//! recorded.
//!
//! | state of a signal | recorded in | kept by | changes when |
//! |---|---|---|---|
//! | owned | [`ProcessSignals`] | the process | [`own`] takes it over; [`disown`] gives it back |
//! | disposition | [`ProgramSignal`], a ring | the process | sigaction |
//! | requested in the mask of another signal's handler | [`ProcessSignals`] | the process | sigaction |
//! | blocked | [`tls`], word 1 | each thread | sigprocmask; our handler calls the program's; tiptoe attaches |
//! | waited for | [`tls`], words 3, 4, 8.. | each thread | sigsuspend, ppoll, pselect, epoll_pwait, sigtimedwait |
//! | held back, sent to the process | [`ProgramSignal`] | the process | it arrives, is unblocked or is waited for |
//! | held back, sent to a thread | [`tls`], words 5 to 7 | each thread | it arrives, is unblocked or is waited for |
//!
//! The handler ([`trap`]) checks an arriving signal in this order:
//!
//! | the signal is | result |
//! |---|---|
//! | a breakpoint of ours ([`crate::watches`]) | the access is recorded |
//! | a debug trap without a reason | dropped, if breakpoints can have caused it |
//! | a trap byte of ours | the thread goes to the probe's code, even if the program blocks or ignores the signal |
//! | the program's single step in our code | dropped, or handled as at the original instruction ([`step`]) |
//! | another fault | the program's handler runs; the program dies if it blocks the signal or is in that handler |
//! | sent, and wanted by the thread's sigtimedwait | the sigtimedwait returns it |
//! | sent, and not blocked by the mask of the thread's wait | the program's handler runs; the wait ends with EINTR |
//! | sent, and blocked | the signal is held back; the wait goes on |
//! | sent | the program's handler runs, with its mask, its stack and SA_RESETHAND |
//!
//! [`crate::hooks`] intercepts libc's calls that install a handler, or that block, read or await signals.
//!
//! # Guards
//! *Guards* are the hooks (patched calls) that keep our signals unblocked. They must never need a trap byte themselves
//! ([`tiptoe_uprobe::patcher`]).
//!
//! | step | action | then |
//! |---|---|---|
//! | 1 | tiptoe requests Prepare | our handlers are installed; changes of masks are not hooked yet |
//! | 2 | guards are patched, by one word or with all threads stopped | no request to block our signals gets through |
//! | 3 | tiptoe unblocks both signals in each thread, its waits and its running handlers | no thread blocks them |
//! | 4 | trap bytes are written | any thread may run one |
//! | 5 | the last trap byte is removed, each thread has run, and no trap's signal is pending | blocking is harmless |
//! | 6 | threads are stopped outside our handler; tiptoe blocks what each thread believes it blocks | masks are right |
//! | 7 | dispositions and masks are restored, then guards removed | the program is as it was |
//!
//! At step 6 a thread may be inside a hook that has read the old state. So each hook, after it has recorded a request,
//! checks whether the agent still owns the signals. If not, the hook undoes its change.
//!
//! If tiptoe dies, nothing stops the threads. Guards that can be removed only with all threads stopped then stay, and
//! perform the program's calls. A program that may change masks without passing a guard must have no trap bytes, so
//! patches whose removal needs trap bytes stay there, too. The next agent must not write trap bytes there either, so
//! each agent writes none before tiptoe allows them.
//!
//! What a program could still see:
//! - A call that sets a handler or mask is not intercepted outside libc, or in a libc whose `syscall` has another shape
//!   (musl's). If a program's files have such a call that may change a mask, no trap byte is used. Code that is loaded
//!   later may still block SIGTRAP; a trap byte in that thread then kills the process.
//! - A signal to the process is held back if the thread that the kernel chose blocks it, even if another thread does
//!   not. The signal stays held until a thread waits for it or unblocks it.
//! - If all threads block a signal that is sent to the process, one of them still gets it. sigpending shows the signal
//!   only after that thread has held it back.
//! - A blocked signal may make a call that takes no mask fail with EINTR: poll always, read if the program's handler
//!   lacks SA_RESTART.
//! - A signal of kill or tgkill has code SI_QUEUE if it was held when the session ended, or if another thread's
//!   sigtimedwait gets it.
//! - An epoll_pwait may end with EINTR although no handler ran, if a signal to another thread had been sent, but not
//!   handled, when the call began.
//! - If a wait's mask blocks one of our signals and the thread's usual mask does not, that signal ends the wait.
//! - The handlers of other signals do not block ours, though their masks may say so.
//! - A signalfd reads our signals only if it reads no others and was made during a session ([`fd`]).
//! - If tiptoe is killed, a thread that believes it blocks our signals does not block them until it next sets its mask.
//! - Each trap, and each held signal, takes a signal frame and less than 1 KiB of the thread's stack. The kernel kills
//!   a program whose stack has no room.
//!
//! The recorded dispositions are a ring, so that the handler needs no lock and reads no torn record.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use tiptoe_sys::raw::{self, call, nr, sleep_ns};

mod fd;
mod heirs;
mod home;
mod late;
mod pending;
mod step;
mod threads;
mod trap;
mod trap_data;
mod wait;

pub use fd::{in_use as has_signalfd, signalfd};
pub use heirs::{after_clear, after_failed_exec, before_exec, block_as_believed};
pub use late::wait as wait_for_late;
pub use pending::{
    deliver_pending, deliver_within, pending_set, send_held_process, set_waiter, take_pending,
};
pub use threads::{learn_layout, send_held_threads};
use trap::on_trap;
pub use trap_data::TrapData;
pub use wait::MaskLocation;

use crate::mask::{ILL, OURS, TRAP};
use crate::stubs::tiptoe_restorer;
use crate::tls;

const EINVAL: u64 = 22;
const SIG_DFL: u64 = 0;
const SIG_IGN: u64 = 1;
const SA_SIGINFO: u64 = 4;
const SA_ONSTACK: u64 = 0x0800_0000;
const SA_RESTART: u64 = 0x1000_0000;
const SA_RESTORER: u64 = 0x0400_0000;
const SA_NODEFER: u64 = 0x4000_0000;
const SA_RESETHAND: u64 = 0x8000_0000;
const RING: usize = 64;

/// A signal's disposition, in the form of rt_sigaction(2).
#[repr(C)]
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Action {
    pub handler: u64,
    pub flags: u64,
    pub restorer: u64,
    pub mask: u64,
}

/// The used fields of siginfo_t.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Info {
    signal: i32,
    errno: i32,
    code: i32,
    rest: [u32; 29],
}

impl Info {
    /// While a perf event's signal is blocked, the kernel keeps it pending.
    fn is_of_perf_event(&self) -> bool {
        const TRAP_PERF: i32 = 6;
        (self.signal, self.code) == (5, TRAP_PERF)
    }

    /// Returns whether the thread itself raised the signal. If such a signal is blocked or ignored, the kernel kills
    /// the process.
    fn is_fault(&self) -> bool {
        self.code > 0 && !self.is_of_perf_event()
    }
}

/// The used fields of ucontext_t.
#[repr(C)]
pub struct Context {
    head: [u64; 5],
    registers: [u64; 32],
    mask: u64,
}

const RSI: usize = 9;
const RAX: usize = 13;
const RIP: usize = 16;
const ARGUMENTS: [usize; 2] = [8, 9];

impl Context {
    fn register(&self, index: usize) -> u64 {
        self.registers.get(index).copied().unwrap_or(0)
    }

    fn set_register(&mut self, index: usize, value: u64) {
        if let Some(register) = self.registers.get_mut(index) {
            *register = value;
        }
    }
}

/// The program's requests for one owned signal.
struct ProgramSignal {
    ring: [[AtomicU64; 4]; RING],
    newest: AtomicUsize,
    pending: AtomicU32,
    info: [AtomicU32; 32],
    waiter: AtomicU32,
}

/// The process's requests, from [`own`] to [`disown`].
struct ProcessSignals {
    believed: [ProgramSignal; 2],
    owned: AtomicU64,
    is_on_alternate: AtomicBool,
    /// For each signal, the owned signals that the program requested in its handler's mask.
    masks: [AtomicU64; 65],
}

static SIGNALS: ProcessSignals = ProcessSignals {
    believed: [const {
        ProgramSignal {
            ring: [const { [const { AtomicU64::new(0) }; 4] }; RING],
            newest: AtomicUsize::new(0),
            pending: AtomicU32::new(0),
            info: [const { AtomicU32::new(0) }; 32],
            waiter: AtomicU32::new(0),
        }
    }; 2],
    owned: AtomicU64::new(0),
    is_on_alternate: AtomicBool::new(false),
    masks: [const { AtomicU64::new(0) }; 65],
};

fn believed(signal: usize) -> Option<&'static ProgramSignal> {
    let owned = SIGNALS.owned.load(Ordering::Acquire); // pairs with `own`
    let [ill, trap] = &SIGNALS.believed;
    match signal {
        4 if owned & ILL != 0 => Some(ill),
        5 if owned & TRAP != 0 => Some(trap),
        _ => None,
    }
}

impl ProgramSignal {
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
                word.store(value, Ordering::Relaxed); // published by the store below
            }
        }
        self.newest.store(next, Ordering::Release); // pairs with `action`
    }
}

fn kernel_action(signal: usize, new: Option<&Action>) -> Result<Action, raw::Errno> {
    let mut old = Action::default();
    let new = new.map_or(0, |new| core::ptr::from_ref(new) as usize);
    let args = [signal, new, &raw mut old as usize, 8, 0, 0];
    // SAFETY: both pointers are valid or NULL. The new handler is ours, or was the program's before.
    unsafe { call(nr::RT_SIGACTION, args) }.map(|_| old)
}

fn our_action(believed: &Action) -> Action {
    let handled = believed.handler > SIG_IGN;
    let kept = match handled {
        true => believed.flags & (SA_ONSTACK | SA_RESTART),
        // Relaxed: the thread that sets the flag then installs the handlers again.
        false if SIGNALS.is_on_alternate.load(Ordering::Relaxed) => SA_RESTART | SA_ONSTACK,
        false => SA_RESTART,
    };
    Action {
        handler: on_trap as *const () as u64,
        flags: SA_SIGINFO | SA_RESTORER | SA_NODEFER | kept,
        restorer: tiptoe_restorer as *const () as u64,
        // All other signals are blocked, because a handler that interrupts ours could run a trap byte.
        mask: !OURS,
    }
}

const BOTH: [usize; 2] = [4, 5];

fn bit(signal: usize) -> u64 {
    1 << (signal - 1)
}

fn number(bit: u64) -> usize {
    bit.trailing_zeros() as usize + 1
}

/// Returns 0 or an errno.
pub fn own(bit: u64) -> u64 {
    let owned = SIGNALS.owned.load(Ordering::Relaxed); // Relaxed: only the holder of the session's lock writes
    if owned & bit != 0 {
        return 0;
    }
    if owned == 0 {
        SIGNALS.is_on_alternate.store(false, Ordering::Relaxed); // Relaxed: as in `our_action`
        tls::begin_generation();
        home::settle();
        clear_masks();
    }
    let signal = number(bit);
    let Ok(old) = kernel_action(signal, None) else {
        return EINVAL;
    };
    let [ill, trap] = &SIGNALS.believed;
    if bit == ILL { ill } else { trap }.set_action(old);
    SIGNALS.owned.store(owned | bit, Ordering::Release); // pairs with `believed`
    match kernel_action(signal, Some(&our_action(&old))) {
        Ok(_) => 0,
        Err(errno) => errno.0 as u64,
    }
}

/// Makes our handlers use a thread's alternate stack until the session ends, because a coroutine's stack may have no
/// room for a breakpoint's signal frame. If the program has a handler, that handler's SA_ONSTACK flag decides.
pub fn use_alternate_stacks() {
    SIGNALS.is_on_alternate.store(true, Ordering::Relaxed);
    for signal in BOTH {
        if let Some(believed) = believed(signal) {
            let _ = kernel_action(signal, Some(&our_action(&believed.action())));
        }
    }
}

/// Removes our signals from the masks of the program's handlers, and records which had them.
fn clear_masks() {
    for signal in (1..65).filter(|signal| ![4, 5, 9, 19].contains(signal)) {
        let mut found = kernel_action(signal, None).unwrap_or_default();
        // The exchange is repeated if the program installed another handler in between.
        while found.handler > SIG_IGN && found.mask & OURS != 0 {
            note_mask(signal, found.mask);
            let clear = Action {
                mask: found.mask & !OURS,
                ..found
            };
            let replaced = kernel_action(signal, Some(&clear)).unwrap_or_default();
            if replaced == found {
                break;
            }
            found = replaced;
            let _ = kernel_action(signal, Some(&found));
        }
    }
}

fn note_mask(signal: usize, mask: u64) {
    if let Some(word) = SIGNALS.masks.get(signal) {
        word.store(mask & OURS, Ordering::Relaxed); // Relaxed: one word, read back whole
    }
}

pub fn noted_mask(signal: usize) -> u64 {
    SIGNALS
        .masks
        .get(signal)
        .map_or(0, |word| word.load(Ordering::Relaxed)) // Relaxed: as in `note_mask`
}

/// Installs our handlers again if the program installed its own just before the hooks were patched.
pub fn reinstall_handlers() {
    clear_masks();
    for bit in [ILL, TRAP] {
        let signal = number(bit);
        if let Some(believed) = believed(signal)
            && let Ok(now) = kernel_action(signal, None)
            && now.handler != on_trap as *const () as u64
        {
            believed.set_action(now);
            let _ = kernel_action(signal, Some(&our_action(&now)));
        }
    }
}

pub fn owned() -> bool {
    SIGNALS.owned.load(Ordering::SeqCst) != 0 // pairs with `own`; SeqCst: see `disown`
}

/// Threads inside hooks race with this call (step 6 above).
pub fn disown() {
    let owned = SIGNALS.owned.swap(0, Ordering::SeqCst); // SeqCst: before the loads of dispositions below
    for (bit, slot) in [ILL, TRAP].into_iter().zip(&SIGNALS.believed) {
        let mut given = None;
        // Repeated if the program changed the disposition in between.
        while owned & bit != 0 && given != Some(slot.action()) {
            let believed = slot.action();
            let _ = kernel_action(number(bit), Some(&believed));
            given = Some(believed);
        }
    }
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

/// Performs the program's rt_sigaction. A child that runs in its parent's memory has its own dispositions until its
/// exec. Its requests must not be recorded, because the record is the parent's.
pub fn program_action(signal: usize, new: Option<Action>) -> Result<Action, raw::Errno> {
    let new_here = new.filter(|_| !home::is_anothers());
    if let Some(believed) = believed(signal) {
        let old = believed.action();
        if let Some(new) = new_here {
            believed.set_action(new);
            kernel_action(signal, Some(&our_action(&new)))?;
            if !owned() {
                kernel_action(signal, Some(&new))?;
            }
        }
        return Ok(old);
    }
    let noted = noted_mask(signal);
    let kept = if owned() { OURS } else { 0 };
    let requested = new.map(|new| Action {
        mask: new.mask & !kept,
        ..new
    });
    let old = kernel_action(signal, requested.as_ref())?;
    if let Some(new) = new_here {
        note_mask(signal, new.mask & kept);
        match (kept != 0, owned()) {
            (true, false) => {
                note_mask(signal, 0);
                kernel_action(signal, Some(&new))?;
            }
            (false, true) => reinstall_handlers(),
            _ => {}
        }
    }
    Ok(Action {
        mask: old.mask | noted,
        ..old
    })
}

/// Waits, at most about 2 s, until no thread has one of our signals pending in the kernel. Otherwise it would arrive
/// after our handlers were removed.
pub fn wait_until_none_pending() {
    for _ in 0..100 {
        sleep_ns(20_000_000);
        if !crate::tasks::any_pending(OURS) {
            return;
        }
    }
}
