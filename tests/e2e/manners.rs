//! A program must not see that it is traced.

use std::path::Path;
use std::process::Command;

use tiptoe_tests::{ExpectedCounts, Probe, Process, command, is_root, skipped, target};

use crate::counts::check;

#[test]
fn the_environment_is_the_programs_own() {
    // A variable of the program may have the name of a variable of tiptoe.
    let alone = Command::new("/usr/bin/env")
        .env("A", "b")
        .env("TIPTOE_AGENT", "7,8,9")
        .output()
        .expect("env runs");
    let run = Probe::new(&["libc.so.6:getenv"])
        .env("A", "b")
        .env("TIPTOE_AGENT", "7,8,9")
        .run(Path::new("/usr/bin/env"), &[]);
    run.good();
    assert_eq!(
        String::from_utf8_lossy(&run.stdout),
        String::from_utf8_lossy(&alone.stdout)
    );
}

#[test]
fn a_command_of_a_command_is_not_traced() {
    let script = format!("env | sort; {} 10", target("exec").display());
    let arguments = ["-c", script.as_str()];
    let alone = Command::new("/bin/sh")
        .args(arguments)
        .output()
        .expect("sh runs");
    let run = Probe::new(&["libc.so.6:getenv"]).run(Path::new("/bin/sh"), &arguments);
    run.good();
    assert_eq!(
        String::from_utf8_lossy(&run.stdout),
        String::from_utf8_lossy(&alone.stdout)
    );
}

#[test]
fn the_exit_status_is_the_programs_own() {
    let run = Probe::new(&["libc.so.6:getenv"]).run(Path::new("/bin/sh"), &["-c", "exit 42"]);
    assert_eq!(run.status, 42, "{}", run.stderr);
}

#[test]
fn libc_knows_of_one_thread() {
    check(&target("privileges"), &["single"]);
}

#[test]
fn namespaces_may_be_left() {
    check(&target("privileges"), &["unshare"]);
    if is_root() {
        check(&target("privileges"), &["setns"]);
    } else {
        skipped("setns", "needs root");
    }
}

#[test]
fn names_may_be_any_bytes() {
    let mut waiting = Process::waiting(&target("bytes"), &[]);
    let attached = Probe::new(&["called"]).attach(&[waiting.pid()]);
    attached.wait_ready();
    waiting.go();
    let (output, status) = waiting.finish();
    assert!(status.success(), "{status} {output}");
    let report = attached.finish();
    assert_eq!(report.via("agent"), 1, "{:#}", report.value);
    assert_eq!(report.count("called"), 1000);
}

/// A forked child has no thread of the agent (tiptoe's library), so the child must not wait for that thread.
#[test]
fn a_forked_child_may_give_up_rights() {
    check(&target("privileges"), &["child"]);
}

#[test]
fn no_thread_has_rights_after_setuid() {
    if !is_root() {
        return skipped("setuid", "needs root");
    }
    check(&target("privileges"), &["setuid"]);
}

