//! Who holds up whom.
//!
//! | wants, held by another thread | reads | may write | writes |
//! |---|---|---|---|
//! | to read again | goes on | goes on | waits |
//! | to read | waits, behind a writer that waits | waits, likewise | waits |
//! | to read and maybe write, or to write | waits | waits | waits |
//! | to upgrade | waits | is not there: it has it itself | is not there |

use crate::told::Mode;

/// How a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Held {
    Reads,
    MayWrite,
    Writes,
}

/// How a lock is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Wants {
    Again,
    Upgrade,
    /// In any other way.
    Take,
}

impl Held {
    pub(super) fn of(mode: Mode) -> Held {
        match mode {
            Mode::Shared | Mode::SharedRecursive => Held::Reads,
            Mode::Upgradable => Held::MayWrite,
            Mode::Exclusive | Mode::Upgrade => Held::Writes,
        }
    }
}

impl Wants {
    pub(super) fn of(mode: Mode) -> Wants {
        match mode {
            Mode::SharedRecursive => Wants::Again,
            Mode::Upgrade => Wants::Upgrade,
            Mode::Shared | Mode::Upgradable | Mode::Exclusive => Wants::Take,
        }
    }

    /// Whether it waits for who holds the lock so.
    pub(super) fn waits_for(self, held: Held) -> bool {
        match self {
            Wants::Again => held == Held::Writes,
            Wants::Upgrade => held == Held::Reads,
            Wants::Take => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_holds_up_whom() {
        let all = [Held::Reads, Held::MayWrite, Held::Writes];
        let waits = |wants: Wants| all.map(|held| wants.waits_for(held));
        assert_eq!(waits(Wants::Again), [false, false, true]);
        assert_eq!(waits(Wants::Take), [true; 3]);
        assert_eq!(waits(Wants::Upgrade), [true, false, false]);
    }
}
