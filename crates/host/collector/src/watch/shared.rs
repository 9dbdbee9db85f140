//! Notices variables in memory that other processes may also write. Their stores cause no hit, because a watch counts
//! one process.

use tiptoe_session::{Note, WatchNote};

use super::begin::Target;
use super::variables::WatchedVariable;

pub(super) fn notes(target: &Target, variables: &[WatchedVariable]) -> Vec<Note> {
    let maps = target.process.maps().unwrap_or_default();
    let is_shared = |variable: &&WatchedVariable| {
        let at = maps.iter().find(|map| map.contains(variable.address()));
        !variable.is_code() && at.is_some_and(|map| map.perms.shared)
    };
    let shared = variables.iter().filter(is_shared);
    let note = |variable: &WatchedVariable| WatchNote::Shared {
        variable: variable.name().to_owned(),
    };
    shared.map(|variable| note(variable).into()).collect()
}
