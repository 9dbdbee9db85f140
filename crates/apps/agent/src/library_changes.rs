//! Runs on the loading thread when the loader's list of libraries changes.

use tiptoe_wire::Data;

use crate::libraries::{WalkResult, ring};
use crate::loader::Record;
use crate::shared::{self, Shared};
use crate::space;

pub fn changed() {
    let Some(shared) = shared::at_home() else {
        return;
    };
    let libraries = &shared.libraries;
    let Some(record) = libraries.record() else {
        return;
    };
    let settled = record.is_consistent();
    if !settled {
        libraries.set_mapping(true);
    }
    // A session that is ending accepts no reports, but still changes code. So the code is locked even then.
    let data = shared.data().filter(|_| shared.claims.active());
    let found = data.as_ref().map(|data| note(shared, &record, data));
    if settled {
        // The walk, which finds closed libraries, must precede this unlocking, and the wait for patches must follow.
        libraries.set_mapping(false);
    }
    let (Some(data), Some(found)) = (data, found) else {
        return;
    };
    match settled {
        // The first walk may have reported a library that is still being loaded.
        true if found.any() || data.served() < data.reported() => libraries.wait(&data, &found),
        false if found.has_reported => ring(&data),
        _ => {}
    }
    if settled {
        data.set_changing(false);
    }
}

fn note(shared: &Shared, record: &Record, data: &Data) -> WalkResult {
    let settled = record.is_consistent();
    let first = shared.libraries.is_first_walk();
    // This call must precede the report, because the report makes the agent's thread look the library up.
    space::loading(!settled);
    if !settled {
        data.set_changing(true);
    }
    match settled || first {
        true => shared.libraries.walk(record, data),
        false => WalkResult::default(),
    }
}
