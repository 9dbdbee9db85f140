//! Maps the agent's own memory by system calls.

use tiptoe_sys::raw::{Errno, call, nr};

const READ: usize = 1;
const WRITE: usize = 2;
const EXEC: usize = 4;
const SHARED: usize = 1;
const PRIVATE: usize = 2;
const ANONYMOUS: usize = 0x20;
const NORESERVE: usize = 0x4000;
const FIXED_NOREPLACE: usize = 0x10_0000;
const DONTFORK: usize = 10;
const DOFORK: usize = 11;
const DONTDUMP: usize = 16;
const WIPEONFORK: usize = 18;
const NOHUGEPAGE: usize = 15;
const MAY_MOVE: usize = 1;

pub const PAGE: usize = 4096;
pub const STACK: usize = 16 * PAGE;
/// The agent's memory is mapped from here up to 2 GiB before [`CODE`], because trampolines (generated code) need the
/// space near code. The kernel and all sanitizers leave this range free ([`SANITIZERS`]). A sanitizer refuses to start,
/// or overwrites our memory, if something is mapped at its shadow memory. On some processors the page also selects the
/// first-level cache lines, so mappings begin at random pages.
const FAR: usize = 0x5500_0000_0000;
/// The length of the range for mappings shorter than [`LONG`]. Longer mappings begin above it. Otherwise short ones
/// would leave no hole for a segment (shared with tiptoe), which the kernel would place where trampolines need space.
const FAR_LEN: usize = 1 << 36;
/// The least length of a long mapping. A started command's segment takes up to 88 GiB, and more when it grows
/// ([`extend`]).
const LONG: usize = 1 << 30;
const DISTANCE: usize = 2 << 30;
/// The lowest address at which the kernel loads position-independent programs: two thirds of the user's address space.
const CODE: usize = 0x5555_5555_4000;
/// The addresses that sanitizers use on x86-64 (compiler-rt's runtimes of gcc 6 to 14 and clang 4 to 20).
const SANITIZERS: [[usize; 2]; 7] = [
    [0x7fff_7000, 0x1000_7fff_8000],      // asan: shadow
    [0x5000_0000_0000, 0x5400_0000_0000], // asan, lsan: heap, newer
    [0x6000_0000_0000, 0x6400_0000_0000], // asan, lsan: heap, older
    [0x0080_0000_0000, 0x5500_0000_0000], // tsan: shadow, origins, traces
    [0x5680_0000_0000, 0x7300_0000_0000], // tsan: between programs and libraries
    [0x0100_0000_0000, 0x5100_0000_0000], // msan, dfsan: shadow, origins
    [0x6000_0000_0000, 0x7400_0000_0000], // msan, dfsan: origins, heap
];
const _: () = {
    let mut index = 0;
    while index < SANITIZERS.len() {
        let [start, end] = SANITIZERS[index];
        assert!(CODE <= start || end <= FAR);
        index += 1;
    }
    // The range has room for the segments of three sessions.
    assert!(FAR + FAR_LEN + 3 * (88 << 30) + DISTANCE < CODE);
};
const FAR_LOOKS: usize = 4;
/// The number of ascending addresses to try after [`FAR_LOOKS`] random ones, before the kernel chooses an address.
const FAR_STEPS: usize = 32;
const PIECE: usize = 1 << 20;
const EAGAIN: Errno = Errno(11);

/// Maps memory whose pages the kernel allocates at their first use, even in a program that called mlockall.
fn map(at: usize, len: usize, protection: usize, flags: usize, fd: i32) -> Result<usize, Errno> {
    let anywhere = at == 0;
    let far = anywhere.then(|| far(len, flags, fd)).flatten();
    let at = match (far, anywhere) {
        (Some(at), _) => at,
        (None, true) => mmap(0, len, flags, fd, 0)?,
        (None, false) => reserve(at, len, flags, fd)?,
    };
    if anywhere {
        // Otherwise a core dump would contain gigabytes of zeroes.
        let _ = advise(at, len, DONTDUMP);
    }
    let opened = unlock(at, len).and_then(|()| {
        // SAFETY: the range was just mapped, so no other thread uses it.
        unsafe { call(nr::MPROTECT, [at, len, protection, 0, 0, 0]) }
    });
    opened.map(|_| at).inspect_err(|_| unmap(at, len))
}

