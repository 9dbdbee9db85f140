//! Emulates a signalfd that reads only SIGTRAP, SIGILL or both, and is made while the agent owns these signals. Any
//! other signalfd is the kernel's, and never gets these signals.
//!
//! The kernel gives these signals to our handlers and does not keep them pending, so an emulated signalfd is a pipe.
//! Its one descriptor is also open for writing, because otherwise a read would find the end of file. A record in the
//! pipe *is* the pending signal. Only our handlers write records, so with such a pipe our handlers and interceptions
//! outlive the session.

use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use tiptoe_sys::raw::{call, close, getpid, nr, open};

use super::{Info, OURS};

const NONBLOCK_CLOEXEC: u64 = 0o4000 | 0o2000000;
const O_RDWR: i32 = 2;
const FIONREAD: usize = 0x541b;
const RECORD: usize = 128;
const WORDS: usize = RECORD / 4;

/// The newest signalfd for a signal: its descriptor, and the inode of its pipe.
struct Feed {
    fd: AtomicI32,
    pipe: AtomicU64,
}

/// The program keeps these descriptors when a session ends.
static FEEDS: [Feed; 2] = [const {
    Feed {
        fd: AtomicI32::new(-1),
        pipe: AtomicU64::new(0),
    }
}; 2];
/// The process that made the pipes. A forked child must not write to them.
static MAKER: AtomicU32 = AtomicU32::new(0);

/// Handles a signalfd call; `None` if the program must make the call itself.
pub fn signalfd(fd: i32, set: u64, flags: u64) -> Option<i64> {
    let ours = set & OURS != 0 && set & !OURS == 0 && super::owned();
    if fd != -1 || !ours || flags & !NONBLOCK_CLOEXEC != 0 {
        return None;
    }
    let made = endless_pipe(flags as i32)?;
    let pipe = inode(made)?;
    MAKER.store(getpid(), Ordering::Relaxed); // published by the feed's `fd` below
    for feed in FEEDS
        .iter()
        .zip(super::BOTH)
        .filter(|(_, signal)| set & super::bit(*signal) != 0)
        .map(|(feed, _)| feed)
    {
        feed.pipe.store(pipe, Ordering::Relaxed); // published by the next line
        feed.fd.store(made, Ordering::Release); // pairs with the function `feed`
    }
    Some(made.into())
}

pub fn in_use() -> bool {
    let maker = MAKER.load(Ordering::Relaxed); // Relaxed: only compared with this process
    maker != 0 && maker == getpid()
}

/// Opens a pipe as one descriptor for reading and writing, with the lowest free number.
fn endless_pipe(flags: i32) -> Option<i32> {
    let mut ends = [0i32; 2];
    let at = ends.as_mut_ptr() as usize;
    // SAFETY: the kernel writes two numbers, the size of `ends`.
    unsafe { call(nr::PIPE2, [at, NONBLOCK_CLOEXEC as usize, 0, 0, 0, 0]) }.ok()?;
    let [read, write] = ends;
    close(write);
    let both = path(read, |path| open(path, O_RDWR | flags).ok());
    let Some(both) = both else {
        close(read);
        return None;
    };
    let cloexec = flags as usize & 0o2000000;
    let args = [both as usize, read as usize, cloexec, 0, 0, 0];
    // SAFETY: both descriptors are ours. A copy of `both` replaces the read end, which has the lowest number.
    let kept = unsafe { call(nr::DUP3, args) }.ok();
    close(both);
    kept.map(|fd| fd as i32)
}

