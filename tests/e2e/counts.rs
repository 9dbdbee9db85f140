//! For programs that print their call counts, tiptoe's counts are equal, and the output is as without tracing.

use std::path::{Path, PathBuf};
use std::process::Command;

use tiptoe_tests::{
    ExpectedCounts, Probe, Process, Report, scaled, skipped, target, target::folder, target_with,
};

pub fn check(program: &Path, arguments: &[&str]) -> Report {
    let alone = Command::new(program)
        .args(arguments)
        .output()
        .expect("the target runs");
    assert!(
        alone.status.success(),
        "alone: {}",
        String::from_utf8_lossy(&alone.stderr)
    );
    let expected = ExpectedCounts::parse(&String::from_utf8_lossy(&alone.stdout));
    let run = Probe::new(&expected.names()).run(program, arguments);
    let report = run.good().clone();
    assert_eq!(
        String::from_utf8_lossy(&run.stdout),
        String::from_utf8_lossy(&alone.stdout)
    );
    report.assert_exact(&expected);
    report
}

#[test]
fn hot_functions_in_many_threads() {
    let report = check(&target("hot"), &["8", &scaled(10_000_000).to_string()]);
    assert_eq!(report.via("agent"), 6, "{:#}", report.value);
}

#[test]
fn functions_of_every_shape() {
    let report = check(&target("shapes"), &["1000"]);
    assert!(report.refusals().is_empty(), "{:#}", report.value);
}

const CALLS: [&str; 3] = ["read", "lseek", "dup"];

fn calls_of_libc() -> Vec<String> {
    CALLS
        .iter()
        .map(|call| format!("libc.so.6:{call}"))
        .collect()
}

/// Generated code makes the overwritten system call, which the kernel must be able to restart after a signal.
#[test]
fn system_calls_that_signals_interrupt() {
    let rounds = scaled(20_000).max(1_000);
    for options in [&[][..], &["--latency"]] {
        let run = Probe::new(&calls_of_libc())
            .with(options)
            .run(&target("plain_calls"), &[&rounds.to_string()]);
        let report = run.good();
        for call in CALLS {
            let event = report.event(call).expect("it is probed");
            assert_eq!(report.entries(call), rounds, "{event:#}");
            assert!(!event["notes"].to_string().contains("trap"), "{event:#}");
        }
    }
}

#[test]
fn system_calls_that_are_patched_while_they_wait() {
    let mut process = Process::waiting(&target("plain_calls"), &["20000"]);
    process.go();
    for _ in 0..scaled(1_000).max(8) {
        let run = Probe::new(&calls_of_libc())
            .with(&["--duration", "0.02"])
            .attach_and_wait(&[process.pid()]);
        if !process.lives() {
            break;
        }
        run.good();
    }
    let (output, status) = process.finish();
    assert!(
        status.success() && output.contains("expect read 20000"),
        "{status} {output}"
    );
}

#[test]
fn every_register_survives_a_hit() {
    check(&target("registers"), &[&scaled(1_000_000).to_string()]);
}

#[test]
fn calling_conventions() {
    check(&target("abi"), &["1000"]);
}

#[test]
fn twenty_thousand_threads_start_and_end() {
    check(
        &target("churn"),
        &[&scaled(1_000_000).max(20_000).to_string()],
    );
}

#[test]
fn main_leaves_by_pthread_exit() {
    check(&target("main_exits"), &["1000"]);
}

#[test]
fn children_never_count_for_their_parent() {
    for mode in ["fork", "_Fork", "clone", "vfork", "posix_spawn"] {
        println!("{mode}");
        check(&target("children"), &[mode, "1000"]);
    }
}

#[test]
fn what_posix_spawn_does_in_the_child_is_not_the_parents() {
    let specs = ["family", "libc.so.6:dup2", "libc.so.6:posix_spawn"];
    let run = Probe::new(&specs).run(&target("children"), &["posix_spawn", "1000"]);
    let report = run.good();
    report.assert_exact(&run.expected());
    assert_eq!((report.count("posix_spawn"), report.count("dup2")), (20, 0));
}

