//! Probes on the ends of calls, in programs that print how often each function was entered, returned, and was left
//! without a return.

use std::path::Path;
use std::process::{Command, Output};

use tiptoe_tests::truth::{ReturnComparison, Truth};
use tiptoe_tests::{
    Probe, Process, Report, Site, each, sampled, scaled, symbols, target, target_with,
};

use crate::returns_clock::{survives, survives_unrecorded};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndsRequest {
    Entries,
    Latency,
    /// `uretprobe:` events.
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

fn run_started(program: &Path, mode: &str, comparison: ReturnComparison) {
    let arguments: Vec<&str> = mode.split_whitespace().collect();
    let alone = alone(program, &arguments);
    assert!(alone.status.success(), "alone: {}", text(&alone.stderr));
    let truth = Truth::parse(&text(&alone.stdout));
    for ask in ENDS {
        let run = ask.probe(&truth.names()).run(program, &arguments);
        assert_eq!(text(&run.stdout), text(&alone.stdout), "{ask:?}");
        ask.compare(run.good(), &truth, comparison);
    }
}

fn run_attached(program: &Path, mode: &str, comparison: ReturnComparison) {
    let arguments: Vec<&str> = mode.split_whitespace().collect();
    let alone = alone(program, &arguments);
    let truth = Truth::parse(&text(&alone.stdout));
    for ask in ENDS {
        let mut process = Process::waiting(program, &arguments);
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

fn started(program: &Path, modes: &[&str]) {
    let enough = ReturnComparison::Enough;
    each(modes, |mode| run_started(program, mode, enough));
}

fn both(program: &Path, modes: &[&str]) {
    started(program, modes);
    let enough = ReturnComparison::Enough;
    each(sampled(modes), |mode| run_attached(program, mode, enough));
}

fn bounded(program: &Path, modes: &[&str]) {
    let bounded = ReturnComparison::Bounded;
    each(modes, |mode| run_started(program, mode, bounded));
    each(sampled(modes), |mode| run_attached(program, mode, bounded));
}

fn everything(program: &Path, modes: &[&str]) {
    // `Returns` is not tested with libc, because it uses the same code as `Latency`.
    let whole: [(EndsRequest, &[&str]); 3] = [
        (EndsRequest::Latency, &["*", "libc.so.6:*"]),
        (EndsRequest::Latency, &["*"]),
        (EndsRequest::Returns, &["*"]),
    ];
    each(modes, |mode| {
        let arguments: Vec<&str> = mode.split_whitespace().collect();
        let alone = alone(program, &arguments);
        for (ask, specs) in sampled(&whole) {
            let run = ask.probe(specs).run(program, &arguments);
            assert_eq!(text(&run.stdout), text(&alone.stdout), "{ask:?} {specs:?}");
            run.good();
        }
    });
}

fn everything_of_some(program: &Path, modes: &[&str]) {
    let some: Vec<&str> = sampled(modes).copied().collect();
    everything(program, &some);
}

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

const THROWS: &[&str] = &[
    "above",
    "below",
    "rethrown",
    "nested",
    "deep",
    "through_c",
    "kept",
    "threads",
    "fibers",
    "signalled",
    "everything",
];
const CANCELS: &[&str] = &["exit", "cond", "read", "pause", "test", "async", "main"];
const VIEWS: &[&str] = &["backtrace", "symbols", "unwind", "third", "deep"];
const FORCED: &[&str] = &["end", "jumped", "refused", "many", "threads", "handled"];
const LOOKS: &[&str] = &["own", "above", "backtrace", "unwinder", "next", "generated"];

/// Makes a test of each name. A row has the function that runs the target, the target with its flags, and the modes
/// (strings of arguments).
macro_rules! programs {
    ($($(#[$about:meta])* $name:ident: $($how:ident [$target:literal $(, $flag:literal)*] $modes:expr),+;)*) => {$(
        $(#[$about])*
        #[test]
        fn $name() {
            $($how(&target_with($target, &[$($flag),*]).unwrap_or_else(|log| panic!("{log}")), $modes);)+
        }
    )*};
}

programs! {
    every_kind_of_value: both ["ret_values"] &[&scaled(100_000).to_string()];
    every_register_survives_a_return: both ["ret_registers"] &[&scaled(100_000).to_string()];
    variadic_calls_red_zones_small_stacks_and_blocked_signals:
        both ["ret_calls"] &["variadic", "leaf", "small_stack", "blocked"];
    children_end_for_themselves:
        started ["children"] &["fork 1000", "_Fork 1000", "clone 1000", "vfork 1000", "posix_spawn 1000"];
    signals_stay_the_programs: started ["signals"] &[
        "old_handler", "own_faults", "on_its_stack", "blocked", "blocked_thread", "ignored", "waited", "deadly",
    ];
    #[ignore = "nightly: all modes of many programs"]
    programs_of_every_shape:
        started ["hot"] &[&format!("4 {}", scaled(1_000_000))],
        started ["shapes"] &["1000"], started ["registers"] &["1000"], started ["abi"] &["1000"],
        started ["names"] &["1000"], started ["ferris"] &["1000"], started ["main_exits"] &["1000"],
        started ["ifunc"] &["1000"], started ["exec"] &["1000"], started ["churn"] &["20000"];

    /// Regression: `dladdr` found no function at the return address of a followed (timed) call.
    callers_are_found_as_without_a_tracer:
        everything ["ret_caller", "-O2"] LOOKS, everything_of_some ["ret_caller", "-O0"] LOOKS;
    backtraces_of_a_program_are_unchanged: both ["ret_trace"] VIEWS;
    backtraces_by_an_unwinder_that_is_loaded_later: both ["ret_trace", "-static-libgcc", "-static-libstdc++"] VIEWS;
    #[ignore = "nightly: as backtraces_of_a_program_are_unchanged"]
    rusts_own_backtraces: both ["ret_backtrace"] &[""], everything ["ret_backtrace"] &[""];

    longjmp_leaves_probed_frames: both ["ret_jump"] &["deep", "repeated", "within", "layered", "threads"];
    /// The compiler's setjmp and longjmp call no library, so no hook sees the jump.
    the_compilers_own_longjmp: both ["ret_jump"] &["builtin"];
    siglongjmp_leaves_handlers: both ["ret_jump"] &["handler", "altstack"];
    /// No function is entered or returns after the jump, so the report must find the left frames by other means.
    a_jump_is_the_last_event_of_a_thread: both ["ret_jump"] &["last"];
    longjmp_with_its_own_checks: both ["ret_jump", "-D_FORTIFY_SOURCE=2"] &["deep", "within", "layered"];
    sibling_calls: both ["ret_tail"] &["chain", "cycles"];
    /// A thread's table has no room for so many calls. The stack must not grow, and calls without room are only
    /// counted.
    #[ignore = "nightly: a million calls"]
    a_million_sibling_calls: bounded ["ret_tail"] &["cycle"];
    recursion_a_hundred_thousand_deep: both ["ret_tail"] &["recursion", "mutual"];
    #[ignore = "nightly: all functions of many programs"]
    all_functions_of_programs_that_leave_frames:
        everything ["ret_jump"] &["within", "layered", "threads", "builtin", "altstack"],
        everything ["ret_coro"] &["mapped", "copied", "travels", "linked"],
        everything ["ret_tail"] &["cycles", "recursion"];

    coroutines_switch_stacks: both ["ret_coro"] &["mapped", "heap", "switched", "nested", "linked"];
    coroutines_move_between_threads: both ["ret_coro"] &["travels"];
    coroutines_copy_their_stacks: both ["ret_coro"] &["copied"];
    coroutines_are_abandoned: both ["ret_coro"] &["abandoned"];

    processes_fork_and_spawn_inside: both ["ret_ends"] &["fork", "vfork", "spawn"];
    processes_end_inside: both ["ret_ends"] &["exit", "_exit", "others"], started ["ret_ends"] &["exec"];
    threads_end_inside: both ["ret_ends"] &["thread_exit", "detached", "raw_exit"];
    all_functions_of_programs_that_end_inside:
        everything ["ret_ends"] &["fork", "vfork", "spawn", "exit", "raw_exit", "detached"];
    /// C's cleanup handlers find their frames by address.
    #[ignore = "nightly: as threads_end_inside_cpp"]
    threads_end_inside_c: both ["ret_cancel"] CANCELS;
    #[ignore = "nightly: one of five builds of one program"]
    threads_end_inside_c_with_unwinding: both ["ret_cancel", "-fexceptions"] CANCELS;
    threads_end_inside_cpp: both ["ret_cancel_cc"] CANCELS;

    exceptions_leave_probed_frames: both ["ret_throw"] THROWS;
    /// libgcc's unwinder is in the program, where no hook can find it by its library.
    #[ignore = "nightly: one of five builds of one program"]
    exceptions_with_a_statically_linked_unwinder: both ["ret_throw", "-static-libgcc", "-static-libstdc++"] THROWS;
    #[ignore = "nightly: one of five builds of one program"]
    exceptions_in_a_stripped_program:
        both ["ret_throw", "-static-libgcc", "-static-libstdc++", "-s", "-rdynamic"] &["everything"],
        both ["ret_throw", "-s", "-rdynamic"] &["everything"];
    #[ignore = "nightly: one of five builds of one program"]
    exceptions_in_other_builds:
        started ["ret_throw", "-no-pie", "-fno-pie"] &["fibers", "through_c"],
        started ["ret_throw", "-fcf-protection=full"] &["fibers", "through_c"],
        started ["ret_throw", "-O0"] &["fibers", "through_c"],
        started ["ret_throw", "-fomit-frame-pointer", "-Os"] &["fibers", "through_c"];
    panics_leave_probed_frames: both ["ret_panic"] &[""];
    a_stop_function_was_called_for_return_thunks: both ["ret_forced"] FORCED;
    #[ignore = "nightly: one of several builds of one program"]
    stop_functions_with_a_statically_linked_unwinder:
        both ["ret_forced", "-static-libgcc", "-static-libstdc++"] FORCED;
    #[ignore = "nightly: all functions of many programs"]
    all_functions_of_programs_that_unwind:
        everything ["ret_throw"] &["everything", "fibers"],
        everything ["ret_throw", "-static-libgcc", "-static-libstdc++"] &["everything"],
        everything ["ret_panic"] &[""], everything ["ret_cancel_cc"] &["exit"], everything ["ret_trace"] VIEWS;

    /// Functions that must not be timed, such as setjmp, are recognized by their code, not by their name.
    #[ignore = "nightly: every function of a program, as all_functions_of_programs_that_end_inside"]
    all_functions_of_programs_that_return_twice:
        everything ["ret_twice"] &["_setjmp", "__sigsetjmp", "getcontext", "vfork", "dlsym", "dlopen"];

    a_program_that_forbade_itself_the_clock_was_killed_by_a_return: survives ["ret_clock"] &["inside", "own"];
    each_thread_forbids_itself_the_clock_and_new_threads_inherit_that: survives ["ret_clock"] &["threads"];
    a_forked_child_that_forbids_itself_the_clock_returns: survives ["ret_clock"] &["forks"];
    /// No hook sees how the clock is forbidden. `--record` is left out, because its generated code reads the clock
    /// unchecked.
    a_thread_may_have_forbidden_itself_the_clock_before_its_first_call: survives_unrecorded ["ret_clock"] &["before"];
}

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
    let run = Probe::new(&["add", "uprobe:add", "ad?"]).run(&target("hot"), &["1", "1000"]);
    assert_eq!(run.good().count("add"), 1000);
    assert!(run.good().value["refusals"].is_null());
}