fn path<T>(fd: i32, act: impl FnOnce(&core::ffi::CStr) -> Option<T>) -> Option<T> {
    let mut text = *b"/proc/self/fd/0000000000\0";
    let mut rest = fd as u32;
    for digit in text.iter_mut().rev().skip(1).take(10) {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    // /proc accepts no leading zeroes, so the digits move left.
    let digits = text
        .iter()
        .skip(14)
        .take_while(|digit| **digit == b'0')
        .count()
        .min(9);
    text.copy_within(14 + digits..24, 14);
    text.get_mut(24 - digits..24)?.fill(0);
    core::ffi::CStr::from_bytes_until_nul(&text)
        .ok()
        .and_then(act)
}

fn inode(fd: i32) -> Option<u64> {
    let mut stat = [0u64; 18];
    // SAFETY: the kernel writes 144 bytes, the size of `stat`.
    unsafe {
        call(
            nr::FSTAT,
            [fd as usize, stat.as_mut_ptr() as usize, 0, 0, 0, 0],
        )
    }
    .ok()?;
    stat.get(1).copied()
}

/// Returns the descriptor of a signal's pipe; `None` without a pipe, or if the program has closed or reused the
/// descriptor.
fn feed(signal: usize) -> Option<i32> {
    let [ill, trap] = &FEEDS;
    let feed = if signal == 4 { ill } else { trap };
    let fd = feed.fd.load(Ordering::Acquire); // pairs with `signalfd`
    let pipe = feed.pipe.load(Ordering::Relaxed); // published by `fd`
    (fd >= 0 && in_use() && inode(fd) == Some(pipe)).then_some(fd)
}

/// Writes a held signal to its pipe, unless the pipe has the signal already. Returns `false` if there is no pipe.
pub(super) fn offer(info: &Info) -> bool {
    let signal = info.signal as usize;
    let Some(fd) = feed(signal) else { return false };
    find(fd, signal, false).is_some() || write(fd, &record(info))
}

pub(super) fn is_full(signal: usize) -> bool {
    feed(signal).is_some_and(|fd| find(fd, signal, false).is_some())
}

pub(super) fn drain(signal: usize) -> Option<Info> {
    find(feed(signal)?, signal, true)
}

/// Finds a signal's record in the pipe. Reads each record once, and writes it back, unless the record is taken.
fn find(fd: i32, signal: usize, take: bool) -> Option<Info> {
    let mut waiting = 0i32;
    let at = &raw mut waiting as usize;
    // SAFETY: the kernel writes one number.
    unsafe { call(nr::IOCTL, [fd as usize, FIONREAD, at, 0, 0, 0]) }.ok()?;
    if waiting == 0 {
        return None;
    }
    // Reading the program's descriptor may block, so the pipe is opened again, without blocking.
    let end = path(fd, |path| open(path, NONBLOCK_CLOEXEC as i32).ok())?;
    let mut found = None;
    for _ in 0..waiting as usize / RECORD {
        let Some(record) = read(end) else { break };
        let wanted = record.first() == Some(&(signal as u32));
        if wanted {
            found = Some(info(&record));
        }
        if !(wanted && take) {
            write(fd, &record);
        }
    }
    close(end);
    found
}

fn read(fd: i32) -> Option<[u32; WORDS]> {
    let mut record = [0u32; WORDS];
    let args = [fd as usize, record.as_mut_ptr() as usize, RECORD, 0, 0, 0];
    // SAFETY: the kernel writes at most the record's length.
    (unsafe { call(nr::READ, args) } == Ok(RECORD)).then_some(record)
}

fn write(fd: i32, record: &[u32; WORDS]) -> bool {
    let args = [fd as usize, record.as_ptr() as usize, RECORD, 0, 0, 0];
    // SAFETY: the kernel reads only the record.
    let written = unsafe { call(nr::WRITE, args) };
    written == Ok(RECORD)
}

/// Returns a signalfd_siginfo: signal, errno, code, process, user, and at bytes 44 and 48 the value.
fn record(info: &Info) -> [u32; WORDS] {
    let word = |at: usize| info.rest.get(at).copied().unwrap_or(0);
    let mut record = [0; WORDS];
    let head = [
        info.signal as u32,
        info.errno as u32,
        info.code as u32,
        word(1),
        word(2),
    ];
    let value = [word(3), word(3), word(4)];
    let places = (0..head.len()).chain(11..14);
    for (at, value) in places.zip(head.into_iter().chain(value)) {
        if let Some(slot) = record.get_mut(at) {
            *slot = value;
        }
    }
    record
}

fn info(record: &[u32; WORDS]) -> Info {
    let word = |at: usize| record.get(at).copied().unwrap_or(0);
    let mut rest = [0; 29];
    let values = [0, word(3), word(4), word(12), word(13)];
    for (slot, value) in rest.iter_mut().zip(values) {
        *slot = value;
    }
    Info {
        signal: word(0) as i32,
        errno: word(1) as i32,
        code: word(2) as i32,
        rest,
    }
}
