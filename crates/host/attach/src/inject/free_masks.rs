//! Keeps the signals of traps unblocked while trap bytes exist, and records for each thread which of
//! them the program has blocked there.
//!
//! A trap that arrives while its signal is blocked kills the process. So the thread *believes* to
//! block these signals: they are unblocked, and recorded in a word of the thread, which the agent's
//! hooks maintain.
//! [`Masks::free_all`] unblocks the signals before the first trap byte. It stops all threads, and the
//! hooks of system calls that change masks must be in place:
//!
//! | the thread has the signals blocked in | then |
//! |---|---|
//! | its mask, even if a call has replaced it temporarily | they are removed, and recorded in its word |
//! | the mask of a call that it sleeps in | the call restarts with a copy of the mask, in the thread's words |
//! | a mask that a handler's return restores | they are removed there |
//! | a call that it is about to make, after it passed the hook | it continues, and is stopped again after the call |
//!
//! After the last trap byte, [`Masks::give_back`] blocks in each thread what the thread believes to
//! block, once it has left the agent's handler.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tiptoe_wire::tls;

use super::later_masks;
use super::masks::Masks;
use super::process::Process;
use super::standstill;
use super::traced_thread::{StopFailure, StoppedThread};

/// How often all threads may be stopped again because one was between a hook and the end of its
/// call.
const ROUNDS: u32 = 100;

/// A hooked system call: its site, and the address after the call.
pub type HookedCall = (u64, u64);

/// Why the threads of a process could not be prepared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaskFailure {
    /// The threads could not all be stopped, or one did not get past a hooked call.
    NotStopped,
    /// A thread has a thread-local block that its C library did not lay out, so there are no words of the agent in it.
    ForeignBlock,
}

impl Masks {
    /// Runs `act` while all threads of the program are stopped, and unblocks the signals in all of
    /// them. A thread can block them later only through one of `ways`, whose hooks must be in place
    /// when `act` returns. Handlers return to `restorer`.
    pub fn free_all<R: Send>(
        &self,
        ways: &[HookedCall],
        restorer: Option<u64>,
        act: impl FnOnce() -> R + Send,
    ) -> Result<R, MaskFailure> {
        let (late, foreign) = (AtomicBool::new(false), AtomicBool::new(false));
        let look = |held: &StoppedThread, process: &Process| {
            let at = held.registers()?.rip;
            if ways.iter().any(|(site, after)| *site < at && at < *after) {
                late.store(true, Relaxed); // Relaxed: read only after the threads that write it were joined
            }
            if !self.words.give(process, held.registers()?.fs_base) {
                foreign.store(true, Relaxed); // Relaxed: as above.
                return Ok(());
            }
            self.free(held, process, restorer)
        };
        let result = standstill::run(self, &anywhere, &look, act).ok_or(MaskFailure::NotStopped)?;
        for _ in 0..ROUNDS {
            if foreign.load(Relaxed) {
                return Err(MaskFailure::ForeignBlock);
            }
            if !late.swap(false, Relaxed) {
                return Ok(result);
            }
            standstill::run(self, &anywhere, &look, || ()).ok_or(MaskFailure::NotStopped)?;
        }
        Err(MaskFailure::NotStopped)
    }

    /// Makes private copies of the pages at these addresses, by writing bytes unchanged. Otherwise
    /// the kernel would copy each page at its first patch, while all threads are stopped. The
    /// addresses must be inside an instruction, so that no other thread writes them.
    pub fn own_pages(&self, addresses: impl Iterator<Item = u64>) {
        let Ok(process) = Process::open(self.pid, &self.program) else {
            return;
        };
        for address in addresses {
            let mut byte = [0];
            // An error is ignored, because the patch will report a page that cannot be written.
            let _ = process
                .read(address, &mut byte)
                .and_then(|()| process.write(address, &byte));
        }
    }

    /// Runs `act` while all threads of the program are stopped.
    pub fn hold<R: Send>(&self, act: impl FnOnce() -> R + Send) -> Result<R, MaskFailure> {
        standstill::run(self, &anywhere, &|_, _| Ok(()), act).ok_or(MaskFailure::NotStopped)
    }

    /// Runs `act` while all threads of the program are stopped, and blocks in each thread what it
    /// believes to block.
    ///
    /// A thread inside the agent's signal handler must leave it first, because the handler's return
    /// restores a mask without the signals. No thread may be changed before all of them are
    /// outside: one could be inside a hook that changes its mask, and would overwrite the change.
    pub fn give_back<R: Send>(&self, act: impl FnOnce() -> R + Send) -> Result<R, MaskFailure> {
        let [start, end] = self.agent_code;
        let is_outside = |held: &StoppedThread| Ok(!(start..end).contains(&held.registers()?.rip));
        let block = |held: &StoppedThread, process: &Process| {
            let block = held.registers()?.fs_base;
            let word = process.read_u64(self.words.at(block, tls::BELIEVED));
            let believed = self.words.bits(word.unwrap_or(0)) & self.signals;
            match believed {
                0 => Ok(()),
                _ => held.set_signal_mask(held.signal_mask()? | believed),
            }
        };
        standstill::run(self, &is_outside, &block, act).ok_or(MaskFailure::NotStopped)
    }

    /// Unblocks the signals of a thread, and records those that it believes to block.
    fn free(
        &self,
        held: &StoppedThread,
        process: &Process,
        restorer: Option<u64>,
    ) -> Result<(), StopFailure> {
        let mask = held.signal_mask()?;
        let mut regs = held.registers()?;
        if later_masks::replace_mask(self, process, &mut regs) {
            held.set_registers(regs)?;
        }
        if mask == 0 {
            return Ok(());
        }
        let of_handlers = later_masks::clear_frames(self, process, regs.rsp, restorer);
        if mask & self.signals == 0 {
            return Ok(());
        }
        let at = self.words.at(regs.fs_base, tls::BELIEVED);
        let now = process.read_u64(at).unwrap_or(0);
        // A thread inside a handler believes to block what the mask blocks after the handler's return.
        let believed = of_handlers.unwrap_or(mask) & self.signals;
        let word = self.words.word(self.words.bits(now) | believed);
        // An error is ignored, because a thread that no libc made has no words and records nothing.
        let _ = process.write(at, &word.to_le_bytes());
        held.set_signal_mask(mask & !self.signals)
    }
}

/// Allows stopping a thread wherever it is.
fn anywhere(_: &StoppedThread) -> Result<bool, StopFailure> {
    Ok(true)
}
