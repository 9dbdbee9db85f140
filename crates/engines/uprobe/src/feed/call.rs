//! The system calls that may change executable mappings.

use core::ops::Range;

const MMAP: usize = 9;
const MPROTECT: usize = 10;
const MUNMAP: usize = 11;
const MREMAP: usize = 25;
const PKEY_MPROTECT: usize = 329;
/// The system calls' numbers (x86-64).
pub const NUMBERS: [usize; 5] = [MMAP, MPROTECT, MUNMAP, MREMAP, PKEY_MPROTECT];

const PROT_EXEC: u64 = 4;
const MAP_TYPE: u64 = 0xf;
const MAP_PRIVATE: u64 = 2;
const MAP_FIXED: u64 = 0x10;
const MAP_ANONYMOUS: u64 = 0x20;
const MREMAP_FIXED: u64 = 2;
const MREMAP_DONTUNMAP: u64 = 4;
const PAGE: u64 = 4096;

/// A call that may change mappings; lengths are whole pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// mmap(2).
    Map {
        /// The address, if MAP_FIXED is set. The call then replaces older mappings.
        fixed: Option<u64>,
        /// The length in bytes.
        len: u64,
        /// Whether the mapping is executable and may have a file, as shared anonymous memory has.
        is_code: bool,
        /// The offset in the file.
        offset: u64,
    },
    /// munmap(2).
    Unmap(Range<u64>),
    /// mprotect(2).
    Protect {
        /// The range whose protection changes.
        range: Range<u64>,
        /// Whether the range is executable afterwards.
        is_executable: bool,
    },
    /// mremap(2).
    Move {
        /// The old range.
        from: Range<u64>,
        /// The new address, if MREMAP_FIXED is set.
        fixed: Option<u64>,
        /// The new length in bytes.
        len: u64,
        /// Whether the old range stays mapped.
        stays_mapped: bool,
    },
}

pub(super) enum Change<'a> {
    Nothing,
    /// Maps code. With MAP_FIXED it may replace other mappings.
    Adds,
    /// Makes mapped memory executable. The call does not name its file.
    MayAdd(&'a Range<u64>),
    /// Removes or replaces mappings in these ranges.
    TakesAway([Range<u64>; 2]),
}

impl Call {
    /// Decodes a call.
    #[inline]
    pub fn of(number: usize, args: [u64; 6]) -> Option<Call> {
        let [a, b, c, d, e, f] = args;
        Some(match number {
            MMAP => Call::Map {
                fixed: (d & MAP_FIXED != 0).then_some(a),
                len: pages(b),
                is_code: c & PROT_EXEC != 0
                    && (d & MAP_ANONYMOUS == 0 || d & MAP_TYPE != MAP_PRIVATE),
                offset: f,
            },
            MUNMAP => Call::Unmap(range(a, b)),
            MPROTECT | PKEY_MPROTECT => Call::Protect {
                range: range(a, b),
                is_executable: c & PROT_EXEC != 0,
            },
            MREMAP => Call::Move {
                from: range(a, b),
                fixed: (d & MREMAP_FIXED != 0).then_some(e),
                len: pages(c),
                stays_mapped: d & MREMAP_DONTUNMAP != 0 || b == 0,
            },
            _ => return None,
        })
    }

    /// Returns whether the call unmaps an address.
    pub fn frees(&self, address: u64) -> bool {
        match self.change() {
            Change::TakesAway(ranges) => ranges.iter().any(|range| range.contains(&address)),
            _ => self.fixed().is_some_and(|range| range.contains(&address)),
        }
    }

    /// Returns where the call has mapped code that may be a file's.
    pub fn mapped(&self, result: i64) -> Option<Range<u64>> {
        let at = u64::try_from(result).ok()?;
        match self {
            Call::Map { len, is_code, .. } => is_code.then(|| at..at.saturating_add(*len)),
            Call::Move { len, .. } => Some(at..at.saturating_add(*len)),
            _ => None,
        }
    }

    pub(super) fn is_code(&self) -> bool {
        matches!(self, Call::Map { is_code: true, .. })
    }

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
            Call::Map { is_code: true, .. } => Change::Adds,
            Call::Map { .. } => match fixed {
                Some(range) => Change::TakesAway([range, 0..0]),
                None => Change::Nothing,
            },
            Call::Unmap(range) => Change::TakesAway([range.clone(), 0..0]),
            Call::Protect {
                range,
                is_executable: true,
            } => Change::MayAdd(range),
            Call::Protect { range, .. } => Change::TakesAway([range.clone(), 0..0]),
            // With old length 0 the call copies the mapping at `from`, so the range must not be empty.
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