#[test]
fn exec_ends_the_trace_of_the_old_image() {
    let report = check(&target("exec"), &["1000"]);
    assert!(
        report.value.to_string().contains("exec"),
        "the report says so: {:#}",
        report.value
    );
}

#[test]
fn libraries_are_loaded_and_unloaded() {
    let plugin = target("plugin");
    check(
        &target("dlopens"),
        &[
            plugin.to_str().expect("text"),
            &scaled(100_000).max(200).to_string(),
        ],
    );
}

/// Returns a program whose library calls a function in a constructor.
pub fn with_constructors() -> PathBuf {
    let early = target("early");
    let rpath = format!("-Wl,-rpath,{}", folder().display());
    let flags = [early.to_str().expect("text"), &rpath];
    target_with("constructors", &flags).expect("it builds")
}

#[test]
fn constructors_of_libraries_count() {
    let program = with_constructors();
    for via in ["agent", "kernel"] {
        let probe = Probe::new(&["libearly.so:early_work", "own_work"]);
        let run = probe.with(&["--via", via]).run(&program, &[]);
        run.good().assert_exact(&run.expected());
    }
}

#[test]
fn the_chosen_ifunc_counts() {
    check(&target("ifunc"), &["1000"]);
}

#[test]
fn cpp_names_and_exceptions() {
    check(&target("names"), &["1000"]);
}

#[test]
fn rust_names_and_panics() {
    check(&target("ferris"), &["1000"]);
}

#[test]
fn other_ways_to_build() {
    let jumps: &[&[&str]] = &[
        &["-no-pie", "-fno-pie"],
        &["-fcf-protection=full"],
        &["-O0"],
        &["-O3"],
        &["-Os"],
    ];
    for flags in jumps {
        println!("{flags:?}");
        let report = check(
            &target_with("hot", flags).expect("it builds"),
            &["2", "1000"],
        );
        assert_eq!(report.via("agent"), 6, "{flags:?}: {:#}", report.value);
    }
}

#[test]
fn the_kernel_takes_static_and_32_bit_programs() {
    for flag in ["-static", "-m32"] {
        match target_with("hot", &[flag]) {
            Err(log) => skipped(&format!("hot{flag}"), &log),
            Ok(program) => {
                let report = check(&program, &["2", "1000"]);
                assert_eq!(report.via("kernel"), 6, "{flag}: {:#}", report.value);
            }
        }
    }
}

#[test]
fn via_kernel_counts_the_same() {
    let program = target("hot");
    let names = ["add", "down", "digits", "scale", "fill", "choose"];
    let run = Probe::new(&names)
        .with(&["--via", "kernel"])
        .run(&program, &["2", "1000"]);
    let report = run.good();
    assert_eq!(report.via("kernel"), 6, "{:#}", report.value);
    report.assert_exact(&run.expected());
}

#[test]
fn filters_count_only_what_they_let_through() {
    let run = Probe::new(&["add"])
        .with(&["--filter", "arg0 < 250"])
        .run(&target("hot"), &["2", "1000"]);
    assert_eq!(run.good().count("add"), 500);
    let run = Probe::new(&["add"])
        .with(&["--filter", "arg0 >= 100 && arg1 == 3"])
        .run(&target("hot"), &["2", "1000"]);
    assert_eq!(run.good().count("add"), 1800);
}

#[test]
fn the_kernel_counts_from_exec_on() {
    let libc = ["malloc", "read", "write", "execvpe", "__errno_location"];
    let specs = libc.map(|function| format!("libc.so.6:{function}"));
    let counts = ["agent", "kernel"].map(|via| {
        let run = Probe::new(&specs)
            .with(&["--via", via])
            .run(&target("hot"), &["1", "1000"]);
        libc.map(|function| run.good().count(function))
    });
    assert_eq!(counts[0], counts[1]);
}
