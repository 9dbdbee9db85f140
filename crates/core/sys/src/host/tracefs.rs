//! tracefs: the tracing that is enabled through the kernel's files.
//!
//! Events of perf_event_open do not appear here, nor these events there.

use std::prelude::rust_2024::*;

use std::fs;
use std::path::{Path, PathBuf};

/// Whether tracefs is mounted and readable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tracefs {
    /// Not mounted in the usual places.
    NotMounted,
    /// Mounted here, but not readable for this user.
    Unreadable(PathBuf),
    /// Mounted here, and readable.
    Readable(PathBuf),
}

/// A uprobe that was defined through tracefs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArmedUprobe {
    /// Its name, `group/event`.
    pub name: String,
    /// The file.
    pub binary: PathBuf,
    /// The offset in the file.
    pub offset: u64,
    /// Whether it fires on the function's return.
    pub on_return: bool,
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

    /// Returns the mount, if it is readable.
    pub fn root(&self) -> Option<&Path> {
        match self {
            Self::Readable(root) => Some(root),
            _ => None,
        }
    }

    /// Returns everything that is enabled: events, probes and tracers, one line each.
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

    /// Returns the uprobes defined through tracefs, enabled or not.
    pub fn uprobes(&self) -> Vec<ArmedUprobe> {
        let Some(root) = self.root() else {
            return Vec::new();
        };
        lines(root, "uprobe_events")
            .filter_map(|line| uprobe(&line))
            .collect()
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

/// Parses a line of `uprobe_events`: `p:group/event /path:0x1234(0xREF) args`.
fn uprobe(line: &str) -> Option<ArmedUprobe> {
    let (head, rest) = line.split_once(' ')?;
    let (kind, name) = head.split_once(':')?;
    // The path may contain blanks and colons, so its end is the last `:0x`.
    let (binary, tail) = rest.rsplit_once(":0x")?;
    let end = tail
        .find(|c: char| !c.is_ascii_hexdigit())
        .unwrap_or(tail.len());
    Some(ArmedUprobe {
        name: name.into(),
        binary: binary.into(),
        offset: u64::from_str_radix(&tail[..end], 16).ok()?,
        on_return: kind.starts_with('r') || tail[end..].starts_with("%return"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, binary: &str, offset: u64, on_return: bool) {
        let probe = uprobe(line).expect(line);
        assert_eq!(
            (&*probe.name, probe.offset),
            ("uprobes/f", offset),
            "{line}"
        );
        assert_eq!(probe.binary, Path::new(binary), "{line}");
        assert_eq!(probe.on_return, on_return, "{line}");
    }

    #[test]
    fn uprobe_lines() {
        check(
            "p:uprobes/f /bin/ls:0x00000000000012ab",
            "/bin/ls",
            0x12ab,
            false,
        );
        check("r:uprobes/f /bin/ls:0x12ab", "/bin/ls", 0x12ab, true);
        check("p:uprobes/f /bin/ls:0x12ab%return", "/bin/ls", 0x12ab, true);
        check("p:uprobes/f /a b:c:0x12(0x34) a=%di", "/a b:c", 0x12, false);
        assert_eq!(uprobe("p:uprobes/f"), None);
        assert_eq!(uprobe("p:uprobes/f /bin/ls:0x"), None);
    }
}
