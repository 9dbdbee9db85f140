//! The ids of tracepoints, from tracefs.

use std::fs;
use std::path::Path;

use tiptoe_event::counter::nearest_of;

use crate::programs::tracefs;
use crate::{CounterRefusal, Error};

pub(crate) fn id(group: &str, name: &str) -> Result<u64, Error> {
    let events = tracefs()?.join("events");
    let text = fs::read_to_string(events.join(group).join(name).join("id"));
    let id = text.ok().and_then(|text| text.trim().parse().ok());
    id.ok_or_else(|| unknown(&events, group, name))
}

fn unknown(events: &Path, group: &str, name: &str) -> Error {
    let names = |folder: &Path| -> Vec<String> {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.collect()
    };
    let folder = events.join(group);
    let (known, wanted, before) = match folder.is_dir() {
        true => (names(&folder), name, format!("{group}:")),
        false => (names(events), group, String::new()),
    };
    let known = known.iter().map(String::as_str);
    let near: Vec<String> = nearest_of(wanted, known)
        .into_iter()
        .flatten()
        .map(|name| format!("{before}{name}"))
        .collect();
    let refusal = CounterRefusal::NoTracepoint {
        group: group.to_owned(),
        name: name.to_owned(),
        near,
        folder: folder.parent().unwrap_or(events).to_owned(),
    };
    refusal.into()
}
