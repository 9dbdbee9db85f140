//! The layout of glibc's rwlock since version 2.25. glibc's public header `struct_rwlock.h`
//! compiles it into every program, so it cannot change.
//!
//! | bytes | hold |
//! |---|---|
//! | 0 to 3 | flags, and from bit 3 on how many threads read or want to |
//! | 8 to 11 | the futex at which threads wait for the other phase |
//! | 12 to 15 | the futex at which writers wait for each other |
//! | 24 to 27 | the thread that writes |

const PHASE: u64 = 8;
const WRITERS: u64 = 12;
/// Offset of the word that holds the writing thread.
pub const WRITER: u64 = 24;
/// Set in the first word while it is the writers' turn.
const WRITE_PHASE: u32 = 1;
/// Set in the first word if readers wait at it for a writer; never set in the other words.
const READERS_WAIT: u32 = 4;
const COUNT_SHIFT: u32 = 3;

/// Returns the start of the rwlock for a thread that waits at this address.
pub fn beginning(waited_at: u64) -> u64 {
    let inside = if waited_at.is_multiple_of(8) {
        PHASE
    } else {
        WRITERS
    };
    waited_at.wrapping_sub(inside)
}

/// Returns the same if the word's value when the thread went to wait is known. Readers that let a
/// writer go first wait at the first word itself, and mark that word.
pub fn beginning_of_wait(waited_at: u64, word: u32) -> u64 {
    match word & READERS_WAIT {
        0 => beginning(waited_at),
        _ => waited_at,
    }
}

/// Returns how many threads hold the rwlock to read, by its first word.
pub fn readers(word: u32) -> u32 {
    match word & WRITE_PHASE {
        0 => word >> COUNT_SHIFT,
        // In the write phase the counted readers wait.
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
