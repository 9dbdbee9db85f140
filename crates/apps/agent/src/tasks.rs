//! Reads the program's threads from /proc/self/task.

use tiptoe_sys::raw::{O_CLOEXEC, call, close, nr};

use crate::files::{File, ProcFile};

const GETDENTS64: usize = 217;
const PATH: usize = 64;

pub struct Task<'a> {
    folder: &'a File,
    name: &'a [u8],
}

pub fn any_pending(set: u64) -> bool {
    let mut pending = false;
    each_task(|task| pending |= task.pending() & set != 0);
    pending
}

pub fn each(mut act: impl FnMut(u32)) {
    each_task(|task| act(task.tid()));
}

pub fn count() -> usize {
    let mut count = 0;
    each(|_| count += 1);
    count
}

pub fn each_task(mut act: impl FnMut(&Task)) {
    let Some(folder) = File::open(ProcFile::Tasks) else {
        return;
    };
    let mut entries = [0u8; 1024];
    loop {
        let at = entries.as_mut_ptr() as usize;
        let args = [folder.fd() as usize, at, entries.len(), 0, 0, 0];
        // SAFETY: the kernel writes at most the buffer's length.
        let got = unsafe { call(GETDENTS64, args) };
        let Ok(len @ 1..) = got else { break };
        each_name(entries.get(..len).unwrap_or(&[]), &mut |name| {
            act(&Task {
                folder: &folder,
                name,
            });
        });
    }
}

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

impl Task<'_> {
    pub fn tid(&self) -> u32 {
        self.name.iter().fold(0, |tid, digit| {
            tid * 10 + u32::from(digit.wrapping_sub(b'0'))
        })
    }

    /// Calls `act` with the threads' folder, and the path of this thread's `file` in it, ended by NUL.
    pub fn path<R>(&self, file: &[u8], act: impl FnOnce(i32, &[u8; PATH]) -> R) -> R {
        let mut path = [0u8; PATH];
        let bytes = self.name.iter().chain(b"/").chain(file);
        let room = path.iter_mut().take(PATH - 1);
        room.zip(bytes).for_each(|(to, byte)| *to = *byte);
        act(self.folder.fd(), &path)
    }

    /// Returns the thread's `status` file, or its beginning if `text` is too short.
    pub fn status<'a>(&self, text: &'a mut [u8]) -> &'a [u8] {
        self.text_of(b"status", text)
    }

    /// Returns whether the thread runs, or waits for a CPU.
    pub fn is_runnable(&self) -> bool {
        let mut text = [0u8; 256];
        let text = self.status(&mut text);
        text.windows(8).any(|window| window == b"State:\tR")
    }

    /// Returns a number that grows when the thread gets a CPU, and at each tick while it runs. `None` if the kernel
    /// keeps no such statistics.
    pub fn progress(&self) -> Option<u64> {
        let mut text = [0u8; 64];
        let text = self.text_of(b"schedstat", &mut text);
        let mut numbers = text.split(|byte| !byte.is_ascii_digit()).map(|digits| {
            let number = digits.iter();
            number.fold(0_u64, |number, digit| {
                number.wrapping_mul(10) + u64::from(digit - b'0')
            })
        });
        // The run time, the time of waiting for a CPU, and how often the thread got one.
        let (run_ns, _, times) = (numbers.next()?, numbers.next()?, numbers.next()?);
        Some(run_ns.wrapping_add(times))
    }

    fn text_of<'a>(&self, file: &[u8], text: &'a mut [u8]) -> &'a [u8] {
        let opened = self.path(file, |folder, path| {
            // SAFETY: the path ends with NUL.
            unsafe {
                call(
                    nr::OPENAT,
                    [
                        folder as usize,
                        path.as_ptr() as usize,
                        O_CLOEXEC as usize,
                        0,
                        0,
                        0,
                    ],
                )
            }
        });
        let Ok(file) = opened else { return &[] };
        let at = text.as_mut_ptr() as usize;
        // SAFETY: the kernel writes at most the buffer's length.
        let got = unsafe { call(nr::READ, [file, at, text.len(), 0, 0, 0]) };
        close(file as i32);
        text.get(..got.unwrap_or(0)).unwrap_or(&[])
    }

    fn pending(&self) -> u64 {
        let mut text = [0u8; 2048];
        let text = self.status(&mut text);
        let start = text.windows(8).position(|window| window == b"SigPnd:\t");
        let digits = start.and_then(|start| text.get(start + 8..start + 24));
        digits.unwrap_or(&[]).iter().fold(0u64, |mask, digit| {
            mask << 4 | (*digit as char).to_digit(16).unwrap_or(0) as u64
        })
    }
}
