//! What `tiptoe probe -- CMD` put into the environment, and its removal before
//! the program can see it.

use core::ffi::c_char;

use tiptoe_sys::raw::{call, close, nr, open};

const AGENT: &[u8] = b"TIPTOE_AGENT=";
const PRELOAD: &[u8] = b"LD_PRELOAD=";

/// Where /proc/self/stat has `startstack`, counted from the word behind the name.
const START_STACK: usize = 25;

/// The array of the environment, where the kernel made it: behind argc, argv and
/// argv's NULL, at the place where the program's stack began.
pub fn find_array() -> Option<*mut *mut c_char> {
    let mut text = [0u8; 1024];
    let file = open(c"/proc/self/stat", 0).ok()?;
    let at = text.as_mut_ptr() as usize;
    // SAFETY: the kernel writes at most the buffer's length.
    let got = unsafe { call(nr::READ, [file as usize, at, text.len(), 0, 0, 0]) };
    close(file);
    let stack = start_stack(text.get(..got.ok()?)?)? as *mut usize;
    // SAFETY: the kernel put argc there and never moves it; the arrays follow.
    unsafe { Some(stack.add(*stack + 2).cast()) }
}

/// The name may hold blanks and brackets: what counts is behind its last bracket.
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

/// The descriptors that tiptoe passed on.
#[derive(Clone, Copy)]
pub struct Passed {
    /// The agent's own file.
    pub agent: i32,
    /// The data segment.
    pub data: i32,
    /// The plan segment.
    pub plan: i32,
}

/// Reads the message and takes it, and our part of LD_PRELOAD, out of the
/// environment. `None` where this program was not started by tiptoe.
///
/// # Safety
/// `envp` is the NULL-terminated array that the kernel made, not yet used by
/// any other thread.
pub unsafe fn take(envp: *mut *mut c_char) -> Option<Passed> {
    // SAFETY: passed on to the caller; the same holds for the calls below.
    let message = unsafe { find(envp, AGENT) }?;
    // SAFETY: `find` returned an entry of the array.
    let passed = unsafe { parse((*message).add(AGENT.len())) };
    // SAFETY: as above.
    unsafe {
        remove(message);
        if let Some(preload) = find(envp, PRELOAD) {
            strip_preload(preload);
        }
    }
    passed
}

/// The entry that begins with `name`.
unsafe fn find(envp: *mut *mut c_char, name: &[u8]) -> Option<*mut *mut c_char> {
    let mut entry = envp;
    // SAFETY: the array ends with NULL; each string ends with NUL, which no
    // name holds, so the comparison stops inside it.
    unsafe {
        while !(*entry).is_null() {
            if name
                .iter()
                .enumerate()
                .all(|(at, byte)| *(*entry).add(at) as u8 == *byte)
            {
                return Some(entry);
            }
            entry = entry.add(1);
        }
    }
    None
}

/// Blanks an entry's string (/proc/PID/environ shows it) and closes the gap.
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

/// Takes our file, the first, out of LD_PRELOAD; the rest is the user's own.
unsafe fn strip_preload(entry: *mut *mut c_char) {
    // SAFETY: as in `find`; the rest moves to the left within its own string.
    unsafe {
        let value = (*entry).add(PRELOAD.len());
        let mut rest = value;
        while *rest != 0 && *rest as u8 != b':' {
            rest = rest.add(1);
        }
        if *rest == 0 {
            return remove(entry);
        }
        let (mut from, mut to) = (rest.add(1), value);
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

/// Three decimal numbers with commas between.
unsafe fn parse(text: *const c_char) -> Option<Passed> {
    let mut numbers = [0i32; 3];
    let mut at = text;
    for number in &mut numbers {
        // SAFETY: stops at the string's NUL.
        unsafe {
            while (*at as u8).is_ascii_digit() {
                *number = number
                    .wrapping_mul(10)
                    .wrapping_add((*at as u8 - b'0') as i32);
                at = at.add(1);
            }
            if *at as u8 == b',' {
                at = at.add(1);
            }
        }
    }
    let [agent, data, plan] = numbers;
    Some(Passed { agent, data, plan })
}
