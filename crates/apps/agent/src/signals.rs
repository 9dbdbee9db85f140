//! SIGTRAP and SIGILL: ours while probes stand, and still the program's.
//!
//! The kernel kills a process whose thread faults while it blocks the fault's signal. So
//! no thread blocks either of the two in the kernel as long as a trap byte may stand; what
//! the program asked for is noted, and acted upon when a signal comes.
//!
//! | state of a signal | noted in | kept by | changes when |
//! |---|---|---|---|
//! | owned | `OWNED` | the process | Prepare takes it over; the end of the session gives it back |
//! | disposition | [`Believed`], a ring | the process | the program calls sigaction |
//! | in the mask of another signal's handler | `MASKS` | the process | likewise; the kernel's mask lacks it |
//! | blocked | [`tls`], word 1 | each thread | sigprocmask; our handler around the program's; attach |
//! | waited for | [`tls`], words 3, 4, 8.. | each thread | sigsuspend, ppoll, pselect, epoll_pwait, sigtimedwait |
//! | held back, sent to the process | [`Believed`] | the process | a blocked one comes; it is unblocked or waited for |
//! | held back, sent to a thread | [`tls`], words 5 to 7 | each thread | likewise |
//!
//! A signal that comes ([`trap`]), in this order:
//!
//! | it is | it leads to |
//! |---|---|
//! | a breakpoint of ours ([`crate::watches`]) | a note of it; the thread goes on |
//! | a trap byte of ours | the trampoline, whatever the program blocks or ignores |
//! | a single step of the program's own, in code of ours | nothing, or its handler, which sees the original's address ([`step`]) |
//! | a fault of the program's own | its handler; death where it blocks the signal, as it does in that handler |
//! | sent, and open in the wait that the thread is in | the handler; the wait ends with EINTR |
//! | sent, and wanted by a sigtimedwait | its result |
//! | sent, and blocked | held back; a wait with a mask of its own goes on |
//! | sent | the handler as the program asked for it: its mask, its stack, once or often |
//!
//! The kernel's handler is ours, with SA_ONSTACK and SA_RESTART as the program's has them. If the program has none,
//! ours has SA_RESTART, and SA_ONSTACK while variables are watched ([`use_alternate_stacks`]). A call that installs, blocks, reads or waits is
//! caught where libc makes it ([`crate::hooks`]).
//!
//! # No thread blocks our signals while a trap byte stands
//! The hooks that keep threads from it are *guards*: they go on first and come off last, and
//! never hold a trap byte themselves ([`tiptoe_uprobe::patcher`]).
//!
//! | step | who | then |
//! |---|---|---|
//! | 1 | Prepare | our handlers stand; a mask can still change unseen |
//! | 2 | guards go on: a word each, the others while all threads stand still | no new block reaches the kernel |
//! | 3 | tiptoe unblocks each thread, its waits and the handlers that it is in | no thread blocks them |
//! | 4 | trap bytes, as long as the session lasts | any thread may meet one |
//! | 5 | the last trap byte goes, and no signal of one is pending | a block harms nobody |
//! | 6 | tiptoe blocks for each thread what it believes to block; it holds all of them still, none within our handler | the kernel has the truth |
//! | 7 | dispositions and masks come back, then guards go | the program is as it was |
//!
//! A thread that stands within a hook at 6 acts by what it saw before. So each hook looks again whether
//! the signals are still owned, after it has noted what the program asked for, and undoes its part.
//! Where tiptoe dies nobody holds threads still: guards that need it stay, and pass calls on. In a program that gets
//! no trap bytes, so do the sites that need it. The next session must not write a trap byte there either, even if its
//! tiptoe dies first: an agent writes none before tiptoe has allowed them.
//!
//! What a program could still see:
//! - a system call that is no libc's, or libc's `syscall` of another shape (musl's), is not
//!   caught. Where a program's files have one that may change a mask, no trap byte is used; code that is
//!   generated, or loaded later, may still block SIGTRAP, and is killed where it then meets a trap byte;
//! - a signal sent to the process is held back by the thread that the kernel chose, although
//!   another thread may not block it, until a thread waits for it or unblocks it;
//! - a call without a mask of its own (read, poll) that a blocked signal meets ends with EINTR
//!   where the program's handler lacks SA_RESTART, or the call is never restarted;
//! - a signal of kill or tgkill that was held back when the session ended, or that a sigtimedwait
//!   in another thread gets, says SI_QUEUE; its sender is told right;
//! - an epoll_pwait that begins while a signal is on its way to another thread can end with
//!   EINTR and no handler run, as it can after SIGCONT;
//! - a wait whose mask blocks more than the thread does is ended by such a signal;
//! - the handlers of other signals do not block ours, though their masks may say so;
//! - a signalfd reads ours only where it has no other signal in it and was made while probes
//!   stood ([`fd`]): else they stay pending;
//! - where tiptoe is killed, threads stay without the block until they ask for it again;
//! - each trap, and each signal held back, takes one signal frame, and less than 1 KiB, of
//!   the stack it happens on; the kernel kills a program whose stack has no room for it.
//!
//! The noted disposition is one of a ring of records that are written before
//! they are named, so that the handler reads it whole without a lock.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use tiptoe_sys::raw::{self, call, nr, sleep_ns};

