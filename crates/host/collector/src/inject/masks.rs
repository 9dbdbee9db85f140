//! Signals that no thread may block while probes stand, and what threads believe.
//!
//! A thread is stopped for some microseconds, and its system call goes on. It is stopped
//! only where it blocks one of the signals ([`Masks::hand_over`]), or believes to
//! ([`Masks::give_back`]); what it believes stands in a word of its own, which the agent's
//! hooks keep while it runs.

use std::collections::BTreeSet;
use std::sync::mpsc;
use std::time::Duration;

use tiptoe_wire::tls::BELIEVED;

use super::InjectError;
use super::process::{self, Process};
use super::tracee::{Held, Missed};

/// How long one thread may take to stop.
const PATIENCE: Duration = Duration::from_millis(200);
/// So many looks for threads that were born meanwhile.
const PASSES: usize = 50;

/// Where the agent keeps what a thread believes.
#[derive(Clone, Copy, Debug)]
pub struct Words {
    /// The %fs offset of a thread's words.
    pub tls: i64,
    /// What notes must be marked with to be of this session.
    pub generation: u32,
    /// Where in a thread's block libc keeps its robust list.
    pub robust: Option<u64>,
}

/// The signals of one process.
#[derive(Clone, Copy, Debug)]
pub struct Masks {
    /// The process.
    pub pid: u32,
    /// A thread that is none of the program's.
    pub spare: Option<u32>,
    /// The signals, bit N-1 for signal N.
    pub signals: u64,
    /// Where to note what they blocked.
    pub words: Option<Words>,
}

impl Masks {
    /// Has no thread block the signals any more, and each believe that it does as before.
    /// The number of threads that were changed.
    pub fn hand_over(&self) -> Result<usize, InjectError> {
        let process = Process::open(self.pid)?;
        let blocks = |tid| {
            let status = process::status(self.pid, tid);
            status.is_ok_and(|status| status.blocked & self.signals != 0)
        };
        self.each(blocks, |held| self.free(held, &process))
    }

    /// Has a thread block the signals no more, and believe that it does as before.
    fn free(&self, held: &Held, process: &Process) -> Result<(), Missed> {
        let mask = held.signal_mask()?;
        if mask & self.signals == 0 {
            return Ok(());
        }
        let block = held.registers()?.fs_base;
        if let Some(words) = self.words {
            let at = words.believed(block);
            let now = process.read_u64(at).map_err(|_| Missed::Gone)?;
            let word = words.word(words.bits(now) | mask & self.signals);
            let write = process.write(at, &word.to_le_bytes());
            write.map_err(|_| Missed::Gone)?;
        }
        held.set_signal_mask(mask & !self.signals)
    }

    /// Runs something while all threads of the program stand still, and none blocks the signals: where threads are born
    /// all the time, each of them blocks everything for a moment, and would meet a trap byte then.
    pub fn while_stopped<R>(&self, act: impl FnOnce() -> R) -> R {
        let (stopped, is_stopped) = mpsc::channel();
        let (over, is_over) = mpsc::channel::<()>();
        std::thread::scope(|scope| {
            // Who seizes must be the one who lets go.
            scope.spawn(move || {
                let held = self.stop_all();
                let _ = stopped.send(());
                let _ = is_over.recv();
                drop(held);
            });
            let _ = is_stopped.recv();
            let result = act();
            drop(over);
            result
        })
    }

    fn is_due(&self, tid: u32) -> bool {
        let status = process::status(self.pid, tid);
        status.is_ok_and(|status| status.pending & self.signals != 0)
    }

    /// Stops all threads, until none is born any more. One that would not stop goes on.
    fn stop_all(&self) -> Vec<Held> {
        let (mut held, mut tried) = (Vec::new(), BTreeSet::new());
        let Ok(process) = Process::open(self.pid) else {
            return held;
        };
        for _ in 0..PASSES {
            let threads = process::threads(self.pid).unwrap_or_default();
            let (before, mut all) = (tried.len(), true);
            for tid in threads.into_iter().filter(|tid| Some(*tid) != self.spare) {
                if tried.insert(tid)
                    && let Ok(stopped) = Held::stop(tid, PATIENCE)
                {
                    // One that a signal is on its way to is let go and stopped again behind it.
                    if self.is_due(tid) {
                        tried.remove(&tid);
                        all = false;
                        continue;
                    }
                    let _ = self.free(&stopped, &process);
                    held.push(stopped);
                }
            }
            if all && tried.len() == before {
                break;
            }
        }
        held
    }

    /// Has each thread block what it believes to block. The number of threads changed.
    pub fn give_back(&self) -> Result<usize, InjectError> {
        let process = Process::open(self.pid)?;
        let Some(words) = self.words else {
            return Ok(0);
        };
        let believed = |block| {
            let word = process.read_u64(words.believed(block));
            words.bits(word.unwrap_or(0)) & self.signals
        };
        let believes = |tid| {
            let list = words.robust.zip(robust_list(tid));
            list.is_some_and(|(offset, list)| believed(list.wrapping_sub(offset)) != 0)
        };
        self.each(believes, |held| {
            let block = held.registers()?.fs_base;
            held.set_signal_mask(held.signal_mask()? | believed(block))
        })
    }

    /// Stops the program's threads that `wanted` names, one after the other.
    fn each(
        &self,
        wanted: impl Fn(u32) -> bool,
        act: impl Fn(&Held) -> Result<(), Missed> + Sync,
    ) -> Result<usize, InjectError> {
        let mut changed = 0;
        for tid in process::threads(self.pid)? {
            if Some(tid) == self.spare || !wanted(tid) {
                continue;
            }
            let stop = || act(&Held::stop(tid, PATIENCE)?);
            // A thread of ours for each: its end lets go of one that would not stop.
            let hand = std::thread::scope(|scope| scope.spawn(stop).join());
            match hand {
                Ok(Ok(())) => changed += 1,
                Ok(Err(Missed::Os(errno))) => {
                    return Err(InjectError::os(self.pid, "ptrace", errno.into()));
                }
                _ => {}
            }
        }
        Ok(changed)
    }
}

impl Words {
    fn believed(&self, block: u64) -> u64 {
        block.wrapping_add_signed(self.tls + BELIEVED)
    }

    fn word(&self, bits: u64) -> u64 {
        bits | u64::from(self.generation) << 32
    }

    /// The signals that a word names, if it is of this session.
    fn bits(&self, word: u64) -> u64 {
        match (word >> 32) as u32 == self.generation {
            true => word & u64::from(u32::MAX),
            false => 0,
        }
    }
}

/// Where a thread's robust list is: in its block, if its libc made it.
pub(super) fn robust_list(tid: u32) -> Option<u64> {
    let (mut head, mut length) = (0u64, 0usize);
    // SAFETY: the kernel writes one pointer and one length to the two places, which live on.
    let result = unsafe {
        libc::syscall(
            libc::SYS_get_robust_list,
            tid,
            &raw mut head,
            &raw mut length,
        )
    };
    (result == 0 && head != 0).then_some(head)
}
