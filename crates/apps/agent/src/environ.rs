//! Reads the environment entry of `tiptoe probe -- CMD`, and removes it before the program sees it. Other entries with
//! the same name stay.

use core::ffi::c_char;

use tiptoe_sys::raw::{O_CLOEXEC, call, close, nr, open};
use tiptoe_wire::descriptors::{DescriptorEntry, Key};

const PRELOAD: &[u8] = b"LD_PRELOAD=";
const DESCRIPTORS: &[u8] = b"/proc/self/fd/";
/// How many bytes of an entry are read. tiptoe's entry is shorter.
const LONGEST: usize = 128;

/// The index of `startstack` among the words after the program's name in /proc/self/stat.
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

/// Returns the address where the stack began. The program's name, which may contain brackets, ends at the last one.
fn start_stack(stat: &[u8]) -> Option<usize> {
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let mut words = stat.get(end + 2..)?.split(|byte| *byte == b' ');
    let digits = words.nth(START_STACK)?;
    decimal(digits).filter(|stack| *stack != 0)
}

fn decimal(digits: &[u8]) -> Option<usize> {
    let value = |sum: usize, digit: &u8| {
        sum.wrapping_mul(10)
            .wrapping_add(digit.wrapping_sub(b'0') as usize)
    };
    let all_digits = digits.iter().all(u8::is_ascii_digit);
    all_digits.then(|| digits.iter().fold(0, value))
}

/// Reads tiptoe's entry, and removes the entry and our part of LD_PRELOAD. `None` if tiptoe did not start this program,
/// or if the program gains rights by its start (AT_SECURE).
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
    // The program may have several lists. The loader uses the last.
    let preload = |entry: &[u8]| {
        let mut names = entry.strip_prefix(PRELOAD)?.split(|byte| *byte == b':');
        names.any(|name| is_agent(name, passed.agent)).then_some(())
    };
    // SAFETY: as above; `find` returned an entry of the array.
    unsafe {
        remove(message);
        if let Some((preload, ())) = find(envp, preload) {
            strip_preload(preload, passed.agent);
        }
    }
    Some(passed)
}

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

/// Returns the first entry whose first [`LONGEST`] bytes `read` accepts, with its result.
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

/// Zeroes an entry's string, which /proc/PID/environ shows, and closes the gap in the array.
unsafe fn remove(entry: *mut *mut c_char) {
    // SAFETY: as in `find`.
    unsafe {
        string(entry).fill(0);
        let mut at = entry;
        while !(*at).is_null() {
            *at = *at.add(1);
            at = at.add(1);
        }
    }
}

/// Returns an entry's string, without the NUL. The search must have a bound, because otherwise the compiler replaces it
/// by a call of `strlen`.
unsafe fn string<'a>(entry: *mut *mut c_char) -> &'a mut [u8] {
    /// The longest string that the kernel passes, with its NUL (execve(2)).
    const MOST: usize = 32 << 12;
    // SAFETY: as in `find`.
    unsafe {
        let start = (*entry).cast::<u8>();
        let len = (0..MOST).take_while(|at| *start.add(*at) != 0);
        core::slice::from_raw_parts_mut(start, len.count())
    }
}

/// Removes from LD_PRELOAD our file, and a sanitizer's runtime that tiptoe put before our file.
unsafe fn strip_preload(entry: *mut *mut c_char, agent: i32) {
    // SAFETY: as in `find`.
    let list = unsafe { string(entry) }.get_mut(PRELOAD.len()..);
    let Some(list) = list else { return };
    let mut end = 0;
    let is_ours = |name: &[u8]| {
        end += name.len() + 1;
        is_agent(name, agent)
    };
    if !list.split(|byte| *byte == b':').any(is_ours) {
        return; // this is the user's own list
    }
    match list.len().checked_sub(end) {
        Some(rest) => {
            list.copy_within(end.., 0);
            list.iter_mut().skip(rest).for_each(|byte| *byte = 0);
        }
        // SAFETY: as above.
        None => unsafe { remove(entry) },
    }
}

fn is_agent(name: &[u8], agent: i32) -> bool {
    let number = name.strip_prefix(DESCRIPTORS).and_then(decimal);
    number == Some(agent as usize)
}
