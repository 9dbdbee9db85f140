//! `tiptoe doctor`: what this machine and this user can do, and what would change it.
//!
//! The facts come from one table that the kernel answered
//! ([`tiptoe_sys::host::Capabilities`]); here they are turned into words: what
//! each missing thing limits, and the exact command that brings it.

mod print;
mod rows;

use std::process::ExitCode;

use serde::Serialize;
use tiptoe_event::PrintableJson;
use tiptoe_sys::host::tracers::{self, Scan};
use tiptoe_sys::host::{Capabilities, Process};

use rows::Row;

use crate::failure::Failure;
use crate::output::Output;

/// Everything that is printed, in either form.
#[derive(Debug, Serialize)]
struct Report {
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
pub fn run(json: bool) -> Result<ExitCode, Failure> {
    let report = Report::new(Capabilities::get(), tracers::scan());
    let text = match json {
        true => {
            let json = serde_json::to_string_pretty(&report);
            let json =
                json.map_err(|error| Failure::new(format!("the table has no JSON form: {error}")))?;
            PrintableJson(&json).to_string()
        }
        false => tiptoe_report::printable_lines(&print::text(&report)),
    };
    Output::Stdout.write(&(text.trim_end().to_owned() + "\n"))?;
    Ok(ExitCode::SUCCESS)
}

impl Report {
    fn new(can: &Capabilities, scan: Scan) -> Self {
        let uid = Process::current().status().map_or(0, |s| s.uids[1]);
        Self {
            tiptoe: env!("CARGO_PKG_VERSION"),
            kernel: can.kernel.clone(),
            uid,
            capabilities: can.effective.held().iter().map(|c| c.name()).collect(),
            checks: rows::all(can, uid),
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
