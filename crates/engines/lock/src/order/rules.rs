//! Whether a thread that wants a lock in one mode waits for a thread that holds it in another.
//!
//! A reader counts as waiting for a reader: a writer may wait for the reader that holds the lock, and a waiting writer
//! blocks new readers. A recursive reader waits only for writers. An upgrade waits only for readers, because only one
//! thread at a time can upgrade.

use crate::acquisition::Mode;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum HeldAs {
    Reads,
    MayWrite,
    Writes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum WantedAs {
    Again,
    Upgrade,
    Take,
}

impl HeldAs {
    pub(super) fn of(mode: Mode) -> HeldAs {
        match mode {
            Mode::Shared | Mode::SharedRecursive => HeldAs::Reads,
            Mode::Upgradable => HeldAs::MayWrite,
            Mode::Exclusive | Mode::Upgrade => HeldAs::Writes,
        }
    }
}

impl WantedAs {
    pub(super) fn of(mode: Mode) -> WantedAs {
        match mode {
            Mode::SharedRecursive => WantedAs::Again,
            Mode::Upgrade => WantedAs::Upgrade,
            Mode::Shared | Mode::Upgradable | Mode::Exclusive => WantedAs::Take,
        }
    }

    pub(super) fn waits_for(self, held: HeldAs) -> bool {
        match self {
            WantedAs::Again => held == HeldAs::Writes,
            WantedAs::Upgrade => held == HeldAs::Reads,
            WantedAs::Take => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_waits_for_these_holders() {
        let all = [HeldAs::Reads, HeldAs::MayWrite, HeldAs::Writes];
        let waits = |wants: WantedAs| all.map(|held| wants.waits_for(held));
        assert_eq!(waits(WantedAs::Again), [false, false, true]);
        assert_eq!(waits(WantedAs::Take), [true; 3]);
        assert_eq!(waits(WantedAs::Upgrade), [true, false, false]);
    }
}
