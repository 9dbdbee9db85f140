//! The agent's thread has no more rights than the program, and fewer.
//!
//! libc changes the credentials of all threads that it knows; ours it does not.
//! In a program of one thread the hooks let the thread leave and start anew. In
//! one of several, tiptoe sees the change and asks the thread to follow: for that
//! alone it keeps the two capabilities that allow it, where it ever had them.

use tiptoe_sys::raw::{call, close, nr, open};

const CAP_SETGID: u32 = 1 << 6;
const CAP_SETUID: u32 = 1 << 7;
const VERSION_3: u32 = 0x2008_0522;
const EIO: u64 = 5;

/// Gives up every capability but those that [`follow`] needs.
pub fn drop_rights() {
    let keep = CAP_SETGID | CAP_SETUID;
    if set_capabilities(keep).is_err() {
        // It never had them: none at all.
        let _ = set_capabilities(0);
    }
}

fn set_capabilities(low: u32) -> Result<usize, tiptoe_sys::raw::Errno> {
    let header = [VERSION_3, 0];
    // Effective, permitted, inheritable; the low words first.
    let sets = [low, low, 0, 0, 0, 0];
    let args = [header.as_ptr() as usize, sets.as_ptr() as usize, 0, 0, 0, 0];
    // SAFETY: both records are valid for the length of the call.
    unsafe { call(nr::CAPSET, args) }
}

/// Takes on the user and group ids of the process; leaving uid 0 drops the rest.
pub fn follow() -> u64 {
    let mut text = [0u8; 2048];
    let Ok(file) = open(c"/proc/self/status", 0) else {
        return EIO;
    };
    let at = text.as_mut_ptr() as usize;
    // SAFETY: the kernel writes at most the buffer's length.
    let got = unsafe { call(nr::READ, [file as usize, at, text.len(), 0, 0, 0]) };
    close(file);
    let text = text.get(..got.unwrap_or(0)).unwrap_or(&[]);
    let (Some(gids), Some(uids)) = (ids(text, b"\nGid:\t"), ids(text, b"\nUid:\t")) else {
        return EIO;
    };
    set(nr::SETRESGID, gids) | set(nr::SETRESUID, uids)
}

fn set(number: usize, [real, effective, saved]: [usize; 3]) -> u64 {
    // SAFETY: the raw call changes this thread's credentials only.
    let done = unsafe { call(number, [real, effective, saved, 0, 0, 0]) };
    done.map_or_else(|errno| errno.0 as u64, |_| 0)
}

/// The three numbers behind a label.
fn ids(text: &[u8], label: &[u8]) -> Option<[usize; 3]> {
    let start = text
        .windows(label.len())
        .position(|window| window == label)?
        + label.len();
    let mut numbers = [0usize; 3];
    let mut bytes = text.get(start..)?.iter();
    for number in &mut numbers {
        for digit in bytes.by_ref().take_while(|byte| byte.is_ascii_digit()) {
            *number = number
                .wrapping_mul(10)
                .wrapping_add((digit - b'0') as usize);
        }
    }
    Some(numbers)
}
