//! Holds back each SIGTRAP and SIGILL that is sent while the program believes it blocks the signal. The signal arrives,
//! because the kernel does not block it ([`super`]).
//!
//! A thread that holds a signal back races with a thread that begins to wait. The holder stores the signal, then reads
//! the waiter. The waiter stores its id, then looks for the signal. With SeqCst fences between the steps, at least one
//! sees the other's store.

use core::sync::atomic::{Ordering, fence};

use tiptoe_sys::raw::{call, getpid, gettid, nr};

use super::{BOTH, Info, OURS, ProgramSignal, SIG_IGN, SIGNALS, believed, bit, fd};
use crate::mask::set_mask;
use crate::tls;

const SI_QUEUE: i32 = -1;
const SI_TKILL: i32 = -6;
/// The upper half of a signal's value, if the signal was passed on to another thread. The lower half is then the
/// signal's true code.
const PASSED_ON: u32 = 0x7469_7074;
/// The value of `pending` while a thread writes or takes the record. Otherwise `pending` is 0, or the process to which
/// a held signal was sent.
const WRITING: u32 = u32::MAX;

pub fn deliver_pending() {
    let blocked = tls::blocked();
    for signal in BOTH.into_iter().filter(|s| blocked & bit(*s) == 0) {
        while let Some(info) = take(signal) {
            send_to_thread(gettid(), signal, &info);
        }
    }
}

/// Delivers the held signals, except those that both `mask` and the thread's present mask block. Their handlers run
/// under `mask`. Returns whether a handler ran.
pub fn deliver_within(mask: u64) -> bool {
    let before = tls::blocked();
    let mut ran = false;
    for signal in BOTH.into_iter().filter(|s| mask & before & bit(*s) == 0) {
        let handled = believed(signal).is_some_and(|b| b.action().handler != SIG_IGN);
        while let Some(info) = take(signal) {
            let outer = set_mask(mask & !OURS);
            tls::set_blocked(mask & OURS);
            send_to_thread(gettid(), signal, &info);
            tls::set_blocked(before);
            set_mask(outer);
            ran |= handled;
        }
    }
    ran
}

pub fn take_pending(set: u64) -> Option<(usize, Info)> {
    let mut wanted = BOTH.into_iter().filter(|s| set & bit(*s) != 0);
    wanted.find_map(|signal| take(signal).map(|info| (signal, info)))
}

pub fn pending_set() -> u64 {
    let pending = |signal: &usize| {
        tls::held_sender(*signal).is_some()
            || fd::is_full(*signal)
            // Acquire: pairs with the Release in `ProgramSignal::keep`.
            || believed(*signal).is_some_and(|b| b.pending.load(Ordering::Acquire) == getpid())
    };
    BOTH.iter().filter(|s| pending(s)).map(|s| bit(*s)).sum()
}

/// Takes a held signal that was sent to this thread or, if none was, to the process.
fn take(signal: usize) -> Option<Info> {
    let sender = tls::take_held(signal);
    if let Some(sender) = sender {
        return Some(Info::from_sender(signal, sender));
    }
    fd::drain(signal).or_else(|| believed(signal)?.take())
}

pub fn set_waiter(set: u64) {
    let tid = gettid();
    for believed in BOTH
        .into_iter()
        .filter(|s| set & bit(*s) != 0)
        .filter_map(believed)
    {
        believed.waiter.store(tid, Ordering::Relaxed); // Relaxed: ordered by the fence
    }
    // SeqCst: see the module.
    fence(Ordering::SeqCst);
}

/// Sends the process its held signals, because the signals are the program's own again.
pub fn send_held_process() {
    for (signal, slot) in BOTH.into_iter().zip(&SIGNALS.believed) {
        if let Some(info) = slot.take() {
            let info = info.queued();
            let at = core::ptr::from_ref(&info) as usize;
            let args = [getpid() as usize, signal, at, 0, 0, 0];
            // SAFETY: `info` is a whole siginfo; the signal goes to our own process.
            let _ = unsafe { call(nr::RT_SIGQUEUEINFO, args) };
        }
    }
}

impl Info {
    /// Returns the signal as tgkill would send it. `sender` has the process id, and in the upper half the user.
    pub(super) fn from_sender(signal: usize, sender: u64) -> Info {
        let mut rest = [0; 29];
        // Process id and user follow three numbers of 4 bytes, and 4 bytes of alignment.
        for (word, value) in rest.iter_mut().skip(1).zip([sender, sender >> 32]) {
            *word = value as u32;
        }
        Info {
            signal: signal as i32,
            errno: 0,
            code: SI_TKILL,
            rest,
        }
    }

