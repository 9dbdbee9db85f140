//! Handles a change of the loader's list on the loading thread.

use tiptoe_wire::Data;

use crate::libraries::ring;
use crate::shared::{self, Shared};
use crate::space;

/// Handles a change of the loader's list; called before and after it.
pub fn changed() {
    let Some((shared, data)) = own_session() else {
        return;
    };
    let libraries = &shared.libraries;
    let Some(record) = libraries.record() else {
        return;
    };
    let first = libraries.is_first_walk();
    let settled = record.is_consistent();
    // Must precede the report, because the agent's thread then looks up where the new library is.
    space::loading(!settled);
    libraries.set_mapping(!settled);
    if !settled {
        data.set_changing(true);
    }
    if settled || first {
        let found = libraries.walk(&record, &data);
        match settled {
            // The first walk may have found a library that is still being loaded.
            true if found.any() || data.served() < data.reported() => libraries.wait(&data, &found),
            false if found.has_reported => ring(&data),
            _ => {}
        }
    }
    if settled {
        data.set_changing(false);
    }
}

fn own_session() -> Option<(&'static Shared, Data<'static>)> {
    let shared = shared::at_home()?;
    let data = shared.data()?;
    shared.claims.active().then_some((shared, data))
}
