//! Finds other tracers, because a measurement includes their cost. Searches other processes' descriptors, BPF
//! objects without a visible process (pinned ones), and tracefs. The kernel does not report what another
//! tracer's perf event counts.

use std::prelude::rust_2024::*;

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::fs;
use std::path::Path;

use super::bpf::{self, Object};
use super::procfs::Process;
use super::tracefs::Tracefs;

const PERF_EVENT: &str = "perf event";
const CGROUPS: &str = "/sys/fs/cgroup";

/// A tracer other than tiptoe.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ForeignTracer {
    /// The process, if any.
    pub pid: Option<u32>,
    /// The process's name, or `kernel`.
    pub comm: String,
    /// What the tracer holds: `8 perf events`, `event sched:sched_switch`.
    pub what: String,
}

/// The result of [`scan`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scan {
    /// The tracers found, grouped by process.
    pub tracers: Vec<ForeignTracer>,
    /// Processes whose descriptors this user may not see.
    pub hidden_processes: usize,
    /// Whether BPF objects without a process could be listed.
    pub saw_all_bpf: bool,
    /// Whether tracefs was readable.
    pub saw_tracefs: bool,
}

/// Returns all tracers that this user can see.
pub fn foreign_tracers() -> Vec<ForeignTracer> {
    scan().tracers
}

/// Searches for all tracers that this user can see.
pub fn scan() -> Scan {
    let mut scan = Scan::default();
    let mut seen = HashSet::new();
    let me = Process::current();
    for process in Process::all().unwrap_or_default() {
        if process != me {
            scan_process(process, &mut scan, &mut seen);
        }
    }
    scan_bpf(&mut scan, &seen);
    scan_tracefs(&mut scan);
    scan
}

