//! Which instruments (subcommands) work on this machine, and which features do not.

use clap::ValueEnum;
use serde::Serialize;
use tiptoe_sys::host::Capabilities;
use tiptoe_sys::host::tracefs::Tracefs;

use super::check_result::{CheckResult, Instrument, State};

/// What this user can do on this machine.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Verdict {
    /// Instruments that work in at least one way.
    pub can: Vec<Instrument>,
    /// Features that do not work.
    pub not: Vec<&'static str>,
}

/// Features, with the checks that each needs.
const FEATURES: [(&str, &[&str]); 6] = [
    ("other users' processes", &["other users' processes"]),
    ("attaching in process", &["ptrace scope"]),
    (
        "system-wide counts",
        &["perf_event_paranoid", "software counters"],
    ),
    ("counts by cgroup", &["cgroups"]),
    ("kernel locks", &["BPF programs", "BTF", "tracefs"]),
    ("hardware counters", &["hardware PMU"]),
];

impl Verdict {
    /// Returns the verdict. `rows` must contain all checks, because a check without a row would count as passed.
    pub fn new(can: &Capabilities, rows: &[CheckResult]) -> Verdict {
        let is_lacking = |name: &&str| {
            let mut rows = rows.iter().filter(|row| row.name == *name);
            rows.any(|row| row.state != State::Ok)
        };
        let features = FEATURES
            .iter()
            .filter(|(_, checks)| checks.iter().any(&is_lacking));
        let instruments = Instrument::value_variants().iter().copied();
        Verdict {
            can: instruments.filter(|it| works(can, *it)).collect(),
            not: features.map(|(feature, _)| *feature).collect(),
        }
    }

    /// Returns `you can: probe lock` and, unless everything works, `not: hardware counters`.
    pub fn parts(&self) -> (String, Option<String>) {
        let can: Vec<&str> = self.can.iter().map(|it| it.name()).collect();
        let can = match can[..] {
            [] => "nothing".to_owned(),
            _ => can.join(" "),
        };
        let not = match self.not[..] {
            [] => None,
            _ => Some(format!("not: {}", self.not.join(", "))),
        };
        (format!("you can: {can}"), not)
    }
}

/// Returns whether an instrument works in some way, for this user's own programs.
fn works(can: &Capabilities, instrument: Instrument) -> bool {
    let for_agent = [
        can.membarrier_sync_core,
        can.executable_memfd,
        can.process_vm_readv,
    ];
    let has_agent = for_agent.iter().all(Result::is_ok);
    let has_bpf = can.btf.is_ok() && can.bpf.iter().all(|(_, check)| check.is_ok());
    match instrument {
        Instrument::Probe => has_agent || can.process_uprobes.is_ok() || can.thread_uprobes.is_ok(),
        Instrument::Lock => has_agent || has_bpf && matches!(can.tracefs, Tracefs::Readable(_)),
        Instrument::Watch => can.breakpoints.is_ok() && (has_agent || has_bpf),
        Instrument::Stat => can.software_counters.is_ok() || has_bpf,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_works_is_first() {
        let verdict = |can: &[Instrument], not: &[&'static str]| {
            let (can, not) = (can.to_vec(), not.to_vec());
            let (can, not) = Verdict { can, not }.parts();
            can + &not.map_or_else(String::new, |not| format!("; {not}"))
        };
        assert_eq!(verdict(&[Instrument::Probe], &[]), "you can: probe");
        assert_eq!(
            verdict(
                &[Instrument::Probe, Instrument::Stat],
                &["kernel locks", "hardware counters"]
            ),
            "you can: probe stat; not: kernel locks, hardware counters"
        );
        assert_eq!(verdict(&[], &[]), "you can: nothing");
    }

    #[test]
    fn each_feature_has_a_check() {
        let rows = super::super::rows::all(Capabilities::get(), 1000, 0);
        for name in FEATURES.iter().flat_map(|(_, checks)| *checks) {
            assert!(rows.iter().any(|row| row.name == *name), "{name}");
        }
    }
}
