//! SIGTRAP and SIGILL that were sent to a program which blocks them: the kernel
//! does not hold them back for us, so we do.

use core::sync::atomic::Ordering;

use tiptoe_sys::raw::{call, getpid, gettid, nr};

use super::{Believed, ILL, Info, OURS, TRAP, believed};
use crate::tls;

/// Delivers what was pending for signals that the calling thread just unblocked.
pub fn deliver_pending() {
    for signal in [4usize, 5] {
        let Some(believed) = believed(signal) else {
            continue;
        };
        let unblocked = tls::blocked() & (1 << (signal - 1)) == 0;
        if unblocked && believed.pending.swap(0, Ordering::AcqRel) != 0 {
            send_to_thread(gettid(), signal, &believed.taken_info());
        }
    }
}

/// Takes a pending owned signal out of `set`, as sigtimedwait would.
pub fn take_pending(set: u64) -> Option<(usize, Info)> {
    [4usize, 5]
        .into_iter()
        .filter(|signal| set & (1 << (signal - 1)) != 0)
        .find_map(|signal| {
            let believed = believed(signal)?;
            let taken = believed.pending.swap(0, Ordering::AcqRel) != 0;
            taken.then(|| (signal, believed.taken_info()))
        })
}

/// Which owned signals are pending for the program.
pub fn pending_set() -> u64 {
    let pending = |signal: usize| {
        // Acquire: pairs with the Release in `hold_back`.
        believed(signal).is_some_and(|b| b.pending.load(Ordering::Acquire) != 0)
    };
    if pending(4) && pending(5) {
        OURS
    } else if pending(4) {
        ILL
    } else if pending(5) {
        TRAP
    } else {
        0
    }
}

/// Names the calling thread as one that waits for owned signals in `set`; 0 ends it.
pub fn set_waiter(set: u64, tid: u32) {
    for signal in [4usize, 5] {
        if set & (1 << (signal - 1)) != 0
            && let Some(believed) = believed(signal)
        {
            believed.waiter.store(tid, Ordering::Release); // pairs with `hold_back`
        }
    }
}

impl Believed {
    pub(super) fn taken_info(&self) -> Info {
        let word = |at: usize| {
            self.info
                .get(at)
                .map_or(0, |word| word.load(Ordering::Relaxed))
        };
        // Relaxed: ordered by the exchange of `pending`.
        let rest = core::array::from_fn(|at| word(3 + at));
        Info {
            signal: word(0) as i32,
            errno: word(1) as i32,
            code: word(2) as i32,
            rest,
        }
    }

    /// Keeps a signal that the program blocks until it wants it.
    pub(super) fn hold_back(&self, info: &Info) {
        let waiter = self.waiter.load(Ordering::Acquire); // pairs with `set_waiter`
        if waiter != 0 && waiter != gettid() {
            return send_to_thread(waiter, info.signal as usize, info);
        }
        let head = [info.signal as u32, info.errno as u32, info.code as u32];
        for (word, value) in self.info.iter().zip(head.into_iter().chain(info.rest)) {
            word.store(value, Ordering::Relaxed); // published by `pending`
        }
        self.pending.store(1, Ordering::Release); // pairs with the exchanges
    }
}

pub(super) fn send_to_thread(tid: u32, signal: usize, info: &Info) {
    let args = [
        getpid() as usize,
        tid as usize,
        signal,
        core::ptr::from_ref(info) as usize,
        0,
        0,
    ];
    // SAFETY: `info` is a whole siginfo; the signal goes to our own process.
    let _ = unsafe { call(nr::RT_TGSIGQUEUEINFO, args) };
}
