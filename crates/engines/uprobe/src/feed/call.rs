//! The system calls that change what can be run where, by their arguments.

use core::ops::Range;

const MMAP: usize = 9;
const MPROTECT: usize = 10;
const MUNMAP: usize = 11;
const MREMAP: usize = 25;
const PKEY_MPROTECT: usize = 329;
/// The numbers of these calls (x86-64).
pub const NUMBERS: [usize; 5] = [MMAP, MPROTECT, MUNMAP, MREMAP, PKEY_MPROTECT];

const PROT_EXEC: u64 = 4;
const MAP_TYPE: u64 = 0xf;
const MAP_PRIVATE: u64 = 2;
const MAP_FIXED: u64 = 0x10;
const MAP_ANONYMOUS: u64 = 0x20;
const MREMAP_FIXED: u64 = 2;
const MREMAP_DONTUNMAP: u64 = 4;
const PAGE: u64 = 4096;

/// One of these calls; lengths are whole pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// mmap(2).
    Map {
        /// Where, as far as the program says so and what is there gives way.
        fixed: Option<u64>,
        /// Bytes.
        len: u64,
        /// It can be executed, and may be a file's: memory that is shared is one's, too.
        code: bool,
        /// From where in the file.
        offset: u64,
    },
    /// munmap(2).
    Unmap(Range<u64>),
    /// mprotect(2).
    Protect {
        /// What of memory.
        range: Range<u64>,
        /// Whether it can be executed from now on.
        executable: bool,
    },
    /// mremap(2).
    Move {
        /// From where.
        from: Range<u64>,
        /// Where to, as far as the program says so.
        fixed: Option<u64>,
        /// Bytes, there.
        len: u64,
        /// What was at the old place stays there.
        stays: bool,
    },
}

/// What a call may do to what can be run.
pub(super) enum Change<'a> {
    /// Nothing.
    Nothing,
    /// Code comes where nothing was.
    Adds,
    /// What is there may be code from now on, and nobody knows of which file.
    MayAdd(&'a Range<u64>),
    /// Something goes, or gives way, in these ranges.
    TakesAway([Range<u64>; 2]),
}

impl Call {
    /// A call by its number and arguments.
    #[inline]
    pub fn of(number: usize, args: [u64; 6]) -> Option<Call> {
        let [a, b, c, d, e, f] = args;
        Some(match number {
            MMAP => Call::Map {
                fixed: (d & MAP_FIXED != 0).then_some(a),
                len: pages(b),
                code: c & PROT_EXEC != 0 && (d & MAP_ANONYMOUS == 0 || d & MAP_TYPE != MAP_PRIVATE),
                offset: f,
            },
            MUNMAP => Call::Unmap(range(a, b)),
            MPROTECT | PKEY_MPROTECT => Call::Protect {
                range: range(a, b),
                executable: c & PROT_EXEC != 0,
            },
            MREMAP => Call::Move {
                from: range(a, b),
                fixed: (d & MREMAP_FIXED != 0).then_some(e),
                len: pages(c),
                stays: d & MREMAP_DONTUNMAP != 0 || b == 0,
            },
            _ => return None,
        })
    }

    /// Whether memory at an address goes away.
    pub fn frees(&self, address: u64) -> bool {
        match self.change() {
            Change::TakesAway(ranges) => ranges.iter().any(|range| range.contains(&address)),
            _ => self.fixed().is_some_and(|range| range.contains(&address)),
        }
    }

    /// Whether it maps something that can be executed and may be a file's.
    pub(super) fn is_code(&self) -> bool {
        matches!(self, Call::Map { code: true, .. })
    }

    /// Whether something that is there may go.
    pub(super) fn takes_away(&self) -> bool {
        matches!(self.change(), Change::TakesAway(_)) || self.fixed().is_some()
    }

    fn fixed(&self) -> Option<Range<u64>> {
        match self {
            Call::Map { fixed, len, .. } | Call::Move { fixed, len, .. } => {
                fixed.map(|at| range(at, *len))
            }
            _ => None,
        }
    }

    #[inline]
    pub(super) fn change(&self) -> Change<'_> {
        let fixed = self.fixed();
        match self {
            Call::Map { code: true, .. } => Change::Adds,
            Call::Map { .. } => match fixed {
                Some(range) => Change::TakesAway([range, 0..0]),
                None => Change::Nothing,
            },
            Call::Unmap(range) => Change::TakesAway([range.clone(), 0..0]),
            Call::Protect {
                range,
                executable: true,
            } => Change::MayAdd(range),
            Call::Protect { range, .. } => Change::TakesAway([range.clone(), 0..0]),
            // A copy of one address is as long as the program says.
            Call::Move { from, .. } => Change::TakesAway([
                from.start..from.end.max(from.start.saturating_add(1)),
                fixed.unwrap_or(0..0),
            ]),
        }
    }
}

fn pages(len: u64) -> u64 {
    len.checked_next_multiple_of(PAGE).unwrap_or(len)
}

fn range(start: u64, len: u64) -> Range<u64> {
    start..start.saturating_add(pages(len))
}
