//! Reads the environment entry of `tiptoe probe -- CMD`, and removes it before the program sees it. Other entries of
//! this name stay.

use core::ffi::c_char;

use tiptoe_sys::raw::{O_CLOEXEC, call, close, nr, open};
use tiptoe_wire::descriptors::{DescriptorEntry, Key};

const PRELOAD: &[u8] = b"LD_PRELOAD=";
const DESCRIPTORS: &[u8] = b"/proc/self/fd/";
/// How many bytes of an entry are read. tiptoe's entry is shorter.
const LONGEST: usize = 128;

/// The index of `startstack` in /proc/self/stat, if the word after the name has index 0.
const START_STACK: usize = 25;

/// Returns the environment array that the kernel made, after argc, argv and argv's NULL.
pub fn find_array() -> Option<*mut *mut c_char> {
    let mut text = [0u8; 1024];
    let file = open(c"/proc/self/stat", O_CLOEXEC).ok()?;
    let at = text.as_mut_ptr() as usize;
    // SAFETY: the kernel writes at most the buffer's length.
    let got = unsafe { call(nr::READ, [file as usize, at, text.len(), 0, 0, 0]) };
    close(file);
    let stack = start_stack(text.get(..got.ok()?)?)? as *mut usize;
    // SAFETY: the kernel put argc there, followed by the arrays, and moves neither.
    unsafe { Some(stack.add(*stack + 2).cast()) }
}

/// Returns the address where the stack began. Parses from the last bracket, because the program's name may contain
/// brackets.
fn start_stack(stat: &[u8]) -> Option<usize> {
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let mut words = stat.get(end + 2..)?.split(|byte| *byte == b' ');
    let digits = words.nth(START_STACK)?;
    let value = |sum: usize, digit: &u8| {
        sum.wrapping_mul(10)
            .wrapping_add(digit.wrapping_sub(b'0') as usize)
    };
    let all_digits = digits.iter().all(u8::is_ascii_digit);
    let found = digits.iter().fold(0, value);
    (all_digits && found != 0).then_some(found)
}

/// Reads tiptoe's entry, and removes it and our part of LD_PRELOAD. `None` if tiptoe did not start this program, or
/// if the program has more rights than the process that started it.
///
/// # Safety
/// `envp` must be the NULL-terminated array that the kernel made, not yet used by any other thread.
pub unsafe fn take(envp: *mut *mut c_char, key: Key) -> Option<DescriptorEntry> {
    // SAFETY: the caller guarantees the array; the same holds for the calls below.
    if unsafe { is_secure(envp) } {
        return None;
    }
    let read = |entry: &[u8]| DescriptorEntry::read(entry, key);
    // SAFETY: as above.
    let (message, passed) = unsafe { find(envp, read) }?;
    let preload = |entry: &[u8]| entry.starts_with(PRELOAD).then_some(());
    // SAFETY: as above; `find` returned an entry of the array.
    unsafe {
        remove(message);
        if let Some((preload, ())) = find(envp, preload) {
            strip_preload(preload, passed.agent);
        }
    }
    Some(passed)
}

/// Returns whether the program may have more rights than the process that started it (AT_SECURE).
unsafe fn is_secure(envp: *mut *mut c_char) -> bool {
    const AT_NULL: usize = 0;
    const AT_SECURE: usize = 23;
    let mut entry = envp;
    // SAFETY: the array ends with NULL. The auxiliary vector's pairs follow, and AT_NULL is the last.
    unsafe {
        while !(*entry).is_null() {
            entry = entry.add(1);
        }
        let mut pair = entry.add(1).cast::<[usize; 2]>();
        loop {
            match *pair {
                [AT_SECURE, value] => return value != 0,
                [AT_NULL, _] => return true,
                _ => pair = pair.add(1),
            }
        }
    }
}

/// Returns the first entry that `read` accepts, and what `read` returned. `read` gets the entry's first [`LONGEST`]
/// bytes.
unsafe fn find<T>(
    envp: *mut *mut c_char,
    read: impl Fn(&[u8]) -> Option<T>,
) -> Option<(*mut *mut c_char, T)> {
    let mut entry = envp;
    // SAFETY: the array ends with NULL. Each string ends with NUL, and does not change, because no other code runs
    // yet.
    unsafe {
        while !(*entry).is_null() {
            let start = (*entry).cast::<u8>();
            let len = (0..LONGEST).take_while(|at| *start.add(*at) != 0);
            if let Some(found) = read(core::slice::from_raw_parts(start, len.count())) {
                return Some((entry, found));
            }
            entry = entry.add(1);
        }
    }
    None
}

/// Zeroes an entry's string, because /proc/PID/environ shows it, and closes the gap in the array.
unsafe fn remove(entry: *mut *mut c_char) {
    // SAFETY: as in `find`.
    unsafe {
        let mut byte = *entry;
        while *byte != 0 {
            *byte = 0;
            byte = byte.add(1);
        }
        let mut at = entry;
        while !(*at).is_null() {
            *at = *at.add(1);
            at = at.add(1);
        }
    }
}

/// Removes our file from LD_PRELOAD, and a sanitizer's runtime that tiptoe put before it.
unsafe fn strip_preload(entry: *mut *mut c_char, agent: i32) {
    // SAFETY: as in `find`. The rest moves to the left within its string.
    unsafe {
        let value = (*entry).add(PRELOAD.len());
        let mut rest = value;
        loop {
            let is_ours = is_agent(rest, agent);
            while *rest != 0 && *rest as u8 != b':' {
                rest = rest.add(1);
            }
            if *rest == 0 && !is_ours {
                return; // not found: this is the user's own list
            }
            if *rest == 0 {
                return remove(entry);
            }
            rest = rest.add(1);
            if is_ours {
                break;
            }
        }
        let (mut from, mut to) = (rest, value);
        while *from != 0 {
            *to = *from;
            (from, to) = (from.add(1), to.add(1));
        }
        while *to != 0 {
            *to = 0;
            to = to.add(1);
        }
    }
}

unsafe fn is_agent(name: *const c_char, agent: i32) -> bool {
    let mut at = name;
    let mut number = 0i32;
    // SAFETY: as in `find`. Reading stops at the first byte that differs, at the latest at the string's end.
    unsafe {
        for byte in DESCRIPTORS {
            if *at as u8 != *byte {
                return false;
            }
            at = at.add(1);
        }
        while (*at as u8).is_ascii_digit() {
            number = number
                .wrapping_mul(10)
                .wrapping_add(i32::from(*at as u8 - b'0'));
            at = at.add(1);
        }
        number == agent && matches!(*at as u8, 0 | b':')
    }
}
