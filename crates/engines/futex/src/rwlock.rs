//! What a rwlock of glibc's has where, since version 2.25: as its header `struct_rwlock.h` tells
//! every program that has one.
//!
//! | bytes | hold |
//! |---|---|
//! | 0 to 3 | flags, and from bit 3 on how many threads read or want to |
//! | 8 to 11 | where all wait for the other phase |
//! | 12 to 15 | where writers wait for each other |
//! | 24 to 27 | the thread that writes |

const PHASE: u64 = 8;
const WRITERS: u64 = 12;
/// How far behind its beginning the number of the thread that writes is.
pub const WRITER: u64 = 24;
/// Set while it is the writers' turn.
const WRITE_PHASE: u32 = 1;
/// Set in the first word where readers wait for a writer at it; in no other one.
const READERS_WAIT: u32 = 4;
const COUNT_SHIFT: u32 = 3;

/// Where a rwlock begins of which a thread waits at this address.
pub fn beginning(waited_at: u64) -> u64 {
    let inside = if waited_at.is_multiple_of(8) {
        PHASE
    } else {
        WRITERS
    };
    waited_at.wrapping_sub(inside)
}

/// The same, where it is known what the word was when the thread went to wait: readers who let a
/// writer go first wait at the first word, in which they have said so.
pub fn beginning_of_wait(waited_at: u64, word: u32) -> u64 {
    match word & READERS_WAIT {
        0 => beginning(waited_at),
        _ => waited_at,
    }
}

/// How many threads hold it to read, by its first word.
pub fn readers(word: u32) -> u32 {
    match word & WRITE_PHASE {
        0 => word >> COUNT_SHIFT,
        // Those that are counted wait.
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
        assert_eq!([0x1008, 0x100c].map(beginning), [0x1000, 0x1000]);
        assert_eq!(beginning_of_wait(0x1008, 3), 0x1000);
        assert_eq!(beginning_of_wait(0x1000, 2 << 3 | 4 | 2), 0x1000);
    }
}
