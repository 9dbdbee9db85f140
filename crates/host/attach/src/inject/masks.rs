//! The signals of traps in a process, and where its threads record which of them they believe to block. How they are
//! unblocked: `free_masks`.

use tiptoe_sys::host::procfs::RunningProgram;
use tiptoe_wire::tls;

use super::process::{self, Process};

/// Where a thread records what it believes to block.
#[derive(Clone, Copy, Debug)]
pub struct Words {
    /// The %fs offset of the thread's words.
    pub tls: i64,
    /// The mark of this session. A word with another mark is of an earlier session, and must be
    /// ignored.
    pub generation: u32,
    /// Initial values of the thread's first word and of its word for frames.
    pub beginnings: [u64; 2],
    /// Whether the C library is glibc.
    pub is_glibc: bool,
}

/// The threads of one process, and the signals to keep unblocked.
#[derive(Clone, Copy, Debug)]
pub struct Masks {
    /// The process.
    pub pid: u32,
    /// The program that the process runs. After an exec nothing is touched.
    pub program: RunningProgram,
    /// A thread that must not be stopped, because it does not belong to the program.
    pub spare: Option<u32>,
    /// The start and end of the agent's code.
    pub agent_code: [u64; 2],
    /// The signals: bit N-1 is signal N.
    pub signals: u64,
    /// Where threads record what they believe to block.
    pub words: Words,
}

impl Masks {
    /// Returns whether a thread blocks any of the signals now.
    pub(super) fn are_blocked(&self, tid: u32) -> bool {
        let status = process::status(self.pid, tid);
        status.is_ok_and(|status| status.blocked & self.signals != 0)
    }
}

impl Words {
    /// Returns the address of a word of the thread whose block is at `block`.
    pub(super) fn at(&self, block: u64, word: i64) -> u64 {
        block.wrapping_add_signed(self.tls + word)
    }

    /// Initializes a thread's words if libc has not, because it made the thread before it loaded the agent. Returns
    /// `false` if libc did not lay out the block, because then nothing may be written into it.
    pub(super) fn give(&self, process: &Process, block: u64) -> bool {
        if !self.is_laid_out(process, block) {
            return false;
        }
        let at = self.at(block, 0);
        if process.read_u64(at).is_ok_and(|word| word == 0) {
            let [first, frames] = self.beginnings.map(u64::to_le_bytes);
            // The writes cannot fail, because the block can be read.
            let _ = process.write(self.at(block, tls::FRAMES), &frames);
            let _ = process.write(at, &first);
        }
        true
    }

    /// Returns whether a block contains its own address where the C library puts that address. Also returns `true` if
    /// the block cannot be read, because an ending thread may have none any more.
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

    /// Returns the signals that a word records, if the word is of this session.
    pub(super) fn bits(&self, word: u64) -> u64 {
        match (word >> 32) as u32 == self.generation {
            true => word & u64::from(u32::MAX),
            false => 0,
        }
    }
}
