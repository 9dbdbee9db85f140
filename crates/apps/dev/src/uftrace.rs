//! The case `uftrace`: how much uftrace's recorder adds to a call of a function that is compiled for it. It cannot
//! attach, so it starts the program.

use std::process::{Command, Stdio};

use crate::assembly::{KINDS, MCOUNT};
use crate::error::Error;
use crate::options::Options;
use crate::table::{Table, TableRow};
use crate::target::{Question, Target};

/// The recorder's command, with a large buffer, because dropping records would look cheaper.
const RECORD: [&str; 5] = ["uftrace", "record", "--buffer=1m", "-d", "recorded"];

/// `plain` has the same functions, not compiled for a tracer.
pub(crate) fn add(table: &mut Table, plain: &mut Target, options: &Options) -> Result<(), Error> {
    if !installed() {
        table
            .notes
            .push("skipped: uftrace is not installed".to_owned());
        return Ok(());
    }
    let mut recorded = Target::start_under(&RECORD, &[MCOUNT])?;
    for depth in [0, 5] {
        let mut added = Vec::new();
        for _ in 0..options.rounds {
            let question = |site| Question {
                site,
                depth,
                threads: 1,
                ms: options.ms,
            };
            let before = plain.measure(question(KINDS[0]))?.ns_per_call;
            added.push(recorded.measure(question(MCOUNT))?.ns_per_call - before);
        }
        table.rows.push(TableRow {
            depth: Some(depth),
            threads: Some(1),
            sites: Some(1),
            ..TableRow::new("uftrace", &added, "ns").at("mcount")
        });
    }
    Ok(())
}

fn installed() -> bool {
    let mut version = Command::new(RECORD[0]);
    version
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    version.status().is_ok_and(|status| status.success())
}