impl fmt::Display for ForeignTracer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pid {
            Some(pid) => write!(f, "{} ({pid}): {}", self.comm, self.what),
            None => write!(f, "{}: {}", self.comm, self.what),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct BpfObject {
    object: Object,
    id: u32,
}

fn scan_process(process: Process, scan: &mut Scan, seen: &mut HashSet<BpfObject>) {
    let proc = format!("/proc/{}", process.pid());
    let Ok(entries) = fs::read_dir(format!("{proc}/fd")) else {
        scan.hidden_processes += usize::from(Path::new(&proc).exists());
        return;
    };
    let mut held = BTreeMap::<String, usize>::new();
    let mut cgroups = Vec::new();
    let mut hidden = false;
    for entry in entries.flatten() {
        let info = format!("{proc}/fdinfo/{}", entry.file_name().to_string_lossy());
        match fs::read_link(entry.path()) {
            Ok(target) => {
                if target.starts_with(CGROUPS) {
                    cgroups.push(format!("perf event, of cgroup {}", target.display()));
                }
                if let Some(what) = tracing(&target.to_string_lossy(), &info, seen) {
                    *held.entry(what).or_default() += 1;
                }
            }
            Err(e) => hidden |= e.kind() == std::io::ErrorKind::PermissionDenied,
        }
    }
    scan.hidden_processes += usize::from(hidden);
    name_cgroups(&mut held, cgroups);
    let comm = process.comm().unwrap_or_default();
    scan.tracers
        .extend(held.into_iter().map(|(what, count)| ForeignTracer {
            pid: Some(process.pid()),
            comm: comm.clone(),
            what: if count == 1 {
                what
            } else {
                format!("{count} x {what}")
            },
        }));
}

/// Names a process's perf events by the cgroup directories that it keeps open, because the kernel does not show an
/// event's cgroup.
fn name_cgroups(held: &mut BTreeMap<String, usize>, cgroups: Vec<String>) {
    if !cgroups.is_empty()
        && let Some(events) = held.remove(PERF_EVENT)
    {
        held.extend(cgroups.into_iter().map(|what| (what, events)));
    }
}

fn tracing(target: &str, info: &str, seen: &mut HashSet<BpfObject>) -> Option<String> {
    let text = || fs::read_to_string(info).unwrap_or_default();
    match target {
        "anon_inode:[perf_event]" => Some(PERF_EVENT.into()),
        "anon_inode:bpf-prog" => describe(&text(), seen),
        "anon_inode:bpf_link" | "anon_inode:bpf-link" => describe(&text(), seen),
        _ => None,
    }
}

fn describe(fdinfo: &str, seen: &mut HashSet<BpfObject>) -> Option<String> {
    let field = |key| {
        let mut lines = fdinfo.lines().filter_map(|l| l.split_once(':'));
        lines
            .find(|(k, _)| *k == key)
            .map(|(_, value)| value.trim())
    };
    let mut see = |object, key| {
        let id = field(key).and_then(|id| id.parse().ok()).unwrap_or(0);
        seen.insert(BpfObject { object, id });
    };
    see(Object::Program, "prog_id");
    if let Some(kind) = field("link_type") {
        let traces = ["raw_tracepoint", "tracing", "perf", "kprobe", "uprobe"];
        see(Object::Link, "link_id");
        traces.iter().find(|t| kind.starts_with(*t))?;
        let point = field("tp_name")
            .map(|n| format!(" on {n}"))
            .unwrap_or_default();
        return Some(format!("BPF {kind} link{point}"));
    }
    let kind = match field("prog_type")? {
        "2" => "kprobe or uprobe",
        "5" => "tracepoint",
        "7" => "perf event",
        "17" | "24" => "raw tracepoint",
        "26" => "tracing",
        _ => return None,
    };
    Some(format!("BPF {kind} program"))
}

/// Lists BPF objects that no process holds, links before their programs, because only links name the traced place.
fn scan_bpf(scan: &mut Scan, seen: &HashSet<BpfObject>) {
    let mut seen = seen.clone();
    for object in [Object::Link, Object::Program] {
        let mut id = 0;
        loop {
            match bpf::next_id(object, id) {
                Ok(next) => id = next,
                Err(e) => {
                    scan.saw_all_bpf = e.raw_os_error() == Some(libc::ENOENT);
                    break;
                }
            }
            if seen.contains(&BpfObject { object, id }) {
                continue;
            }
            let info = bpf::fdinfo(object, id).unwrap_or_default();
            if let Some(what) = describe(&info, &mut seen) {
                scan.tracers.push(kernel(what));
            }
        }
    }
}

fn scan_tracefs(scan: &mut Scan) {
    let tracefs = Tracefs::detect();
    scan.saw_tracefs = tracefs.root().is_some();
    scan.tracers
        .extend(tracefs.active().into_iter().map(kernel));
}

fn kernel(what: String) -> ForeignTracer {
    ForeignTracer {
        pid: None,
        comm: "kernel".into(),
        what,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(fdinfo: &str, what: Option<&str>) {
        let mut seen = HashSet::new();
        assert_eq!(describe(fdinfo, &mut seen).as_deref(), what, "{fdinfo}");
    }

    #[test]
    fn only_what_traces_is_named() {
        check(
            "pos:\t0\nprog_type:\t5\nprog_id:\t9\n",
            Some("BPF tracepoint program"),
        );
        check("pos:\t0\nprog_type:\t8\nprog_id:\t9\n", None);
        check(
            "link_type:\traw_tracepoint\nlink_id:\t1\nprog_id:\t9\ntp_name:\tsched_switch\n",
            Some("BPF raw_tracepoint link on sched_switch"),
        );
        check("link_type:\tcgroup\nlink_id:\t1\nprog_id:\t9\n", None);
        check("", None);
    }

    #[test]
    fn perf_events_go_with_the_cgroup_that_is_open() {
        let mut held = BTreeMap::from([(PERF_EVENT.to_string(), 4)]);
        name_cgroups(
            &mut held,
            vec!["perf event, of cgroup /sys/fs/cgroup/a".into()],
        );
        assert_eq!(held.get("perf event, of cgroup /sys/fs/cgroup/a"), Some(&4));
        assert_eq!(held.len(), 1);
        let mut nothing = BTreeMap::new();
        name_cgroups(&mut nothing, vec!["x".into()]);
        assert!(nothing.is_empty());
    }

    #[test]
    fn tiptoes_own_objects_are_not_listed() {
        let me = std::process::id();
        assert!(foreign_tracers().iter().all(|t| t.pid != Some(me)));
    }
}