    /// Returns the signal in a form that one thread may send to another. A thread may send the codes of kill and tgkill
    /// only to itself, so the code becomes SI_QUEUE.
    pub(super) fn queued(&self) -> Info {
        let kept = self.code < 0 && self.code != SI_TKILL;
        Info {
            code: if kept { self.code } else { SI_QUEUE },
            ..*self
        }
    }

    /// Returns the signal as [`Info::queued`] does, with its true code saved in the value.
    fn passed_on(&self) -> Info {
        let mut info = self.queued();
        if let [_, _, _, code, mark, ..] = &mut info.rest
            && info.code != self.code
        {
            (*code, *mark) = (self.code as u32, PASSED_ON);
        }
        info
    }

    pub(super) fn restore(&mut self) {
        if let [_, _, _, code, mark, ..] = &mut self.rest
            && (self.code, *mark) == (SI_QUEUE, PASSED_ON)
        {
            self.code = *code as i32;
            (*code, *mark) = (0, 0);
        }
    }

    fn sender(&self) -> u64 {
        let word = |at: usize| self.rest.get(at).map_or(0, |word| u64::from(*word));
        word(1) | (word(2) & 0x7fff_ffff) << 32
    }
}

impl ProgramSignal {
    /// Takes the signal held for the process. A forked child cannot take its parent's.
    fn take(&self) -> Option<Info> {
        if self.pending.load(Ordering::Relaxed) == 0 {
            return None; // Relaxed: if it is not 0, the exchange decides
        }
        let pid = getpid();
        // AcqRel: pairs with the Release in `keep`; the exchange decides among several takers.
        let won = self
            .pending
            .compare_exchange(pid, WRITING, Ordering::AcqRel, Ordering::Relaxed);
        won.ok()?;
        let word = |at: usize| {
            // Relaxed: ordered by the exchange.
            self.info
                .get(at)
                .map_or(0, |word| word.load(Ordering::Relaxed))
        };
        let info = Info {
            signal: word(0) as i32,
            errno: word(1) as i32,
            code: word(2) as i32,
            rest: core::array::from_fn(|at| word(3 + at)),
        };
        self.pending.store(0, Ordering::Release); // Release: pairs with the exchange in `keep`
        Some(info)
    }

    pub(super) fn hold_back(&self, info: &Info) {
        let signal = info.signal as usize;
        if fd::offer(info) {
            // The reader of the pipe, or the thread that unblocks the signal, takes the record from the pipe.
        } else if info.code == SI_TKILL {
            tls::hold(signal, info.sender());
        } else {
            self.keep(info);
            // SeqCst: see the module.
            fence(Ordering::SeqCst);
            self.pass_on(signal);
        }
        tls::recall(true);
    }

    /// Keeps one signal of each kind, as the kernel does.
    fn keep(&self, info: &Info) {
        let pending = self.pending.load(Ordering::Relaxed); // Relaxed: the exchange decides
        if pending == WRITING || pending == getpid() {
            return;
        }
        let claim =
            self.pending
                .compare_exchange(pending, WRITING, Ordering::AcqRel, Ordering::Relaxed);
        if claim.is_err() {
            return;
        }
        let head = [info.signal as u32, info.errno as u32, info.code as u32];
        for (word, value) in self.info.iter().zip(head.into_iter().chain(info.rest)) {
            word.store(value, Ordering::Relaxed); // Relaxed: published by `pending`
        }
        self.pending.store(getpid(), Ordering::Release); // Release: pairs with the exchanges
    }

    fn pass_on(&self, signal: usize) {
        let waiter = self.waiter.load(Ordering::Relaxed); // Relaxed: ordered by the fence
        if waiter != 0
            && waiter != gettid()
            && let Some(info) = self.take()
            && !send_to_thread(waiter, signal, &info.passed_on())
        {
            self.keep(&info);
        }
    }
}

/// Returns whether the thread exists.
pub(super) fn send_to_thread(tid: u32, signal: usize, info: &Info) -> bool {
    let at = core::ptr::from_ref(info) as usize;
    let args = [getpid() as usize, tid as usize, signal, at, 0, 0];
    // SAFETY: `info` is a whole siginfo; the signal goes to our own process.
    unsafe { call(nr::RT_TGSIGQUEUEINFO, args) }.is_ok()
}
