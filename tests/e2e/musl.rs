//! Programs linked to musl.

use tiptoe_tests::{Probe, WaitingTarget, musl_target, skipped};

use crate::counts::check;

const FUNCTIONS: &[&str] = &["add", "down", "digits", "scale", "fill", "choose"];

fn built(flags: &[&str]) -> Option<std::path::PathBuf> {
    musl_target("hot", flags)
        .map_err(|log| skipped("musl", &log))
        .ok()
}

/// The agent (tiptoe's library) needs no other library, so any loader can load it.
#[test]
fn musl_programs_are_counted_in_process_from_their_start() {
    let Some(program) = built(&[]) else { return };
    let report = check(&program, &["4", "20000"]);
    assert_eq!(report.via("agent"), 6, "{:#}", report.value);
}

/// After the start, musl's loader accepts no library with thread-local variables.
#[test]
fn running_musl_programs_are_counted_by_the_kernel() {
    let Some(program) = built(&[]) else { return };
    let waiting = WaitingTarget::through(&["env"], &program, &["2", "1000"]);
    let report = waiting.count(&Probe::new(FUNCTIONS), FUNCTIONS);
    assert_eq!(report.via("kernel"), 6, "{:#}", report.value);
    assert!(
        report.value["notes"].to_string().contains("musl"),
        "{:#}",
        report.value
    );
}

#[test]
fn static_musl_programs_are_counted_by_the_kernel() {
    let Some(program) = built(&["-static"]) else {
        return;
    };
    let report = check(&program, &["2", "1000"]);
    assert_eq!(report.via("kernel"), 6, "{:#}", report.value);
    assert!(
        report.value["notes"].to_string().contains("static"),
        "{:#}",
        report.value
    );
}
