//! The few commands of bpf(2) that tell what is possible and what is attached.

use std::prelude::rust_2024::*;

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const PROG_LOAD: i32 = 5;
const PROG_GET_NEXT_ID: i32 = 11;
const PROG_GET_FD_BY_ID: i32 = 13;
const LINK_GET_FD_BY_ID: i32 = 30;
const LINK_GET_NEXT_ID: i32 = 31;

/// `r0 = 0; exit`
const RETURN_ZERO: [u64; 2] = [0xb7, 0x95];

/// The argument of every command: a union, seen as words. Unused ones are 0.
type Words = [u64; 16];

/// What can be listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Object {
    Program,
    Link,
}

/// Asks the verifier to take the smallest program of this type, and lets go of it.
pub(super) fn try_load(program_type: u32) -> io::Result<()> {
    let mut words = Words::default();
    words[0] = u64::from(program_type) | (RETURN_ZERO.len() as u64) << 32;
    words[1] = RETURN_ZERO.as_ptr() as u64;
    words[2] = c"Dual MIT/GPL".as_ptr() as u64;
    call(PROG_LOAD, &mut words).map(|fd| drop(descriptor(fd)))
}

/// The next object behind this id, in the order of ids.
pub(super) fn next_id(object: Object, id: u32) -> io::Result<u32> {
    let mut words = Words::default();
    words[0] = u64::from(id);
    let command = match object {
        Object::Program => PROG_GET_NEXT_ID,
        Object::Link => LINK_GET_NEXT_ID,
    };
    call(command, &mut words)?;
    Ok((words[0] >> 32) as u32)
}

/// What `/proc/self/fdinfo` says about the object with this id.
pub(super) fn fdinfo(object: Object, id: u32) -> io::Result<String> {
    let mut words = Words::default();
    words[0] = u64::from(id);
    let command = match object {
        Object::Program => PROG_GET_FD_BY_ID,
        Object::Link => LINK_GET_FD_BY_ID,
    };
    let held = descriptor(call(command, &mut words)?);
    std::fs::read_to_string(format!("/proc/self/fdinfo/{}", held.as_raw_fd()))
}

fn call(command: i32, words: &mut Words) -> io::Result<i32> {
    // SAFETY: `words` is as long as stated, and what it points to (static
    // instructions and a static string) outlives the call.
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

fn descriptor(fd: i32) -> File {
    // SAFETY: called only with what a command returned that gives out a new descriptor.
    unsafe { OwnedFd::from_raw_fd(fd) }.into()
}
