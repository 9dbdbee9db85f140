//! Keeps the signals of traps unblocked while patches with trap bytes exist, and records what
//! threads believe to block.
//!
//! A trap that arrives while its signal is blocked kills the process. So the signals that a thread
//! believes to block are in a word of its own, which the agent's hooks maintain. Before the first
//! trap byte every thread is freed ([`Masks::free_all`]) while all of them are stopped and the
//! hooks of system calls that change masks are in place:
//!
//! | a thread has the signals blocked | then |
//! |---|---|
//! | in its mask, also if a call has replaced it temporarily | they are removed, and recorded in its word |
//! | in the mask of a call that it sleeps in | the call is made again with a copy of the mask, in its words |
//! | in the mask that is restored when a handler returns | they are removed there |
//! | in a call that it is about to make after it passed the hook | it continues and is stopped again after the call |
//!
//! After the last trap byte every thread blocks again what it believes to block
//! ([`Masks::give_back`]), once it has left the agent's handler.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tiptoe_sys::host::procfs::RunningProgram;
use tiptoe_wire::tls;

use super::later_masks;
use super::process::{self, Process};
use super::standstill;
use super::traced_thread::{StopFailure, StoppedThread};

/// How often to look for threads that have passed a hook but not made its call yet.
const ROUNDS: u32 = 100;

/// Where the agent records what a thread believes to block.
#[derive(Clone, Copy, Debug)]
pub struct Words {
    /// The %fs offset of a thread's words.
    pub tls: i64,
    /// The mark of this session: a note with another mark is of an earlier session and must be
    /// ignored.
    pub generation: u32,
    /// The initial values of its first word and of its frames' word.
    pub beginnings: [u64; 2],
    /// The C library is glibc.
    pub is_glibc: bool,
}

/// The signals of one process.
#[derive(Clone, Copy, Debug)]
pub struct Masks {
    /// The process.
    pub pid: u32,
    /// The program that it runs: another one, after an exec, is not touched.
    pub program: RunningProgram,
    /// A thread that is not the program's.
    pub spare: Option<u32>,
    /// The start and end of the agent's code.
    pub agent_code: [u64; 2],
    /// The signals, bit N-1 for signal N.
    pub signals: u64,
    /// Where to record the signals that threads blocked.
    pub words: Words,
}

/// A hooked system call: its site, and the address after the call.
pub type HookedCall = (u64, u64);

/// Why the threads of a process could not be prepared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unready {
    /// They could not all be stopped, or did not get past a call.
    Moving,
    /// A thread runs on a thread-local block that its C library did not lay out, so that the agent
    /// has no words in it.
    Storage,
}

impl Masks {
    /// Runs `act` while all threads of the program are stopped, and unblocks the signals in all of
    /// them. A thread that would block them later must pass one of `ways`, whose hooks must be in
    /// place when `act` returns. Handlers return to `restorer`.
    pub fn free_all<R: Send>(
        &self,
        ways: &[HookedCall],
        restorer: Option<u64>,
        act: impl FnOnce() -> R + Send,
    ) -> Result<R, Unready> {
        let (late, foreign) = (AtomicBool::new(false), AtomicBool::new(false));
        let look = |held: &StoppedThread, process: &Process| {
            let at = held.registers()?.rip;
            if ways.iter().any(|(site, behind)| *site < at && at < *behind) {
                late.store(true, Relaxed); // Relaxed: it is read only after the threads of ours that write it were joined.
            }
            if !self.words.give(process, held.registers()?.fs_base) {
                foreign.store(true, Relaxed); // Relaxed: as above.
                return Ok(());
            }
            self.free(held, process, restorer)
        };
        let result = standstill::run(self, &anywhere, &look, act).ok_or(Unready::Moving)?;
        for _ in 0..ROUNDS {
            if foreign.load(Relaxed) {
                return Err(Unready::Storage);
            }
            if !late.swap(false, Relaxed) {
                return Ok(result);
            }
            standstill::run(self, &anywhere, &look, || ()).ok_or(Unready::Moving)?;
        }
        Err(Unready::Moving)
    }