/// Maps inaccessible memory far from all code, at a random address unless the range is nearly full.
fn far(len: usize, flags: usize, fd: i32) -> Option<usize> {
    let (start, choice) = match len < LONG {
        true => (FAR, FAR_LEN),
        false => {
            let start = FAR + FAR_LEN;
            (start, (CODE - DISTANCE - start).checked_sub(len)?)
        }
    };
    let looks = (0..FAR_LOOKS).map_while(|_| Some(random()? % choice));
    let steps = (0..FAR_STEPS).map(|step| choice / FAR_STEPS * step);
    looks.chain(steps).find_map(|offset| {
        let at = (start + offset) & !(PAGE - 1);
        let got = reserve(at, len, flags | FIXED_NOREPLACE, fd).ok()?;
        // Before Linux 4.17 the kernel ignores FIXED_NOREPLACE, and may map elsewhere.
        let there = got == at;
        if !there {
            unmap(got, len);
        }
        there.then_some(at)
    })
}

pub fn random() -> Option<usize> {
    const NONBLOCK: usize = 1;
    let mut word = 0usize;
    let args = [
        &raw mut word as usize,
        size_of::<usize>(),
        NONBLOCK,
        0,
        0,
        0,
    ];
    // SAFETY: the kernel writes at most the word.
    let got = unsafe { call(nr::GETRANDOM, args) };
    (got == Ok(size_of::<usize>())).then_some(word)
}

/// Returns whether an address is in the agent's range, which excludes its image and trampolines.
pub fn is_far(at: usize) -> bool {
    (FAR..CODE).contains(&at)
}

/// Maps a range without access. `flags` must contain [`FIXED_NOREPLACE`].
fn reserve(at: usize, len: usize, flags: usize, fd: i32) -> Result<usize, Errno> {
    match mmap(at, len, flags, fd, 0) {
        Err(EAGAIN) => in_pieces(at, len, flags, fd),
        mapped => mapped,
    }
}

/// Maps a range in pieces, and unlocks each piece before it maps the next. After mlockall each new mapping is locked at
/// first, so the whole range might exceed RLIMIT_MEMLOCK.
fn in_pieces(at: usize, len: usize, flags: usize, fd: i32) -> Result<usize, Errno> {
    let (mut done, mut piece) = (0, PIECE.min(len));
    while done < len {
        let next = piece.min(len - done);
        let offset = if fd < 0 { 0 } else { done };
        let mapped = match mmap(at + done, next, flags, fd, offset) {
            Ok(got) if got == at + done => unlock(got, next).map(|()| done += next),
            Ok(got) => {
                unmap(got, next);
                Err(Errno(17))
            }
            Err(EAGAIN) if piece > PAGE => {
                piece = (piece / 2).next_multiple_of(PAGE);
                Ok(())
            }
            Err(errno) => Err(errno),
        };
        mapped.inspect_err(|_| unmap(at, done))?;
    }
    Ok(at)
}

fn mmap(at: usize, len: usize, flags: usize, fd: i32, offset: usize) -> Result<usize, Errno> {
    // SAFETY: without MAP_FIXED, mmap replaces nothing.
    unsafe { call(nr::MMAP, [at, len, 0, flags, fd as usize, offset]) }
}

pub fn unlock(at: usize, len: usize) -> Result<(), Errno> {
    // SAFETY: the call changes no content of memory.
    unsafe { call(nr::MUNLOCK, [at, len, 0, 0, 0, 0]) }.map(|_| ())
}

pub fn image() -> core::ops::Range<usize> {
    let (start, end): (usize, usize);
    // SAFETY: the instructions only compute addresses. The symbols are hidden, otherwise they could be another image's.
    unsafe {
        core::arch::asm!(
            ".hidden __ehdr_start",
            ".hidden _end",
            "lea {}, [rip + __ehdr_start]",
            "lea {}, [rip + _end]",
            out(reg) start,
            out(reg) end,
            options(nomem, nostack, preserves_flags),
        );
    }
    start..end.next_multiple_of(PAGE)
}

pub fn let_code_be_written(page: usize, writable: bool) -> Result<(), Errno> {
    let write = if writable { WRITE } else { 0 };
    // SAFETY: the page is code, which stays readable and executable.
    unsafe { call(nr::MPROTECT, [page, PAGE, READ | EXEC | write, 0, 0, 0]) }.map(|_| ())
}

/// Makes a range of the program's code a mapping of its own, by madvise(2) against huge pages. The advice has no other
/// effect, because private pages of a file are never in a huge page.
pub fn split_mapping(start: usize, end: usize) {
    if let Some(len) = end.checked_sub(start) {
        let _ = advise(start, len, NOHUGEPAGE);
    }
}

fn advise(at: usize, len: usize, advice: usize) -> Result<(), Errno> {
    // SAFETY: the advices used here change no content that this process sees.
    unsafe { call(nr::MADVISE, [at, len, advice, 0, 0, 0]) }.map(|_| ())
}

/// Does nothing before Linux 5.14.
pub fn populate(at: usize, len: usize) {
    const POPULATE_WRITE: usize = 23;
    let (start, end) = (at & !(PAGE - 1), (at + len).next_multiple_of(PAGE));
    let _ = advise(start, end - start, POPULATE_WRITE);
}

