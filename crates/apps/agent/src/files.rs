//! The files of /proc/self that the agent reads.
//!
//! The agent's thread opens its files when it starts, because it then gives up the right to open them
//! ([`crate::credentials`]). Other threads open and close a file each time.

use core::sync::atomic::{AtomicI32, Ordering::Relaxed};

use tiptoe_sys::raw::{O_CLOEXEC, call, close, getpid, gettid, nr, open};

use crate::shared;

const O_RDWR: i32 = 2;
const O_DIRECTORY: i32 = 0o200000;
const NONE: i32 = -1;

/// The descriptors that the agent's thread keeps, in its own table, which ends with the thread.
static KEPT: [AtomicI32; 3] = [const { AtomicI32::new(NONE) }; 3];

#[derive(Clone, Copy)]
pub enum ProcFile {
    Memory,
    Maps,
    Tasks,
}

impl ProcFile {
    fn open(self) -> i32 {
        let opened = match self {
            ProcFile::Memory => open(c"/proc/self/mem", O_RDWR | O_CLOEXEC),
            ProcFile::Maps => open(c"/proc/self/maps", O_CLOEXEC),
            ProcFile::Tasks => open(c"/proc/self/task", O_DIRECTORY | O_CLOEXEC),
        };
        opened.unwrap_or(NONE)
    }
}

pub struct File {
    fd: i32,
    is_kept: bool,
}

impl File {
    pub fn open(which: ProcFile) -> Option<File> {
        let is_kept = is_agents_thread();
        let fd = match is_kept {
            // Relaxed: this thread stored it.
            true => KEPT.get(which as usize)?.load(Relaxed),
            false => which.open(),
        };
        if is_kept && fd != NONE {
            // SAFETY: the call changes only the offset of a descriptor of the agent.
            let _ = unsafe { call(nr::LSEEK, [fd as usize, 0, 0, 0, 0, 0]) };
        }
        (fd != NONE).then_some(File { fd, is_kept })
    }

    pub fn fd(&self) -> i32 {
        self.fd
    }

    pub fn read(&self, buffer: &mut [u8]) -> Option<usize> {
        let into = buffer.as_mut_ptr() as usize;
        // SAFETY: the kernel writes at most the buffer's length.
        unsafe { call(nr::READ, [self.fd as usize, into, buffer.len(), 0, 0, 0]) }.ok()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if !self.is_kept {
            close(self.fd);
        }
    }
}

/// Opens all files for the life of the calling thread, which must be the agent's.
pub fn keep() {
    let all = [ProcFile::Memory, ProcFile::Maps, ProcFile::Tasks];
    for (kept, which) in KEPT.iter().zip(all) {
        kept.store(which.open(), Relaxed); // read by this thread only
    }
}

/// Returns whether the calling thread is the agent's, whose id is in the session's lock until that thread ends.
/// Comparing process ids excludes forked children.
fn is_agents_thread() -> bool {
    shared::get().is_some_and(|shared| {
        // Relaxed: constant within a session.
        shared.pid.load(Relaxed) == getpid() && shared.lock.is_own(gettid())
    })
}
