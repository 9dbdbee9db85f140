//! Performs the program's mlockall without locking the agent's memory.
//!
//! The agent's segments and tables have room for the largest program. For mlockall the kernel would allocate and lock
//! all their pages, 260 MB to 1.5 GB, or fail because of RLIMIT_MEMLOCK. So the agent's hook (interception) of mlockall
//! locks the program's mappings one by one, and returns what the kernel would return without the agent. The agent
//! unlocks each mapping that it makes later (`memory.rs`).
//!
//! A mapping that another thread makes during the call is locked only if the call includes future mappings. An mlockall
//! without a hook locks the agent's memory, too.

use core::ops::Range;

use tiptoe_sys::raw::{call, nr};
use tiptoe_uprobe::feed::Lines;

use crate::files::{File, ProcFile};
use crate::memory::{self, PAGE};
use crate::shared;

const CURRENT: u32 = 1;
const FUTURE: u32 = 2;
const ON_FAULT: u32 = 4;
const ALL: u32 = CURRENT | FUTURE | ON_FAULT;
const EPERM: i64 = -1;
const ENOMEM: i64 = -12;

/// Performs mlockall(2). `None` if the program must make the call itself: if the call is invalid or only for future
/// mappings, or if the list of mappings cannot be read. Not inlined, so that other paths of the caller need no 3 KiB of
/// stack.
#[cold]
#[inline(never)]
pub fn lock_all(flags: u32) -> Option<i64> {
    if flags & CURRENT == 0 || flags & !ALL != 0 {
        return None;
    }
    let limit = limit();
    let mut needed = 0;
    each_foreign(|range| needed += range.len() as u64)?;
    if needed > limit && !may_exceed_limit() {
        return Some(if limit == 0 { EPERM } else { ENOMEM });
    }
    let future = match flags & FUTURE {
        // Without FUTURE, mlockall(2) ends the locking of future mappings, as munlockall does.
        0 => lock(nr::MUNLOCKALL, 0, 0, 0),
        _ => lock(nr::MLOCKALL, (flags & !CURRENT) as usize, 0, 0),
    };
    if future < 0 {
        return Some(future);
    }
    let (number, on_fault) = match flags & ON_FAULT {
        0 => (nr::MLOCK, 0),
        _ => (nr::MLOCK2, 1),
    };
    // Errors are ignored, because mlockall(2) does not fail for pages that cannot be provided.
    each_foreign(|range| {
        lock(number, range.start, range.len(), on_fault);
    })?;
    Some(0)
}

fn lock(number: usize, a: usize, b: usize, c: usize) -> i64 {
    // SAFETY: the program asked for its memory to be locked, which changes no content.
    match unsafe { call(number, [a, b, c, 0, 0, 0]) } {
        Ok(_) => 0,
        Err(errno) => -i64::from(errno.0),
    }
}

fn limit() -> u64 {
    const MEMLOCK: usize = 8;
    let mut limits = [u64::MAX; 2];
    let into = limits.as_mut_ptr() as usize;
    // SAFETY: the kernel writes two words.
    let _ = unsafe { call(nr::GETRLIMIT, [MEMLOCK, into, 0, 0, 0, 0]) };
    limits[0]
}

/// Returns whether the calling thread may exceed the limit. Tries to lock a range that wraps around. The kernel checks
/// the limit first, so only a thread with that right gets EINVAL (mlock(2)).
fn may_exceed_limit() -> bool {
    const EINVAL: i64 = -22;
    lock(nr::MLOCK, PAGE, usize::MAX & !(PAGE - 1), 0) == EINVAL
}

/// Runs `act` on each mapped range except the agent's. `None` if the list cannot be read.
fn each_foreign(mut act: impl FnMut(Range<usize>)) -> Option<()> {
    let list = File::open(ProcFile::Maps)?;
    let image = memory::image();
    let mut lines = Lines::new(|buffer| list.read(buffer));
    for line in &mut lines {
        let (mut start, end) = (line.start as usize, line.end as usize);
        // The list may end with a page in the kernel's half, which is not the program's.
        if memory::is_far(start) || end > isize::MAX as usize {
            continue;
        }
        while start < end {
            let own = own(&image, start..end);
            if start < own.start {
                act(start..own.start);
            }
            start = own.end;
        }
    }
    (!lines.has_failed()).then_some(())
}

/// Returns the first part of `range` in the agent's image or generated code, or else an empty range at the end of
/// `range`.
fn own(image: &Range<usize>, range: Range<usize>) -> Range<usize> {
    let arenas = shared::get()
        .into_iter()
        .flat_map(|shared| shared.arenas.ranges());
    let parts = arenas.chain([image.clone()]);
    let cut = parts.map(|part| part.start.max(range.start)..part.end.min(range.end));
    let first = cut
        .filter(|part| part.start < part.end)
        .min_by_key(|part| part.start);
    first.unwrap_or(range.end..range.end)
}