#[test]
fn libc_keeps_its_speed() {
    let program = target("libc_speed");
    let alone = Command::new(&program).output().expect("it runs");
    let run = Probe::new(&["called"]).run(&program, &[]);
    assert_eq!(run.good().count("called"), 1000);
    let first = |bytes: &[u8]| {
        String::from_utf8_lossy(bytes)
            .lines()
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    println!(
        "alone: {}; traced: {} (ns)",
        first(&alone.stdout),
        first(&run.stdout)
    );
}

/// If the agent were listed, `*:*` would probe the agent's code, which runs at each hit.
#[test]
fn the_agent_is_not_listed_among_the_programs_libraries() {
    let mut waiting = Process::waiting(&target("hot"), &["2", "1000"]);
    for _ in 0..2 {
        let run = Probe::new(&["*:*"])
            .with(&["--duration", "50ms"])
            .attach_and_wait(&[waiting.pid()]);
        let events = run.good().value["events"].to_string();
        assert!(!events.contains("tiptoe"), "the agent is probed");
    }
    waiting.go();
    assert!(waiting.finish().1.success());
    let run = Probe::new(&["*:*"]).run(&target("hot"), &["2", "1000"]);
    run.good().assert_exact(&run.expected());
}

/// Regression: after a thread had set its own thread-local block, generated code used the block's first word as
/// libc's pointer. The agent must remove its patches before a thread sets the block.
#[test]
fn a_thread_with_storage_of_its_own_is_left_alone() {
    let program = target("own_storage");
    for mode in ["none", "child", "set", "inline"] {
        let run = Probe::new(&["own"]).run(&program, &[mode]);
        let report = run.good();
        report.assert_exact(&run.expected());
        let notes = report.value["notes"].to_string();
        assert!(notes.contains("thread-local storage"), "{mode}: {notes}");
    }
}

/// Regression: if generated code set the block, no hook saw the system call, and the next hit wrote to the block.
#[test]
fn a_first_hit_on_storage_that_is_not_libcs_writes_nothing_there() {
    let run = Probe::new(&["own"]).run(&target("own_storage"), &["written"]);
    run.good().assert_exact(&run.expected());
}

/// Regression: no hook sees that `wrfsbase` sets the block, so later hits overwrote memory.
#[test]
fn a_program_that_sets_the_base_of_its_storage_is_left_to_the_kernel() {
    let program = target("own_base");
    for extra in [&["--latency"][..], &[]] {
        let run = Probe::new(&["own"]).with(extra).run(&program, &[]);
        let report = run.good();
        report.assert_exact(&run.expected());
        assert_eq!(report.via("kernel"), 1, "{:#}", report.value);
        let notes = report.value["notes"].to_string();
        assert!(notes.contains("own_base:main may give a thread"), "{notes}");
    }
}

#[test]
fn a_timed_call_may_return_on_storage_of_its_own() {
    let program = target("own_storage");
    for mode in ["none", "child", "set", "inline"] {
        let probe = Probe::new(&["own", "libc.so.6:syscall"]).with(&["--latency"]);
        let run = probe.run(&program, &[mode]);
        let expected = run.expected().0["own"];
        assert_eq!(run.good().count("own"), expected, "{mode}");
    }
}

#[test]
fn a_thread_that_has_storage_of_its_own_is_left_alone() {
    let program = target("own_storage");
    let mut process = Process::waiting(&program, &["thread"]);
    let attached = Probe::new(&["own"]).attach(&[process.pid()]);
    attached.wait_ready();
    process.go();
    let (output, status) = process.finish();
    assert!(status.success(), "the program: {status}");
    let report = attached.finish();
    report.assert_exact(&ExpectedCounts::parse(&output));
    assert_eq!(report.via("kernel"), 1, "{:#}", report.value);
    let notes = report.value["notes"].to_string();
    assert!(notes.contains("thread-local storage"), "{notes}");
}

#[test]
fn nothing_said_why_a_function_was_never_hit() {
    let report = |options: &[&str]| {
        let mut tiptoe = command();
        tiptoe.args(["probe", "work"]).args(options);
        let output = tiptoe.arg("--").arg(target("workers")).output();
        let output = output.expect("it runs");
        assert!(output.status.success(), "{output:?}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        said.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let why = "note: workers:work was never hit: no such call was made in this time";
    let said = report(&["--via", "agent"]);
    let children = "; not traced: the 3 children that were started meanwhile";
    assert!(said.contains(&(why.to_owned() + children)), "{said}");
}

#[test]
fn the_report_did_not_say_that_children_are_not_traced() {
    let mut server = Process::start(&mut Command::new(target("workers")));
    assert_eq!(server.line(), "ready");
    let run = Probe::new(&["work"]).with(&["--duration", "0.1"]);
    let run = run.attach_and_wait(&[server.pid()]);
    let notes = run.good().value["notes"].to_string();
    let want = "3 children run the same program and are not traced: `--comm workers`";
    assert!(notes.contains(want), "{notes}");
    server.close();
    assert!(server.finish().1.success());
}
