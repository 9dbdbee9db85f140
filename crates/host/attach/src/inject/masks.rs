//! The words in which a process's threads record which trap signals they believe they block. The agent (tiptoe's
//! library) keeps these signals unblocked ([`super::free_masks`]).

use tiptoe_sys::host::procfs::RunningProgram;
use tiptoe_wire::tls;

use super::process::{self, Process};

/// A thread's words in its control block.
#[derive(Clone, Copy, Debug)]
pub struct Words {
    /// The %fs offset of a thread's words.
    pub tls: i64,
    /// The session's number. A word with another number is stale.
    pub generation: u32,
    /// Initial values of a thread's first word and of [`tls::FRAMES`].
    pub beginnings: [u64; 2],
    /// Whether the C library is glibc.
    pub is_glibc: bool,
}

/// The threads of one process, and the signals to keep unblocked.
#[derive(Clone, Copy, Debug)]
pub struct Masks {
    /// The process.
    pub pid: u32,
    /// The process's program. If an exec has replaced the program, tiptoe changes nothing in the process.
    pub program: RunningProgram,
    /// The agent's thread, which must not be stopped.
    pub spare: Option<u32>,
    /// The start and end of the agent's code.
    pub agent_code: [u64; 2],
    /// Bit N-1 is signal N.
    pub signals: u64,
    /// The threads' words.
    pub words: Words,
}

impl Masks {
    pub(super) fn are_blocked(&self, tid: u32) -> bool {
        let status = process::status(self.pid, tid);
        status.is_ok_and(|status| status.sig_blk.0 & self.signals != 0)
    }
}

impl Words {
    pub(super) fn at(&self, block: u64, word: i64) -> u64 {
        block.wrapping_add_signed(self.tls + word)
    }

    /// Initializes the words of a thread that is older than the agent. libc initializes those of later threads from the
    /// agent's TLS image. Returns `false`, and writes nothing, if libc did not lay out the block.
    pub(super) fn give(&self, process: &Process, block: u64) -> bool {
        if !self.is_laid_out(process, block) {
            return false;
        }
        let at = self.at(block, 0);
        if process.read_u64(at).is_ok_and(|word| word == 0) {
            let [first, frames] = self.beginnings.map(u64::to_le_bytes);
            // Cannot fail, because the block can be read.
            let _ = process.write(self.at(block, tls::FRAMES), &frames);
            let _ = process.write(at, &first);
        }
        true
    }

    /// libc's blocks contain their own address. An unreadable block counts as laid out, because an ending thread may
    /// have lost its block.
    fn is_laid_out(&self, process: &Process, block: u64) -> bool {
        let mut words = [[0; 8]; 3];
        if process.read(block, words.as_flattened_mut()).is_err() {
            return block != 0;
        }
        let [begin, _, again] = words.map(u64::from_le_bytes);
        begin == block && (again == block || !self.is_glibc)
    }

    pub(super) fn word(&self, bits: u64) -> u64 {
        bits | u64::from(self.generation) << 32
    }

    pub(super) fn bits(&self, word: u64) -> u64 {
        match (word >> 32) as u32 == self.generation {
            true => word & u64::from(u32::MAX),
            false => 0,
        }
    }
}
