//! Probes on the ends of calls. The programs return all kinds of values in all ways, and print how often each
//! function was entered, returned and left.

use std::path::Path;
use std::process::{Command, Output};

use tiptoe_tests::truth::{ReturnComparison, Truth};
use tiptoe_tests::{Probe, Process, Report, Site, sampled, scaled, symbols, target, target_with};

use crate::returns_unwind::everything;

/// What is requested for each function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndsRequest {
    Entries,
    /// `--latency`: entries and ends.
    Latency,
    /// `uretprobe:` specs, which count only returns.
    Returns,
}

pub const ENDS: [EndsRequest; 2] = [EndsRequest::Latency, EndsRequest::Returns];
pub const EVERY: [EndsRequest; 3] = [
    EndsRequest::Entries,
    EndsRequest::Latency,
    EndsRequest::Returns,
];

impl EndsRequest {
    pub fn probe(self, functions: &[&str]) -> Probe {
        match self {
            EndsRequest::Entries => Probe::new(functions),
            EndsRequest::Latency => Probe::new(functions).with(&["--latency"]),
            EndsRequest::Returns => {
                let spec = |function: &&str| format!("uretprobe:{function}");
                Probe::new(&functions.iter().map(spec).collect::<Vec<_>>())
            }
        }
    }

    pub fn compare(self, report: &Report, truth: &Truth, comparison: ReturnComparison) {
        match self {
            EndsRequest::Entries => report.assert_exact(&truth.entries()),
            EndsRequest::Latency | EndsRequest::Returns => report.assert_returns(truth, comparison),
        }
    }
}

