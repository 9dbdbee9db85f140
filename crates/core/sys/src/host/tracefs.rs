//! Reads tracefs, whose events are separate from those of perf_event_open.

use std::prelude::rust_2024::*;

use std::fs;
use std::path::{Path, PathBuf};

/// Whether tracefs is mounted and readable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tracefs {
    /// Not mounted at the usual places.
    NotMounted,
    /// This user may not read it.
    Unreadable(PathBuf),
    /// Readable.
    Readable(PathBuf),
}

impl Tracefs {
    /// Searches for the mount.
    pub fn detect() -> Self {
        let places = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
        let mut unreadable = None;
        for root in places.map(PathBuf::from) {
            match fs::read(root.join("set_event")) {
                Ok(_) => return Self::Readable(root),
                Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => {
                    unreadable.get_or_insert(root);
                }
                Err(_) => {}
            }
        }
        unreadable.map_or(Self::NotMounted, Self::Unreadable)
    }

    /// Returns the mount, if readable.
    pub fn root(&self) -> Option<&Path> {
        match self {
            Self::Readable(root) => Some(root),
            _ => None,
        }
    }

    /// Returns enabled events, probes and tracers, one line each.
    pub fn active(&self) -> Vec<String> {
        let Some(root) = self.root() else {
            return Vec::new();
        };
        let mut found = active_in(root, "");
        let instances = fs::read_dir(root.join("instances")).into_iter().flatten();
        for entry in instances.flatten() {
            let name = entry.file_name();
            found.extend(active_in(
                &entry.path(),
                &format!("{}: ", name.to_string_lossy()),
            ));
        }
        for (file, what) in [("uprobe_events", "uprobe"), ("kprobe_events", "kprobe")] {
            found.extend(lines(root, file).map(|line| format!("{what} {line}")));
        }
        found
    }
}

fn active_in(root: &Path, prefix: &str) -> Vec<String> {
    let events = lines(root, "set_event").map(|event| format!("{prefix}event {event}"));
    let tracer = lines(root, "current_tracer")
        .filter(|tracer| tracer != "nop")
        .map(|tracer| format!("{prefix}tracer {tracer}"));
    events.chain(tracer).collect()
}

fn lines(root: &Path, file: &str) -> impl Iterator<Item = String> {
    let text = fs::read_to_string(root.join(file)).unwrap_or_default();
    let lines: Vec<_> = text
        .lines()
        .filter(|l| !l.is_empty())
        .map(String::from)
        .collect();
    lines.into_iter()
}
