//! The kernel counts in programs that the agent (tiptoe's library) cannot serve. It counts from the first call on
//! if tiptoe knows of the obstacle beforehand, or if the agent can stop the program.

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use tiptoe_tests::process::output;
use tiptoe_tests::{ExpectedCounts, Probe, Report, command, go_target, is_root, skipped, target};

/// Starts tiptoe through other commands. The kernel must count in `program`.
fn by_kernel(
    through: &[&str],
    program: &Path,
    calls: &str,
    words: &str,
) -> (Report, ExpectedCounts) {
    let mut traced = Command::new(through[0]);
    traced.args(&through[1..]).arg(command().get_program());
    traced.args(["probe", "add", "--json", "--budget", "off", "--"]);
    let output = output(traced.arg(program).args(["1", calls]));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let report = Report::parse(&said);
    assert_eq!(report.via("kernel"), 1, "{:#}", report.value);
    let notes = report.value["notes"].to_string();
    assert!(notes.contains(words), "no `{words}` in {notes}");
    (
        report,
        ExpectedCounts::parse(&String::from_utf8_lossy(&output.stdout)),
    )
}

/// The agent reports its failure, and stops the program until the kernel counts.
#[test]
fn an_agent_without_memory() {
    let (report, expected) = by_kernel(
        &["prlimit", "--data=24000000"],
        &target("hot"),
        "1000",
        "could not begin: Cannot allocate memory",
    );
    assert_eq!(report.count("add"), expected.0["add"]);
}

/// A setuid program's loader accepts no agent, so tiptoe offers none.
#[test]
fn a_program_of_another_user() {
    if !is_root() {
        return skipped("setuid", "needs root");
    }
    let program = std::env::temp_dir().join(format!("tiptoe-setuid-{}", std::process::id()));
    std::fs::copy(target("hot"), &program).expect("a copy");
    chown(&program, Some(65534), None).expect("a file of another user");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o4755)).expect("setuid");
    let (report, expected) = by_kernel(
        &["env"],
        &program,
        "1000",
        "it is setuid and runs with another user's rights",
    );
    std::fs::remove_file(&program).expect("our own copy");
    assert_eq!(report.count("add"), expected.0["add"]);
}

/// Regression: without `process_vm_readv` the report said that nothing was called; without `memfd_create` the kernel
/// was not tried.
#[test]
fn a_command_under_a_filter_that_refuses_a_call_of_the_agents() {
    if !is_root() {
        return skipped("uprobes", "needs root");
    }
    let without = target("without");
    for call in ["process_vm_readv", "memfd_create"] {
        let through = [without.to_str().expect("text"), call];
        let why = format!("a call that the agent needs ({call}: EPERM)");
        let (report, expected) = by_kernel(&through, &target("hot"), "1000", &why);
        assert_eq!(report.count("add"), expected.0["add"], "{call}");
    }
}

/// tiptoe cannot know beforehand that the loader ignores the agent, so early calls are not counted.
#[test]
fn a_loader_that_ignores_the_agent() {
    if !is_root() {
        return skipped("another real user", "needs root");
    }
    let through = ["setpriv", "--ruid", "65534"];
    let (report, expected) = by_kernel(
        &through,
        &target("hot"),
        "2000000",
        "earlier calls are not counted",
    );
    assert!(
        report.count("add") <= expected.0["add"],
        "{:#}",
        report.value
    );
}

/// Regression: the kernel's uprobes mistook vector instructions for jumps, so the program's strchr found nothing.
#[test]
fn a_static_program_whose_string_functions_begin_with_vector_instructions() {
    if !is_root() {
        return skipped("uprobes", "needs root");
    }
    // The compiler would compute the results of built-in functions.
    let flags = ["-O1", "-fno-builtin", "-static"];
    let program = match tiptoe_tests::target_with("strings", &flags) {
        Ok(program) => program,
        Err(log) => return skipped("static programs", &log),
    };
    let name = program.file_name().and_then(|name| name.to_str());
    let spec = format!("{}:*", name.expect("text"));
    let run = Probe::new(&[spec]).run(&program, &["1000"]);
    let report = run.good();
    assert_eq!(report.count("main"), 1, "{:#}", report.value);
    let refused = report.refusals();
    let wide = |why: &&String| why.contains("EVEX") || why.contains("VEX");
    assert!(refused.keys().any(|why| wide(&why)), "{refused:?}");
}

/// Counts of Go programs cannot be split, because only the agent splits counts.
#[test]
fn counts_of_go_were_not_split_and_nothing_said_so() {
    if !is_root() {
        return skipped("uprobes", "needs root");
    }
    let program = match go_target("mixed_go", &[]) {
        Ok(program) => program,
        Err(why) => return skipped("go", &why),
    };
    for (options, is_split) in [(&[][..], false), (&["--by", "thread"], true)] {
        let run = Probe::new(&["main.deep"]).with(options).run(&program, &[]);
        let report = run.report.expect("a report");
        assert!(report.count("main.deep") > 0, "{:#}", report.value);
        let notes = report.value["notes"].to_string();
        assert_eq!(
            notes.contains("`--by` cannot split the counts"),
            is_split,
            "{notes}"
        );
    }
}

#[test]
fn calls_of_go_are_counted_once_if_a_stack_grows() {
    if !is_root() {
        return skipped("uprobes", "needs root");
    }
    let program = match go_target("mixed_go", &[]) {
        Ok(program) => program,
        Err(why) => return skipped("go", &why),
    };
    let calls: u64 = (0..8).map(|t| 2_001 + t).sum();
    for (options, is_timed) in [(&[][..], false), (&["--latency"], true)] {
        let run = Probe::new(&["main.deep"]).with(options).run(&program, &[]);
        let report = run.report.expect("a report");
        assert_eq!(report.count("main.deep"), calls, "{:#}", report.value);
        let notes = report.value["notes"].to_string();
        assert_eq!(notes.contains("do not time them"), is_timed, "{notes}");
    }
}
