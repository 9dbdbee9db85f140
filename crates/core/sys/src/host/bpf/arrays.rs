use std::prelude::rust_2024::*;

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::{ITER_CREATE, LINK_CREATE, MAP_UPDATE_ELEM, PROG_TEST_RUN, Words, call, descriptor};
use crate::host::perf::PerfEvent;

const ON_CPU: u64 = 1;
const TRACE_ITER: u64 = 28;

/// A BPF array mapped into our memory, so reads need no system call.
#[derive(Debug)]
pub struct MappedArray {
    start: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: the memory is mapped until the drop, and only read, by atomic loads.
unsafe impl Send for MappedArray {}
// SAFETY: as for `Send`.
unsafe impl Sync for MappedArray {}

impl MappedArray {
    /// Maps `words` words of an array with BPF_F_MMAPABLE.
    pub fn new(map: BorrowedFd<'_>, words: usize) -> io::Result<MappedArray> {
        let (len, nowhere) = ((words * size_of::<u64>()).max(1), std::ptr::null_mut());
        // SAFETY: the kernel chooses the address, so this replaces no memory.
        let start = unsafe { mmap(nowhere, len, ProtFlags::READ, MapFlags::SHARED, map, 0) }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(MappedArray { start, words })
    }

    /// Returns a word; 0 past the end. While a program writes the word, returns the old or the new value.
    pub fn word(&self, at: usize) -> u64 {
        if at >= self.words {
            return 0;
        }
        // SAFETY: `at` is inside the page-aligned mapping, which lives as long as `self`.
        let word = unsafe { self.start.add(at).as_ref() };
        // Relaxed: orders no data.
        word.load(Ordering::Relaxed)
    }

    /// Returns the words from `at` on.
    pub fn words<const COUNT: usize>(&self, at: usize) -> [u64; COUNT] {
        std::array::from_fn(|after| self.word(at + after))
    }
}

impl Drop for MappedArray {
    fn drop(&mut self) {
        let len = (self.words * size_of::<u64>()).max(1);
        // SAFETY: mapped by `new` with this length; no reference outlives `self`.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), len) };
    }
}

/// Puts a perf event into an array, for programs that run on the event's CPU.
pub fn put_event(map: BorrowedFd<'_>, index: u32, event: &PerfEvent) -> io::Result<()> {
    let value = event.descriptor().as_raw_fd();
    let mut words = Words::default();
    words[0] = u64::from(map.as_raw_fd().unsigned_abs());
    words[1] = (&raw const index) as u64;
    words[2] = (&raw const value) as u64;
    // SAFETY: key and value have 4 bytes, as in the map, and the call only reads them.
    unsafe { call(MAP_UPDATE_ELEM, &mut words) }.map(drop)
}

/// Runs a raw tracepoint's program in an interrupt on a CPU; returns the program's result.
pub fn run_on_cpu(program: BorrowedFd<'_>, cpu: u32) -> io::Result<u32> {
    let mut words = Words::default();
    words[0] = u64::from(program.as_raw_fd().unsigned_abs());
    words[8] = ON_CPU | u64::from(cpu) << 32;
    // SAFETY: the command takes only numbers.
    unsafe { call(PROG_TEST_RUN, &mut words) }?;
    Ok((words[0] >> 32) as u32)
}

/// Runs an iterator's program over all objects.
pub fn run_over_all(program: BorrowedFd<'_>) -> io::Result<()> {
    let mut words = Words::default();
    words[0] = u64::from(program.as_raw_fd().unsigned_abs());
    words[1] = TRACE_ITER;
    // SAFETY: the command takes numbers and returns a new descriptor.
    let link = unsafe { descriptor(LINK_CREATE, &mut words) }?;
    let mut words = Words::default();
    words[0] = u64::from(link.as_raw_fd().unsigned_abs());
    // SAFETY: the command takes numbers and returns a new descriptor.
    let mut all: File = unsafe { descriptor(ITER_CREATE, &mut words) }?.into();
    let mut written = [0; 512];
    loop {
        match all.read(&mut written) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            // The kernel ends a long read early; the next read continues.
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) => {}
            Err(e) => return Err(e),
        }
    }
}
