//! glibc's rwlock since 2.25 (`struct_rwlock.h`). Its layout cannot change ([`crate::owner`]).
//!
//! | bytes | hold |
//! |---|---|
//! | 0 to 3 | flags; from bit 3 on, how many threads read or want to read |
//! | 8 to 11 | the futex of readers that wait for a writer's release, and of the next writer |
//! | 12 to 15 | the futex of the other waiting writers |
//! | 24 to 27 | the writing thread's id |

const PHASE: u64 = 8;
const WRITERS: u64 = 12;
/// Offset of the writing thread's id.
pub const WRITER: u64 = 24;
/// In the first word: a writer holds the rwlock or is next to hold it.
const WRITE_PHASE: u32 = 1;
/// In the first word: readers that let a writer precede them wait at this word.
const READERS_WAIT: u32 = 4;
const COUNT_SHIFT: u32 = 3;

/// Returns the address of the rwlock whose inner word is `waited_at`.
pub fn start_of(waited_at: u64) -> u64 {
    let inside = if waited_at.is_multiple_of(8) {
        PHASE
    } else {
        WRITERS
    };
    waited_at.wrapping_sub(inside)
}

/// Returns the address of the rwlock whose waiter expects the value `word` at `waited_at`. Readers that wait at the
/// rwlock's first word set `READERS_WAIT` there.
pub fn start_at_wait(waited_at: u64, word: u32) -> u64 {
    match word & READERS_WAIT {
        0 => start_of(waited_at),
        _ => waited_at,
    }
}

/// Returns how many threads hold the rwlock to read.
pub fn readers(word: u32) -> u32 {
    match word & WRITE_PHASE {
        0 => word >> COUNT_SHIFT,
        // The counted threads wait to read.
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_hold_it_while_it_is_their_turn() {
        assert_eq!(
            [readers(0), readers(3 << 3), readers(3 << 3 | 4)],
            [0, 3, 3]
        );
        assert_eq!(readers(3 << 3 | WRITE_PHASE), 0);
        assert_eq!([0x1008, 0x100c].map(start_of), [0x1000, 0x1000]);
        assert_eq!(start_at_wait(0x1008, 3), 0x1000);
        assert_eq!(start_at_wait(0x1000, 2 << 3 | 4 | 2), 0x1000);
    }
}
