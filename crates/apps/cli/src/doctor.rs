//! `tiptoe doctor`: what this machine and user can do, and how to enable the rest.
//!
//! [`tiptoe_sys::host::Capabilities`] records what the kernel allows. This module adds what instruments
//! (subcommands) lose without each missing thing, and the exact command that enables that thing.

mod check_result;
mod fix;
mod print;
mod rows;
#[cfg(test)]
mod schema;
mod verdict;

use std::io;
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use tiptoe_event::PrintableJson;
use tiptoe_report::Options;
use tiptoe_sys::host::tracers::{self, Scan};
use tiptoe_sys::host::{Capabilities, Process};

use check_result::{CheckResult, Instrument};
use verdict::Verdict;

use crate::failure::Failure;
use crate::output::Output;
use crate::terminal;

pub const DOCTOR_EXAMPLES: &str = "\
Examples:
  tiptoe doctor               what works here, and how to enable the rest
  tiptoe doctor probe lock    the exit status is 1 if one of them does not work
  sudo tiptoe doctor --fix    enable what root can enable";

/// `tiptoe doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Instruments that must work here: probe, watch, lock, stat
    ///
    /// The exit status is 1 if one of them does not work.
    #[arg(value_name = "INSTRUMENT", value_enum, hide_possible_values = true)]
    pub needed: Vec<Instrument>,

    /// Enable what root can enable
    ///
    /// tracefs, cgroups and sysctls. Each command is printed before it runs.
    #[arg(long, conflicts_with = "json")]
    pub fix: bool,

    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
}

const NEEDED_IS_MISSING: u8 = 1;

/// The report of `tiptoe doctor`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct DoctorReport {
    #[serde(flatten)]
    verdict: Verdict,
    /// The version of tiptoe that made the report.
    tiptoe: &'static str,
    /// The release of the running kernel.
    kernel: String,
    /// The effective user.
    uid: u32,
    /// The effective capabilities, as `cap_perfmon`.
    capabilities: Vec<&'static str>,
    /// The checks, the most important first.
    checks: Vec<CheckResult>,
    /// Other tracers on this machine.
    foreign: Vec<OtherTracer>,
    /// Where other tracers may be that were not seen.
    unseen: ScanGaps,
}

/// What another program traces.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct OtherTracer {
    /// The process that traces; `null` if unknown.
    pid: Option<u32>,
    /// The process's name.
    comm: String,
    /// What it traces, and how.
    what: String,
}

/// What the scan for other tracers could not see.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ScanGaps {
    /// How many processes have descriptors that this user may not read.
    processes: usize,
    /// Whether BPF programs without a process could not be listed.
    bpf: bool,
    /// Whether probes in tracefs could not be listed.
    tracefs: bool,
    /// Whether processes outside this pid namespace may exist.
    other_pid_namespaces: bool,
}

/// Prints the report, or with `--fix` enables what is missing. The exit status is [`NEEDED_IS_MISSING`] if a
/// needed instrument does not work.
pub fn run(args: &DoctorArgs) -> Result<ExitCode, Failure> {
    let report = DoctorReport::new(Capabilities::get(), tracers::scan());
    if args.fix {
        return fix::run(&report.checks, report.uid);
    }
    let text = match args.json {
        true => {
            let json = serde_json::to_string_pretty(&report)?;
            PrintableJson(&json).to_string()
        }
        false => {
            let options = terminal::options_of(&io::stdout());
            tiptoe_report::printable_lines(&print::text(&report, &options))
        }
    };
    Output::Stdout.write(&(text.trim_end().to_owned() + "\n"))?;
    let has = |needed: &Instrument| report.verdict.can.contains(needed);
    Ok(match args.needed.iter().all(has) {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(NEEDED_IS_MISSING),
    })
}

/// Returns the report for publication: other tracers are only counted, because their names and paths may be
/// private.
pub fn text_for_others() -> String {
    let mut report = DoctorReport::new(Capabilities::get(), tracers::scan());
    report.foreign = match report.foreign.len() {
        0 => Vec::new(),
        count => vec![OtherTracer {
            pid: None,
            comm: format!("{count} found"),
            what: "names and process ids are left out".to_owned(),
        }],
    };
    tiptoe_report::printable_lines(&print::text(&report, &Options::default()))
}

impl DoctorReport {
    fn new(can: &Capabilities, scan: Scan) -> Self {
        let uid = Process::current().status().map_or(0, |s| s.uids[1]);
        let checks = rows::all(can, uid, scan.hidden_processes);
        let foreign = scan.tracers.into_iter().map(|found| OtherTracer {
            pid: found.pid,
            comm: found.comm,
            what: found.what,
        });
        Self {
            verdict: Verdict::new(can, &checks),
            tiptoe: env!("CARGO_PKG_VERSION"),
            kernel: can.kernel.clone(),
            uid,
            capabilities: can.effective.members().iter().map(|c| c.name()).collect(),
            checks,
            unseen: ScanGaps {
                processes: scan.hidden_processes,
                bpf: !scan.saw_all_bpf,
                tracefs: !scan.saw_tracefs,
                other_pid_namespaces: !can.sees_all_processes,
            },
            foreign: foreign.collect(),
        }
    }
}
