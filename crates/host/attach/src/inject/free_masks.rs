//! Keeps the signals of traps unblocked while trap bytes (breakpoint instructions) exist.
//!
//! If a thread blocks a trap's signal and hits the trap, the kernel kills the process. So the agent (tiptoe's
//! library) hooks the calls that change masks. The hooks leave these signals unblocked, and record in a word of the
//! thread which signals the thread *believes* to block. [`Masks::free_all`] unblocks the signals before the first
//! trap byte, while all threads are stopped and the calls are hooked.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tiptoe_wire::tls;

use super::later_masks;
use super::masks::Masks;
use super::process::Process;
use super::standstill;
use super::traced_thread::{StopFailure, StoppedThread};

/// How often at most all threads are stopped again because a thread was inside a hooked call.
const ROUNDS: u32 = 100;

/// A hooked system call: the address of the patched code, and that after the call.
pub type HookedCall = (u64, u64);

/// Why a process's threads could not be prepared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaskFailure {
    /// Not all threads could be stopped, or a thread did not leave a hooked call.
    NotStopped,
    /// The C library did not lay out a thread's control block, so the agent has no words in that block.
    ForeignBlock,
}

impl Masks {
    /// Unblocks the signals in all threads, and runs `act` while the threads are stopped. `ways` are the system calls
    /// that can block these signals later. These calls must be hooked when `act` returns. Signal handlers return to
    /// `restorer`.
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
                foreign.store(true, Relaxed); // Relaxed: as `late`
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

    /// Makes private copies of the pages at these addresses. Otherwise the kernel would copy each page at its first
    /// patch, while all threads are stopped. Each byte is written back as it was read, so the addresses must be inside
    /// instructions, where no other thread writes.
    pub fn own_pages(&self, addresses: impl Iterator<Item = u64>) {
        let Ok(process) = Process::open(self.pid, &self.program) else {
            return;
        };
        for address in addresses {
            let mut byte = [0];
            // A failure is ignored, because the patch will fail on a page that cannot be written.
            let _ = process
                .read(address, &mut byte)
                .and_then(|()| process.write(address, &byte));
        }
    }

    /// Runs `act` while all threads are stopped.
    pub fn hold<R: Send>(&self, act: impl FnOnce() -> R + Send) -> Result<R, MaskFailure> {
        standstill::run(self, &anywhere, &|_, _| Ok(()), act).ok_or(MaskFailure::NotStopped)
    }

    /// Blocks in each thread what the thread believes to block, and runs `act` while all threads are stopped.
    ///
    /// All threads must first be outside the agent's code. Otherwise the new mask could be lost, because the agent's
    /// hooks and its returning signal handlers set masks without the signals.
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
        // A thread in a signal handler believes to block what its mask will block after the handler returns.
        let believed = of_handlers.unwrap_or(mask) & self.signals;
        let word = self.words.word(self.words.bits(now) | believed);
        // A failure is ignored, because a thread that libc did not make has no words.
        let _ = process.write(at, &word.to_le_bytes());
        held.set_signal_mask(mask & !self.signals)
    }
}

fn anywhere(_: &StoppedThread) -> Result<bool, StopFailure> {
    Ok(true)
}