pub fn private(len: usize) -> Result<usize, Errno> {
    map(0, len, READ | WRITE, PRIVATE | ANONYMOUS | NORESERVE, -1)
}

pub fn not_forked(len: usize) -> Result<usize, Errno> {
    let at = private(len)?;
    advise(at, len, DONTFORK).inspect_err(|_| unmap(at, len))?;
    Ok(at)
}

/// Maps `more` zeroed bytes right after a range. Fails if something is mapped there.
pub fn extend(at: usize, len: usize, more: usize) -> Result<(), Errno> {
    let end = at + len;
    exactly(end, more, READ | WRITE)?;
    let _ = advise(end, more, DONTDUMP);
    Ok(())
}

/// Maps zeroed memory aligned to its length, a power of two.
pub fn aligned(len: usize) -> Result<usize, Errno> {
    let at = private(2 * len)?;
    let start = at.next_multiple_of(len);
    for (from, to) in [(at, start), (start + len, at + 2 * len)] {
        if from < to {
            unmap(from, to - from);
        }
    }
    Ok(start)
}

pub fn wipe_on_fork(at: usize, len: usize) -> Result<(), Errno> {
    advise(at, len, WIPEONFORK)
}

pub fn has_seals(fd: i32, seals: i32) -> bool {
    const F_GET_SEALS: usize = 1034;
    // SAFETY: this query of a descriptor touches no memory.
    let found = unsafe { call(nr::FCNTL, [fd as usize, F_GET_SEALS, 0, 0, 0, 0]) };
    found.is_ok_and(|found| found as i32 & seals == seals)
}

pub fn segment(fd: i32, len: usize, writable: bool) -> Result<usize, Errno> {
    let protection = if writable { READ | WRITE } else { READ };
    let at = map(0, len, protection, SHARED | NORESERVE, fd)?;
    let private = advise(at, len, DONTFORK).inspect_err(|_| unmap(at, len));
    private.map(|()| at)
}

/// Replaces a segment by private memory, because a preempted thread may still write there.
pub fn retire_segment(at: usize, len: usize) {
    // If no memory is left, the segment stays, which is harmless because no session reads it.
    if let Ok(fresh) = private(len) {
        let _ = take_place(fresh, at, len).inspect_err(|_| unmap(fresh, len));
    }
}

/// Moves a range to another address, and replaces what is mapped there.
pub fn take_place(from: usize, at: usize, len: usize) -> Result<(), Errno> {
    const FIXED: usize = 2;
    let args = [from, len, len, MAY_MOVE | FIXED, at, 0];
    // SAFETY: both ranges are the agent's own. A thread that still writes to the replaced range always finds memory
    // there.
    unsafe { call(nr::MREMAP, args) }.map(|_| ())
}

pub fn unmap(at: usize, len: usize) {
    // SAFETY: the caller passes a range that a function above returned.
    let _ = unsafe { call(nr::MUNMAP, [at, len, 0, 0, 0, 0]) };
}

/// Maps zeroed memory at exactly `base`, in which trampolines keep return addresses.
pub fn callers(base: usize, len: usize) -> Result<(), Errno> {
    exactly(base, len, READ | WRITE)
}

fn exactly(base: usize, len: usize, protection: usize) -> Result<(), Errno> {
    let flags = PRIVATE | ANONYMOUS | NORESERVE | FIXED_NOREPLACE;
    let at = map(base, len, protection, flags, -1)?;
    if at != base {
        unmap(at, len);
        return Err(Errno(17));
    }
    Ok(())
}

/// Maps the code of tiptoe's plan, mapped at `from`, also at exactly `base`. The mapping is shared and its file is
/// sealed, so the mapping cannot become writable, and a fork copies no page.
pub fn code(from: usize, base: usize, len: usize) -> Result<(), Errno> {
    exactly(base, len, 0)?;
    replace_by_code(from, base, len).inspect_err(|_| unmap(base, len))
}

/// Maps code over the agent's own addresses, where threads may be executing the same code.
pub fn replace_by_code(from: usize, base: usize, len: usize) -> Result<(), Errno> {
    // SAFETY: with an old length of 0, the call maps the same part of the file again and keeps the first mapping.
    let at = unsafe { call(nr::MREMAP, [from, 0, len, MAY_MOVE, 0, 0]) }?;
    // SAFETY: the range was just mapped, so no other thread uses it.
    let ready = advise(at, len, DOFORK)
        .and_then(|()| unsafe { call(nr::MPROTECT, [at, len, READ | EXEC, 0, 0, 0]) })
        .and_then(|_| unlock(at, len))
        .and_then(|()| take_place(at, base, len));
    ready.inspect_err(|_| unmap(at, len))
}
