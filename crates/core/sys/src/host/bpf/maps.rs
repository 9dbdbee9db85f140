//! What a loader does not offer: arrays that are read where they lie, arrays of perf events, and programs
//! that are run when we choose: on a CPU, or over all tasks.

use std::prelude::rust_2024::*;

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{ITER_CREATE, LINK_CREATE, MAP_UPDATE_ELEM, PROG_TEST_RUN, Words, call, descriptor};
use crate::host::perf::PerfEvent;

/// The flag that has a program run on the given CPU.
const ON_CPU: u64 = 1;
/// What an iterator's program is attached as.
const TRACE_ITER: u64 = 28;

/// An array map that user space may map, read without a system call.
#[derive(Debug)]
pub struct MappedArray {
    start: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: the mapping is ours until the drop, on whatever thread, and is only read, by atomic loads.
unsafe impl Send for MappedArray {}
// SAFETY: as above.
unsafe impl Sync for MappedArray {}

impl MappedArray {
    /// Maps so many words of an array, whose map has the flag for it.
    pub fn new(map: BorrowedFd<'_>, words: usize) -> io::Result<MappedArray> {
        // SAFETY: a new mapping, where the kernel likes; the descriptor is open.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                (words * size_of::<u64>()).max(1),
                libc::PROT_READ,
                libc::MAP_SHARED,
                map.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(MappedArray { start, words })
    }

    /// A word; 0 of one behind the end. Words that programs write at that moment are old or new, each for itself.
    pub fn word(&self, at: usize) -> u64 {
        if at >= self.words {
            return 0;
        }
        // SAFETY: within the mapping, which is aligned to pages and lives as long as `self`.
        let word = unsafe { self.start.add(at).as_ref() };
        // Relaxed: pairs with the plain store of a BPF program; nothing is published with it.
        word.load(Ordering::Relaxed)
    }
}

impl Drop for MappedArray {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length, and nobody keeps a reference into it.
        unsafe {
            libc::munmap(
                self.start.as_ptr().cast(),
                (self.words * size_of::<u64>()).max(1),
            )
        };
    }
}

/// Puts an event into an array of events: programs that run on its CPU can read it there, until the map goes.
pub fn put_event(map: BorrowedFd<'_>, index: u32, event: &PerfEvent) -> io::Result<()> {
    let value = event.descriptor().as_raw_fd();
    let mut words = Words::default();
    words[0] = u64::from(map.as_raw_fd().unsigned_abs());
    words[1] = (&raw const index) as u64;
    words[2] = (&raw const value) as u64;
    // SAFETY: key and value are of 4 bytes each, as such a map's are, and outlive the call, which reads them.
    unsafe { call(MAP_UPDATE_ELEM, &mut words) }.map(drop)
}

/// Runs a raw tracepoint's program on a CPU, as an interrupt of whatever that does; what it returned.
pub fn run_on_cpu(program: BorrowedFd<'_>, cpu: u32) -> io::Result<u32> {
    let mut words = Words::default();
    words[0] = u64::from(program.as_raw_fd().unsigned_abs());
    words[8] = ON_CPU | u64::from(cpu) << 32;
    // SAFETY: the command takes numbers only, as it is given no data.
    unsafe { call(PROG_TEST_RUN, &mut words) }?;
    Ok((words[0] >> 32) as u32)
}

/// Runs an iterator's program over all that it goes over, and drops whatever it writes.
pub fn run_over_all(program: BorrowedFd<'_>) -> io::Result<()> {
    let mut words = Words::default();
    words[0] = u64::from(program.as_raw_fd().unsigned_abs());
    words[1] = TRACE_ITER;
    // SAFETY: the command takes numbers only, and gives out a descriptor.
    let link = unsafe { descriptor(LINK_CREATE, &mut words) }?;
    let mut words = Words::default();
    words[0] = u64::from(link.as_raw_fd().unsigned_abs());
    // SAFETY: as above.
    let mut all: File = unsafe { descriptor(ITER_CREATE, &mut words) }?.into();
    let mut written = [0; 512];
    loop {
        match all.read(&mut written) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            // Of very many it goes over a part at a time.
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) => {}
            Err(e) => return Err(e),
        }
    }
}
