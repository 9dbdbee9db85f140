//! `tiptoe doctor`: what this machine and this user can do, and what would change it.
//!
//! The facts come from one table that the kernel answered
//! ([`tiptoe_sys::host::Capabilities`]); here they are turned into words: what
//! each missing thing limits, and the exact command that brings it.

mod fix;
mod print;
mod rows;
mod verdict;

use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use tiptoe_event::PrintableJson;
use tiptoe_sys::host::tracers::{self, Scan};
use tiptoe_sys::host::{Capabilities, Process};

use rows::{Instrument, Row};
use verdict::Verdict;

use crate::failure::Failure;
use crate::output::Output;

/// `tiptoe doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Instruments that have to work: the exit status is 1 if one does not
    #[arg(value_name = "INSTRUMENT", value_enum)]
    pub needed: Vec<Instrument>,

    /// Switch on what root can switch on: tracefs, cgroups, sysctls; each command is printed before it runs
    #[arg(long, conflicts_with = "json")]
    pub fix: bool,

    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// The exit status if an instrument that was asked for does not work.
const MISSING: u8 = 1;

/// Everything that is printed, in either form.
#[derive(Debug, Serialize)]
struct Report {
    #[serde(flatten)]
    verdict: Verdict,
    tiptoe: &'static str,
    kernel: String,
    uid: u32,
    capabilities: Vec<&'static str>,
    checks: Vec<Row>,
    foreign: Vec<Foreign>,
    unseen: Unseen,
}

/// Somebody else's tracing.
#[derive(Debug, Serialize)]
struct Foreign {
    pid: Option<u32>,
    comm: String,
    what: String,
}

/// What could not be looked at for it.
#[derive(Debug, Serialize)]
struct Unseen {
    processes: usize,
    bpf: bool,
    tracefs: bool,
    other_pid_namespaces: bool,
}

/// Prints the table, or the same as JSON.
pub fn run(args: &DoctorArgs) -> Result<ExitCode, Failure> {
    let report = Report::new(Capabilities::get(), tracers::scan());
    if args.fix {
        return fix::run(&report.checks, report.uid);
    }
    let text = match args.json {
        true => {
            let json = serde_json::to_string_pretty(&report);
            let json =
                json.map_err(|error| Failure::new(format!("the table has no JSON form: {error}")))?;
            PrintableJson(&json).to_string()
        }
        false => tiptoe_report::printable_lines(&print::text(&report)),
    };
    Output::Stdout.write(&(text.trim_end().to_owned() + "\n"))?;
    let has = |needed: &Instrument| report.verdict.can.contains(needed);
    Ok(match args.needed.iter().all(has) {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(MISSING),
    })
}

impl Report {
    fn new(can: &Capabilities, scan: Scan) -> Self {
        let uid = Process::current().status().map_or(0, |s| s.uids[1]);
        let checks = rows::all(can, uid);
        Self {
            verdict: Verdict::new(can, &checks),
            tiptoe: env!("CARGO_PKG_VERSION"),
            kernel: can.kernel.clone(),
            uid,
            capabilities: can.effective.held().iter().map(|c| c.name()).collect(),
            checks,
            unseen: Unseen {
                processes: scan.hidden_processes,
                bpf: !scan.saw_all_bpf,
                tracefs: !scan.saw_tracefs,
                other_pid_namespaces: !can.sees_all_processes,
            },
            foreign: scan.tracers.into_iter().map(Foreign::from).collect(),
        }
    }
}

impl From<tiptoe_sys::host::ForeignTracer> for Foreign {
    fn from(found: tiptoe_sys::host::ForeignTracer) -> Self {
        Self {
            pid: found.pid,
            comm: found.comm,
            what: found.what,
        }
    }
}
