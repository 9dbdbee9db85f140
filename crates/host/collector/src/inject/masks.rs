//! Signals that no thread may block while trap bytes stand, and what threads believe.
//!
//! What a thread believes to block stands in a word of its own, which the agent's hooks keep. Before the first trap
//! byte every thread is freed ([`Masks::free_all`]), while all of them stand still and the hooks that see masks stand:
//!
//! | a thread has the signals blocked | then |
//! |---|---|
//! | in its mask, also where a call has put another in its place | they are taken out, and its word says so |
//! | in the mask of a call that it sleeps in | the call is made again with a copy of the mask, in its words |
//! | in the mask that comes back when a handler returns | they are taken out there |
//! | in a call that it is about to make past the hook | it is let go and stopped again behind the call |
//!
//! After the last trap byte every thread blocks again what it believes to block ([`Masks::give_back`]), once it has
//! left the agent's handler.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tiptoe_sys::host::procfs::RunningProgram;
use tiptoe_wire::tls;

use super::process::{self, Process};
use super::standstill;
use super::tracee::{Held, Missed};
use super::waits;

/// How often threads are looked for that are about to make a call past its hook.
const ROUNDS: u32 = 100;

/// Where the agent keeps what a thread believes.
#[derive(Clone, Copy, Debug)]
pub struct Words {
    /// The %fs offset of a thread's words.
    pub tls: i64,
    /// What notes must be marked with to be of this session.
    pub generation: u32,
    /// What its first word and that of its frames begin with.
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
    /// A thread that is none of the program's.
    pub spare: Option<u32>,
    /// Where the agent's code starts and ends.
    pub agent_code: [u64; 2],
    /// The signals, bit N-1 for signal N.
    pub signals: u64,
    /// Where to note what they blocked.
    pub words: Words,
}

/// A hooked system call: its site, and the address after the call.
pub type Way = (u64, u64);

/// Why the threads of a process were not had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unready {
    /// They could not all be stopped, or did not get past a call.
    Moving,
    /// One runs on a thread-local block that is not its C library's: there are no words of the agent's in it.
    Storage,
}

impl Masks {
    /// Runs `act` while all threads of the program stand still, and has none of them block the signals from then on.
    /// Whoever may block them must pass one of `ways`, whose hooks stand when `act` is over, and `restorer` is where
    /// handlers return to.
    pub fn free_all<R: Send>(
        &self,
        ways: &[Way],
        restorer: Option<u64>,
        act: impl FnOnce() -> R + Send,
    ) -> Result<R, Unready> {
        let (late, foreign) = (AtomicBool::new(false), AtomicBool::new(false));
        let look = |held: &Held, process: &Process| {
            let at = held.registers()?.rip;
            if ways.iter().any(|(site, behind)| *site < at && at < *behind) {
                late.store(true, Relaxed); // read once all threads of ours that write it are over
            }
            if !self.words.give(process, held.registers()?.fs_base) {
                foreign.store(true, Relaxed); // as above
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

    /// Makes the pages at these addresses the process's own, whose bytes stay as they are: else the kernel copies
    /// each page while all threads stand still for the first write there. The addresses must be inside an
    /// instruction, where nobody else writes.
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

    /// Runs `act` while all threads of the program stand still.
    pub fn hold<R: Send>(&self, act: impl FnOnce() -> R + Send) -> Result<R, Unready> {
        standstill::run(self, &anywhere, &|_, _| Ok(()), act).ok_or(Unready::Moving)
    }

    /// Runs `act` while all threads of the program stand still, and has each block what it believes to block.
    ///
    /// A thread within the agent's signal handler must leave it first, because the handler's return brings back a
    /// mask without the signals. No thread is changed before all of them have: it could be within a hook that changes
    /// its mask, and would not notice that the signals are about to be given back.
    pub fn give_back<R: Send>(&self, act: impl FnOnce() -> R + Send) -> Result<R, Unready> {
        let [start, end] = self.agent_code;
        let is_outside = |held: &Held| Ok(!(start..end).contains(&held.registers()?.rip));
        let block = |held: &Held, process: &Process| {
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

    /// Whether a thread blocks any of the signals now.
    pub(super) fn are_blocked(&self, tid: u32) -> bool {
        let status = process::status(self.pid, tid);
        status.is_ok_and(|status| status.blocked & self.signals != 0)
    }

    /// Has a thread block the signals no more, and believe that it does as before.
    fn free(&self, held: &Held, process: &Process, restorer: Option<u64>) -> Result<(), Missed> {
        let mask = held.signal_mask()?;
        let mut regs = held.registers()?;
        if waits::replace_mask(self, process, &mut regs) {
            held.set_registers(regs)?;
        }
        if mask == 0 {
            return Ok(());
        }
        let of_handlers = waits::clear_frames(self, process, regs.rsp, restorer);
        if mask & self.signals == 0 {
            return Ok(());
        }
        let at = self.words.at(regs.fs_base, tls::BELIEVED);
        let now = process.read_u64(at).unwrap_or(0);
        // Within a handler: what will be blocked once that has returned.
        let believed = of_handlers.unwrap_or(mask) & self.signals;
        let word = self.words.word(self.words.bits(now) | believed);
        // A thread that no libc made has no words: nothing is known of what it believes.
        let _ = process.write(at, &word.to_le_bytes());
        held.set_signal_mask(mask & !self.signals)
    }
}

/// Any thread may be stopped where it is.
fn anywhere(_: &Held) -> Result<bool, Missed> {
    Ok(true)
}

impl Words {
    /// The address of a word of the thread whose block is there.
    pub(super) fn at(&self, block: u64, word: i64) -> u64 {
        block.wrapping_add_signed(self.tls + word)
    }

    /// Gives a thread its words, if libc has not: it may have laid out the thread's block before it loaded the agent.
    /// Returns whether libc has laid it out at all: nothing is written into another one.
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

    /// Whether a block holds its own address where the C library puts it. A thread that ends may have none any more.
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

    /// The signals that a word names, if it is of this session.
    fn bits(&self, word: u64) -> u64 {
        match (word >> 32) as u32 == self.generation {
            true => word & u64::from(u32::MAX),
            false => 0,
        }
    }
}