    /// Makes private copies of the pages at these addresses, with unchanged bytes. Otherwise the
    /// kernel copies each page at its first write, while all threads are stopped. The addresses
    /// must be inside an instruction, so that no other thread writes them.
    pub fn own_pages(&self, addresses: impl Iterator<Item = u64>) {
        let Ok(process) = Process::open(self.pid, &self.program) else {
            return;
        };
        for address in addresses {
            let mut byte = [0];
            // A page that cannot be written is reported by the patch.
            let _ = process
                .read(address, &mut byte)
                .and_then(|()| process.write(address, &byte));
        }
    }

    /// Runs `act` while all threads of the program are stopped.
    pub fn hold<R: Send>(&self, act: impl FnOnce() -> R + Send) -> Result<R, Unready> {
        standstill::run(self, &anywhere, &|_, _| Ok(()), act).ok_or(Unready::Moving)
    }

    /// Runs `act` while all threads of the program are stopped, and makes each block what it
    /// believes to block.
    ///
    /// A thread within the agent's signal handler must leave it first, because the handler's return
    /// restores a mask without the signals. No thread may be changed before all of them have left
    /// it: a thread could be within a hook that changes its mask, and would not notice that the
    /// signals are about to be given back.
    pub fn give_back<R: Send>(&self, act: impl FnOnce() -> R + Send) -> Result<R, Unready> {
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
        standstill::run(self, &is_outside, &block, act).ok_or(Unready::Moving)
    }

    /// Returns whether a thread blocks any of the signals now.
    pub(super) fn are_blocked(&self, tid: u32) -> bool {
        let status = process::status(self.pid, tid);
        status.is_ok_and(|status| status.blocked & self.signals != 0)
    }

    /// Unblocks the signals of a thread, and records that it believes to block them as before.
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
        // Within a handler: the mask after the handler returns.
        let believed = of_handlers.unwrap_or(mask) & self.signals;
        let word = self.words.word(self.words.bits(now) | believed);
        // A thread that no libc made has no words, so that it has no belief to record.
        let _ = process.write(at, &word.to_le_bytes());
        held.set_signal_mask(mask & !self.signals)
    }
}

/// Allows stopping any thread where it is.
fn anywhere(_: &StoppedThread) -> Result<bool, StopFailure> {
    Ok(true)
}

impl Words {
    /// Returns the address of a word of the thread with this block.
    pub(super) fn at(&self, block: u64, word: i64) -> u64 {
        block.wrapping_add_signed(self.tls + word)
    }

    /// Initializes a thread's words if libc has not: it may have laid out the thread's block before
    /// it loaded the agent. Returns whether libc has laid out the block at all, because nothing may
    /// be written into any other block.
    fn give(&self, process: &Process, block: u64) -> bool {
        if !self.is_laid_out(process, block) {
            return false;
        }
        let at = self.at(block, 0);
        if process.read_u64(at).is_ok_and(|word| word == 0) {
            let [first, frames] = self.beginnings.map(u64::to_le_bytes);
            // A block that can be read can be written.
            let _ = process.write(self.at(block, tls::FRAMES), &frames);
            let _ = process.write(at, &first);
        }
        true
    }

    /// Returns whether a block holds its own address where the C library puts it. A thread that is
    /// ending may no longer have a block.
    fn is_laid_out(&self, process: &Process, block: u64) -> bool {
        let mut words = [[0; 8]; 3];
        if process.read(block, words.as_flattened_mut()).is_err() {
            return block != 0;
        }
        let [begin, _, again] = words.map(u64::from_le_bytes);
        begin == block && (again == block || !self.is_glibc)
    }

    fn word(&self, bits: u64) -> u64 {
        bits | u64::from(self.generation) << 32
    }

    /// Returns the signals that a word names, if the word is of this session.
    fn bits(&self, word: u64) -> u64 {
        match (word >> 32) as u32 == self.generation {
            true => word & u64::from(u32::MAX),
            false => 0,
        }
    }
}
