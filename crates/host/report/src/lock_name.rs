//! The name of a lock.

use crate::printable;

/// Returns a lock's name, with a rwlock's requested mode in parentheses.
pub(crate) fn with_mode(lock: &str, mode: Option<&str>) -> String {
    let mode = mode.map(|mode| format!(" ({mode})"));
    printable(lock) + &mode.unwrap_or_default()
}
