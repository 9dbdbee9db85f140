//! Decides whether a watched variable still exists.

use std::time::Duration;

#[derive(Default)]
pub(super) struct VariableLifetime {
    pub(super) seen: Duration,
    is_missed: bool,
    /// For how many ns an ended variable was watched.
    pub(super) ended: Option<u64>,
}

impl VariableLifetime {
    pub(super) fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    /// Returns whether the variable is removed.
    pub(super) fn look(&mut self, is_there: bool, now: Duration) -> bool {
        if is_there {
            self.seen = now;
        }
        // One miss proves nothing, because an exec removes memory and threads just before the exec is reported.
        std::mem::replace(&mut self.is_missed, !is_there) && !is_there
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn a_variable_that_is_missed_twice_has_ended() {
        let mut lifetime = VariableLifetime::default();
        assert!(!lifetime.look(true, MS(10)));
        assert!(!lifetime.look(false, MS(20)));
        assert!(!lifetime.look(true, MS(30)), "it was there again");
        assert!(!lifetime.look(false, MS(40)));
        assert!(lifetime.look(false, MS(50)));
        assert_eq!(lifetime.seen, MS(30));
    }
}