mod fd;
mod heirs;
mod home;
mod pending;
mod step;
mod threads;
mod trap;
mod wait;

pub use fd::{in_use as has_signalfd, signalfd};
pub use heirs::{after_clear, after_failed_exec, before_exec, block_as_believed};
pub use pending::{
    deliver_pending, deliver_within, pending_set, send_held_process, set_waiter, take_pending,
};
pub use threads::{learn_layout, send_held_threads};
pub use trap::Trapped;
use trap::on_trap;
pub use wait::Place;

use crate::asm::tiptoe_restorer;
use crate::tls;

/// Bit of SIGILL in a kernel signal set.
pub const ILL: u64 = 1 << 3;
/// Bit of SIGTRAP in a kernel signal set.
pub const TRAP: u64 = 1 << 4;
/// Signals that the program can never block in the kernel while we are here.
pub const OURS: u64 = ILL | TRAP;

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

impl Info {
    /// Whether a perf event raised it, which the kernel sends: it waits where the program blocks the signal.
    fn is_of_perf_event(&self) -> bool {
        const TRAP_PERF: i32 = 6;
        (self.signal, self.code) == (5, TRAP_PERF)
    }

    /// Whether the thread itself raised it, so that the kernel lets nobody block or ignore it.
    fn is_fault(&self) -> bool {
        self.code > 0 && !self.is_of_perf_event()
    }
}

/// ucontext_t, as far as it is looked into.
#[repr(C)]
pub struct Context {
    head: [u64; 5],
    registers: [u64; 32],
    mask: u64,
}

/// Indices of registers in a ucontext.
const RSI: usize = 9;
const RAX: usize = 13;
const RIP: usize = 16;
/// rdi and rsi.
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
static ON_ALTERNATE: AtomicBool = AtomicBool::new(false);
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

/// Our handler, on the stack and with the restarts that the program's would have.
fn our_action(believed: &Action) -> Action {
    let handled = believed.handler > SIG_IGN;
    let kept = match handled {
        true => believed.flags & (SA_ONSTACK | SA_RESTART),
        // Relaxed: the thread that stores it installs the handlers again.
        false if ON_ALTERNATE.load(Ordering::Relaxed) => SA_RESTART | SA_ONSTACK,
        false => SA_RESTART,
    };
    Action {
        handler: on_trap as *const () as u64,
        flags: SA_SIGINFO | SA_RESTORER | SA_NODEFER | kept,
        restorer: tiptoe_restorer as *const () as u64,
        // Nothing else may run on top: its handler could meet a trap too.
        mask: !OURS,
    }
}

/// SIGILL and SIGTRAP as numbers.
const BOTH: [usize; 2] = [4, 5];

fn bit(signal: usize) -> u64 {
    1 << (signal - 1)
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
        ON_ALTERNATE.store(false, Ordering::Relaxed); // as in `our_action`
        tls::begin_generation();
        home::settle();
        clear_masks();
    }
    let signal = number(bit);
    let Ok(old) = kernel_action(signal, None) else {
        return EINVAL;
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
    match kernel_action(signal, Some(&our_action(&old))) {
        Ok(_) => 0,
        Err(errno) => errno.0 as u64,
    }
}

/// Has our handlers run on a thread's alternate stack, if it has one, until the end of the session: a watch traps
/// wherever the program stores, also on a coroutine's stack that has no room for a signal frame. A program with a
/// handler of its own chooses the stack by that.
pub fn use_alternate_stacks() {
    ON_ALTERNATE.store(true, Ordering::Relaxed);
    for signal in BOTH {
        if let Some(believed) = believed(signal) {
            let _ = kernel_action(signal, Some(&our_action(&believed.action())));
        }
    }
}

/// Takes our signals out of the masks that the program's handlers run under, and notes them.
fn clear_masks() {
    for signal in (1..65).filter(|signal| ![4, 5, 9, 19].contains(signal)) {
        let mut found = kernel_action(signal, None).unwrap_or_default();
        // The program may install another meanwhile.
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
/// before the hooks stood, and notes what it installed, masks too.
pub fn insist() {
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

/// Whether the signals are ours.
pub fn owned() -> bool {
    OWNED.load(Ordering::SeqCst) != 0 // pairs with `own`; SeqCst: see `disown`
}

/// Gives both signals and all masks back to the program. A thread that is within a hook meanwhile does the same
/// for what it changes: it looks again whether they are still owned once it has changed it.
pub fn disown() {
    let owned = OWNED.swap(0, Ordering::SeqCst); // SeqCst: before the dispositions are read, see `program_action`
    for (bit, slot) in [(ILL, &BELIEVED[0]), (TRAP, &BELIEVED[1])] {
        let mut given = None;
        // The program may install another meanwhile.
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

/// The program's own rt_sigaction call, in all its forms. A child that runs in its
/// parent's memory has dispositions of its own, which last until its exec: they are
/// not noted.
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
    let asked = new.map(|new| Action {
        mask: new.mask & !kept,
        ..new
    });
    let old = kernel_action(signal, asked.as_ref())?;
    if let Some(new) = new_here {
        note_mask(signal, new.mask & kept);
        match (kept != 0, owned()) {
            (true, false) => {
                note_mask(signal, 0);
                kernel_action(signal, Some(&new))?;
            }
            (false, true) => insist(),
            _ => {}
        }
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
