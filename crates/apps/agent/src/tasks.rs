//! What /proc/self/task tells of the program's threads, read without a buffer
//! larger than a stack page.

use tiptoe_sys::raw::{call, close, nr, open};

const O_RDONLY_DIRECTORY: i32 = 0o200000;
const GETDENTS64: usize = 217;
const PATH: usize = 64;

/// Whether any thread has one of the signals in `set` pending.
pub fn any_pending(set: u64) -> bool {
    let mut pending = false;
    names(|name| pending |= thread_pending(name, set));
    pending
}

/// Calls `act` with the id of each thread.
pub fn each(mut act: impl FnMut(u32)) {
    names(|name| {
        act(name.iter().fold(0, |tid, digit| {
            tid * 10 + u32::from(digit.wrapping_sub(b'0'))
        }));
    });
}

/// Calls `act` with the name of each thread's folder.
fn names(mut act: impl FnMut(&[u8])) {
    let Ok(directory) = open(c"/proc/self/task", O_RDONLY_DIRECTORY) else {
        return;
    };
    let mut entries = [0u8; 1024];
    loop {
        let at = entries.as_mut_ptr() as usize;
        // SAFETY: the kernel writes at most the buffer's length.
        let got = unsafe { call(GETDENTS64, [directory as usize, at, entries.len(), 0, 0, 0]) };
        let Ok(len @ 1..) = got else { break };
        each_name(entries.get(..len).unwrap_or(&[]), &mut act);
    }
    close(directory);
}

/// Calls `act` with the name of each directory entry that is a number.
fn each_name(mut entries: &[u8], act: &mut impl FnMut(&[u8])) {
    while let (Some(low), Some(high)) = (entries.get(16), entries.get(17)) {
        let len = u16::from_le_bytes([*low, *high]) as usize;
        let name = entries.get(19..len).unwrap_or(&[]);
        let end = name
            .iter()
            .position(|byte| *byte == 0)
            .unwrap_or(name.len());
        if name.first().is_some_and(u8::is_ascii_digit) {
            act(name.get(..end).unwrap_or(&[]));
        }
        entries = entries.get(len.max(1)..).unwrap_or(&[]);
    }
}

/// Reads SigPnd of one thread.
fn thread_pending(name: &[u8], set: u64) -> bool {
    let mut path = [0u8; PATH];
    let parts = [b"/proc/self/task/".as_slice(), name, b"/status"];
    for (slot, byte) in path.iter_mut().take(PATH - 1).zip(parts.concat_bytes()) {
        *slot = byte;
    }
    let Ok(path) = core::ffi::CStr::from_bytes_until_nul(&path) else {
        return false;
    };
    let Ok(file) = open(path, 0) else {
        return false;
    };
    let mut text = [0u8; 2048];
    let at = text.as_mut_ptr() as usize;
    // SAFETY: the kernel writes at most the buffer's length.
    let got = unsafe { call(nr::READ, [file as usize, at, text.len(), 0, 0, 0]) };
    close(file);
    let text = text.get(..got.unwrap_or(0)).unwrap_or(&[]);
    text.windows(8)
        .position(|window| window == b"SigPnd:\t")
        .is_some_and(|start| {
            let digits = text.get(start + 8..start + 24).unwrap_or(&[]);
            let mask = digits.iter().fold(0u64, |mask, digit| {
                mask << 4 | (*digit as char).to_digit(16).unwrap_or(0) as u64
            });
            mask & set != 0
        })
}

/// Concatenation without a buffer.
trait ConcatBytes {
    fn concat_bytes(&self) -> impl Iterator<Item = u8>;
}

impl ConcatBytes for [&[u8]; 3] {
    fn concat_bytes(&self) -> impl Iterator<Item = u8> {
        self.iter().flat_map(|part| part.iter().copied())
    }
}