pub fn alone(program: &Path, arguments: &[&str]) -> Output {
    let output = Command::new(program).args(arguments).output();
    output.expect("the target runs")
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs the program under tiptoe with every request: the output is as without tiptoe, and all numbers are exact.
pub fn started(program: &Path, arguments: &[&str], comparison: ReturnComparison) {
    let alone = alone(program, arguments);
    assert!(alone.status.success(), "alone: {}", text(&alone.stderr));
    let truth = Truth::parse(&text(&alone.stdout));
    for ask in ENDS {
        let run = ask.probe(&truth.names()).run(program, arguments);
        assert_eq!(text(&run.stdout), text(&alone.stdout), "{ask:?}");
        ask.compare(run.good(), &truth, comparison);
    }
}

/// Attaches to the waiting program, with every request in turn.
pub fn attached(program: &Path, arguments: &[&str], comparison: ReturnComparison) {
    let alone = alone(program, arguments);
    let truth = Truth::parse(&text(&alone.stdout));
    for ask in ENDS {
        let mut process = Process::waiting(program, arguments);
        let sites = sites(&process, program, &truth.names());
        let tracer = ask.probe(&truth.names()).attach(&[process.pid()]);
        sites.iter().for_each(Site::wait_probed);
        process.go();
        let (output, status) = process.finish();
        assert!(status.success(), "{ask:?}: {status}");
        assert_eq!(output, text(&alone.stdout), "{ask:?}");
        ask.compare(&tracer.finish(), &truth, comparison);
    }
}

/// Checks the program started by tiptoe and attached to.
pub fn check(program: &Path, arguments: &[&str]) {
    println!("{} {arguments:?}", program.display());
    started(program, arguments, ReturnComparison::Enough);
    attached(program, arguments, ReturnComparison::Enough);
}

pub fn modes(program: &Path, modes: &[&str]) {
    for mode in modes {
        println!("{} {mode}", program.display());
        started(program, &[mode], ReturnComparison::Enough);
    }
    for mode in sampled(modes) {
        attached(program, &[mode], ReturnComparison::Enough);
    }
}

/// Returns the probes' locations, for functions that their own names find.
pub fn sites(process: &Process, program: &Path, functions: &[&str]) -> Vec<Site> {
    let known = symbols(program);
    let functions = functions
        .iter()
        .filter(|name| known.iter().any(|(known, _)| known == *name));
    let sites: Vec<Site> = functions
        .map(|name| Site::new(process.pid(), program, name))
        .collect();
    assert!(
        !sites.is_empty(),
        "no function of {} has a plain name",
        program.display()
    );
    sites
}

#[test]
fn every_kind_of_value() {
    check(&target("ret_values"), &[&scaled(100_000).to_string()]);
}

#[test]
fn every_register_survives_a_return() {
    check(&target("ret_registers"), &[&scaled(100_000).to_string()]);
}

#[test]
fn variadic_calls_red_zones_small_stacks_and_blocked_signals() {
    modes(
        &target("ret_calls"),
        &["variadic", "leaf", "small_stack", "blocked"],
    );
}

/// Regression: `dladdr` found no function at a followed call's return address.
#[test]
fn callers_are_found_as_without_a_tracer() {
    let modes = ["own", "above", "backtrace", "unwinder", "next", "generated"];
    let at = |level| target_with("ret_caller", &[level]).expect("it builds");
    modes
        .iter()
        .for_each(|mode| everything(&at("-O2"), &[mode]));
    sampled(&modes).for_each(|mode| everything(&at("-O0"), &[mode]));
}

/// Functions whose return address is read are only counted, with the reason.
#[test]
fn functions_that_read_a_return_address_are_counted() {
    let counts = |mode: &str, functions: &[&str], why: &str| {
        let program = target("ret_caller");
        let run = EndsRequest::Latency.probe(functions).run(&program, &[mode]);
        let report = run.good();
        let refusals = report.value["refusals"].as_array().expect("some");
        for function in functions {
            assert!(report.count(function) > 0, "{function}");
            let is_its = |refusal: &&serde_json::Value| {
                let event = refusal["event"].as_str().unwrap_or_default();
                event.ends_with(&format!(":{function}"))
            };
            let refusal = refusals.iter().find(is_its).expect("refused");
            let reason = refusal["reason"].as_str().unwrap_or_default();
            assert!(reason.starts_with(why), "{function}: {reason}");
        }
    };
    counts("own", &["own", "own_late"], "it reads its return address");
    let jumps = "it jumps to a function that reads its return address";
    counts("own", &["jumps", "jumps_twice"], jumps);
    let calls = "it calls a function that reads its caller's return address";
    counts("above", &["middle"], calls);
}

/// Calls from generated code are only counted; calls from the program's own code are timed.
#[test]
fn calls_from_generated_code_are_only_counted() {
    for ask in ENDS {
        let run = ask
            .probe(&["looked_for"])
            .run(&target("ret_caller"), &["generated"]);
        let event = run.good().event("looked_for").expect("it is counted");
        let [returns, only_counted] = ["returns", "only_counted"].map(|key| event[key].as_u64());
        assert_eq!(
            (returns, only_counted),
            (Some(20), Some(20)),
            "{ask:?}: {event}"
        );
    }
}

/// Timed calls work in every build for which entries work.
#[test]
#[ignore = "nightly: all modes of many programs"]
fn programs_of_every_shape() {
    let hot = ["4", &scaled(1_000_000).to_string()].map(str::to_owned);
    started(
        &target("hot"),
        &[&hot[0], &hot[1]],
        ReturnComparison::Enough,
    );
    for name in [
        "shapes",
        "registers",
        "abi",
        "names",
        "ferris",
        "main_exits",
        "ifunc",
        "exec",
    ] {
        println!("{name}");
        started(&target(name), &["1000"], ReturnComparison::Enough);
    }
    started(&target("churn"), &["20000"], ReturnComparison::Enough);
}

#[test]
fn children_end_for_themselves() {
    for mode in ["fork", "_Fork", "clone", "vfork", "posix_spawn"] {
        println!("{mode}");
        started(
            &target("children"),
            &[mode, "1000"],
            ReturnComparison::Enough,
        );
    }
}

#[test]
fn signals_stay_the_programs() {
    for mode in [
        "old_handler",
        "own_faults",
        "on_its_stack",
        "blocked",
        "blocked_thread",
        "ignored",
        "waited",
        "deadly",
    ] {
        println!("{mode}");
        started(&target("signals"), &[mode], ReturnComparison::Enough);
    }
}

/// Regression: calls returned through an earlier session's trampoline, whose address another had taken.
#[test]
fn calls_returned_through_the_trampoline_of_an_earlier_session() {
    let program = target("hot");
    let functions = ["add", "down", "digits", "scale", "fill", "choose"];
    let mut process = Process::waiting(&program, &["4", "0"]);
    let sites = sites(&process, &program, &functions);
    process.go();
    for ask in EVERY.iter().cycle().take(3 * EVERY.len()) {
        let attached = ask.probe(&functions).attach(&[process.pid()]);
        attached.wait_ready();
        process.go();
        assert_eq!(process.line(), "called");
        let report = attached.interrupt();
        assert!(report.count("add") > 0, "{ask:?}: {:#}", report.value);
        sites.iter().for_each(Site::wait_original);
    }
    let (_, status) = process.finish();
    assert!(status.success(), "{status}");
}

/// Regression: a function without a findable return address was left to the kernel, or refused.
#[test]
fn entries_are_counted_where_calls_cannot_be_followed() {
    let run = Probe::new(&["carried", "plain"])
        .with(&["--latency", "--via", "agent"])
        .run(&target("carried"), &["1000"]);
    let report = run.good();
    report.assert_exact(&run.expected());
    let why = "the return address is at no known place there: only its entries are counted";
    assert_eq!(report.refusals().get(why), Some(&1), "{:#}", report.value);
    let has_times = |name| {
        report
            .event(name)
            .is_some_and(|event| event["total_ns"].is_u64())
    };
    assert_eq!(
        [has_times("carried"), has_times("plain")],
        [false, true],
        "{:#}",
        report.value
    );
}

/// Regression: of `uprobe:F uretprobe:F` only the first was counted, silently.
#[test]
fn the_second_event_of_a_function_was_dropped_silently() {
    for [first, second] in [
        ["uprobe:add", "uretprobe:add"],
        ["uretprobe:add", "uprobe:add"],
    ] {
        let run = Probe::new(&[first, second]).run(&target("hot"), &["1", "1000"]);
        let report = run.good();
        assert_eq!(report.count("add"), 1000, "{:#}", report.value);
        let refusals = report.value["refusals"].as_array();
        let [refusal] = &refusals.expect("a refusal")[..] else {
            panic!("{refusals:#?}");
        };
        let (kind, _) = second.split_once(':').expect("a kind");
        assert_eq!(refusal["event"], format!("{kind}:hot:add"));
    }
    // An event requested twice is one event.
    let run = Probe::new(&["add", "uprobe:add", "ad?"]).run(&target("hot"), &["1", "1000"]);
    assert_eq!(run.good().count("add"), 1000);
    assert!(run.good().value["refusals"].is_null());
}
