//! bpf(2) without a loader library: [`UprobeCounters`], maps, and the list of loaded programs and links.

use std::prelude::rust_2024::*;

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

mod arrays;
mod uprobes;

pub use arrays::{MappedArray, put_event, run_on_cpu, run_over_all};
pub use uprobes::{UprobeCounters, UprobeLink, UprobeTarget};

const MAP_CREATE: i32 = 0;
const MAP_LOOKUP_ELEM: i32 = 1;
const MAP_UPDATE_ELEM: i32 = 2;
const PROG_LOAD: i32 = 5;
const PROG_TEST_RUN: i32 = 10;
const PROG_GET_NEXT_ID: i32 = 11;
const PROG_GET_FD_BY_ID: i32 = 13;
const LINK_CREATE: i32 = 28;
const LINK_GET_FD_BY_ID: i32 = 30;
const LINK_GET_NEXT_ID: i32 = 31;
const ITER_CREATE: i32 = 33;

const RETURN_ZERO: [u64; 2] = [0xb7, 0x95];

/// The argument of every command, `union bpf_attr`. Unused words must be 0.
type Words = [u64; 16];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Object {
    Program,
    Link,
}

pub(super) fn try_load(program_type: u32) -> io::Result<()> {
    load(program_type, 0, &RETURN_ZERO).map(drop)
}

fn load(program_type: u32, attach_type: u32, instructions: &[u64]) -> io::Result<OwnedFd> {
    let mut words = Words::default();
    words[0] = u64::from(program_type) | (instructions.len() as u64) << 32;
    words[1] = instructions.as_ptr() as u64;
    words[2] = c"Dual MIT/GPL".as_ptr() as u64;
    words[8] = u64::from(attach_type) << 32;
    // SAFETY: instructions and licence outlive the call, which only reads them.
    unsafe { descriptor(PROG_LOAD, &mut words) }
}

pub(super) fn next_id(object: Object, id: u32) -> io::Result<u32> {
    let mut words = Words::default();
    words[0] = u64::from(id);
    let command = match object {
        Object::Program => PROG_GET_NEXT_ID,
        Object::Link => LINK_GET_NEXT_ID,
    };
    // SAFETY: the command takes only numbers.
    unsafe { call(command, &mut words) }?;
    Ok((words[0] >> 32) as u32)
}

pub(super) fn fdinfo(object: Object, id: u32) -> io::Result<String> {
    let mut words = Words::default();
    words[0] = u64::from(id);
    let command = match object {
        Object::Program => PROG_GET_FD_BY_ID,
        Object::Link => LINK_GET_FD_BY_ID,
    };
    // SAFETY: the command takes numbers and returns a new descriptor.
    let held: File = unsafe { descriptor(command, &mut words) }?.into();
    std::fs::read_to_string(format!("/proc/self/fdinfo/{}", held.as_raw_fd()))
}

/// What the kernel counts for a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProgramFacts {
    /// Runs skipped because the program was already running on that CPU.
    pub recursion_misses: u64,
}

/// Returns a program's facts; missing values are 0.
pub fn program_facts(program: BorrowedFd<'_>) -> io::Result<ProgramFacts> {
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", program.as_raw_fd()))?;
    let misses = text
        .lines()
        .find_map(|line| line.strip_prefix("recursion_misses:"));
    let recursion_misses = misses.and_then(|misses| misses.trim().parse().ok());
    Ok(ProgramFacts {
        recursion_misses: recursion_misses.unwrap_or(0),
    })
}

/// Calls bpf(2).
///
/// # Safety
/// Each word that the command uses as a pointer must be valid for the bytes that the command reads or writes there.
unsafe fn call(command: i32, words: &mut Words) -> io::Result<i32> {
    // SAFETY: `words` is as long as stated; the caller guarantees its pointers.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            words.as_mut_ptr(),
            size_of::<Words>(),
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result as i32)
}

/// # Safety
/// As [`call`], for a command that returns a new descriptor.
unsafe fn descriptor(command: i32, words: &mut Words) -> io::Result<OwnedFd> {
    // SAFETY: the caller guarantees the pointers; the descriptor is new.
    unsafe {
        let fd = call(command, words)?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}
