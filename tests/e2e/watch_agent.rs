//! `tiptoe watch --via agent`: breakpoints in the program's threads, which raise a signal there.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use tiptoe_tests::breakpoint::{Access, Breakpoint};
use tiptoe_tests::process::{output, wait_until};
use tiptoe_tests::{Process, Ready, Report, Run, command, is_root, scaled, skipped, target};

use crate::watch::{check_hot, culprit, find_row, hits, is_whole, rows, said, turn, watch};

const BY_AGENT: [&str; 2] = ["--via", "agent"];

fn run(options: &[&str], mode: &str, rounds: u64) -> Run {
    let watched = watch(&BY_AGENT).with(options);
    watched.run(&target("watched"), &[mode, &rounds.to_string()])
}

fn form(report: &Report) -> &Value {
    &report.value["watch"]["form"]
}

fn has_events(pid: u32) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
    let mut tasks = tasks.into_iter().flatten().flatten();
    let agent = tasks.find(|task| {
        let name = std::fs::read_to_string(task.path().join("comm"));
        name.is_ok_and(|name| name.trim() == "tiptoe-agent")
    });
    let files = agent.and_then(|agent| std::fs::read_dir(agent.path().join("fd")).ok());
    let mut files = files.into_iter().flatten().flatten();
    files.any(|file| {
        let link = std::fs::read_link(file.path());
        link.is_ok_and(|link| link.to_string_lossy().contains("[perf_event]"))
    })
}

/// Copies of tiptoe and a target for every user, in a folder for reports.
struct PublicFolder(PathBuf);

impl PublicFolder {
    fn new() -> PublicFolder {
        let name = format!("tiptoe-watch-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).expect("a temporary folder");
        let open = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(&folder, open).expect("our own folder");
        let put = |program: &Path, name: &str| {
            std::fs::copy(program, folder.join(name)).expect("a copy");
        };
        put(Path::new(command().get_program()), "tiptoe");
        put(&target("watched"), "watched");
        PublicFolder(folder)
    }

    /// Watches a command as a user without rights. Returns the report and the command's output.
    fn run(&self, options: &[&str], mode: &str, rounds: u64) -> Run {
        let report = self.0.join("report");
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
        command.arg(self.0.join("tiptoe"));
        command.args(["watch", "--json", "--budget", "off", "-o"]);
        command.arg(&report).args(options).arg("--");
        command
            .arg(self.0.join("watched"))
            .args([mode, &rounds.to_string()]);
        Run::new(output(&mut command), &report)
    }
}

impl Drop for PublicFolder {
    fn drop(&mut self) {
        // A leftover folder is harmless.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_user_without_rights_watches_his_own_programs() {
    let Some(_turn) = turn() else { return };
    if !is_root() {
        return skipped("another user", "needs root");
    }
    let public = PublicFolder::new();
    let run = public.run(&["total"], "churn", scaled(10_000));
    let report = run.good();
    is_whole(report);
    let total = said(&run, "total");
    assert_eq!(hits(report, 0), total);
    let add = find_row(report, "add");
    assert_eq!(
        (&add["count"], &add["changed"]),
        (&total.into(), &total.into())
    );
    let form = form(report);
    assert_eq!(form["by"], "agent", "{form:#}");
    assert_eq!(form["attached"]["threads"], 1, "{form:#}");
    let why = form["why"].as_str().expect("it is said why");
    assert!(why.contains("no permission"), "{why}");
    assert_eq!(report.value["watch"]["sees_kernel"], false);
    let refused = public.run(&["total", "--via", "kernel"], "churn", 1);
    assert_eq!(refused.status, 2, "{}", refused.stderr);
    assert!(refused.stdout.is_empty(), "it has run");
}

/// Regression: a stack without room for a signal frame killed the program. The frame must go to the alternate
/// stack.
#[test]
fn stores_on_a_stack_without_room_for_a_signal_are_seen() {
    let Some(_turn) = turn() else { return };
    for mode in ["coroutine", "exhausted", "handled"] {
        let watched = watch(&BY_AGENT).with(&["total"]);
        let run = watched.run(&target("small_stacks"), &[mode]);
        let report = run.good();
        is_whole(report);
        assert_eq!(hits(report, 0), said(&run, "total"), "{mode}");
    }
}

#[test]
fn the_thread_that_corrupts_a_variable_is_named() {
    let Some(_turn) = turn() else { return };
    culprit(run(&["stats.state", "--changed"], "corrupt", 1).good());
}

#[test]
fn each_racing_store_has_its_own_value() {
    let Some(_turn) = turn() else { return };
    let rounds = scaled(100_000);
    let run = run(&["owner", "--by", "thread"], "race", rounds);
    let report = run.good();
    is_whole(report);
    for (function, value) in [("store_one", "1"), ("store_two", "2")] {
        let row = find_row(report, function);
        assert_eq!((&row["count"], &row["racy"]), (&rounds.into(), &0.into()));
        let values = &row["values"];
        assert_eq!(
            (&values[0]["value"], &values[0]["count"]),
            (&value.into(), &rounds.into())
        );
        assert!(values[1].is_null(), "{row:#}");
    }
}

#[test]
fn conditions_types_and_code() {
    let Some(_turn) = turn() else { return };
    let when = ["stats.level", "--when", "new == -5 && old != new"];
    let chosen = run(&when, "values", 1);
    let level = find_row(chosen.good(), "set_level");
    assert_eq!(
        (&level["count"], &level["last_new"]),
        (&1.into(), &"-5".into())
    );
    assert_eq!(hits(chosen.good(), 0), 4);
    let code = run(&["set_level:x"], "values", 1);
    let row = find_row(code.good(), "set_level");
    assert_eq!((&row["count"], &row["changed"]), (&4.into(), &0.into()));
}

/// The program's own handler gets its traps, and may be watched.
#[test]
fn a_programs_own_traps_reach_its_handler() {
    let Some(_turn) = turn() else { return };
    let trapping = |mode: &str| {
        let watched = watch(&BY_AGENT).with(&["total"]);
        watched.run(&target("trapping"), &[mode])
    };
    let count = |report: &Report, function: &str| {
        let at = format!("trapping:{function}+");
        let mut rows = rows(report).iter();
        let row = rows.find(|row| row["at"].as_str().is_some_and(|text| text.starts_with(&at)));
        row.and_then(|row| row["count"].as_u64()).unwrap_or(0)
    };
    let handled = trapping("handled");
    let report = handled.good();
    is_whole(report);
    assert_eq!(
        (said(&handled, "total"), said(&handled, "traps")),
        (1200, 200)
    );
    assert_eq!(
        (count(report, "add"), count(report, "on_trap")),
        (1000, 200)
    );
    let blocked = trapping("blocked");
    is_whole(blocked.good());
    assert_eq!(count(blocked.good(), "add"), 1000);
    let unshared = trapping("unshared");
    is_whole(unshared.good());
    assert_eq!(count(unshared.good(), "add"), 20);
    // 1,000 stores while the signal is blocked leave one pending signal, of no instruction.
    let hidden = trapping("hidden");
    let report = hidden.good();
    assert_eq!(said(&hidden, "total"), 1010);
    assert_eq!(count(report, "add"), 10);
    assert_eq!(report.value["watch"]["variables"][0]["at_least"], true);
    let drops = report.value["watch"]["drops"].to_string();
    assert!(drops.contains("blocked SIGTRAP"), "{drops}");
}

/// Some virtual machines lose a trap's cause. Such a trap must not be passed on, because it would kill the program.
#[test]
fn traps_without_a_reason_are_not_the_programs() {
    let Some(_turn) = turn() else { return };
    let watched = watch(&BY_AGENT).with(&["total"]);
    let run = watched.run(&target("trapping"), &["strays"]);
    let report = run.good();
    assert_eq!((said(&run, "total"), said(&run, "traps")), (6, 1));
    assert_eq!(hits(report, 0), 6);
    let drops = report.value["watch"]["drops"].to_string();
    assert!(drops.contains("whose trap had no cause"), "{drops}");
    assert_eq!(report.value["watch"]["variables"][0]["at_least"], true);
}

#[test]
fn hundreds_of_threads_with_three_watches_each() {
    let Some(_turn) = turn() else { return };
    let threads = scaled(2000).max(300);
    let mut program =
        Process::start(Command::new(target("watched")).args(["many", &threads.to_string()]));
    assert_eq!(program.line(), "ready");
    let pid = program.pid();
    let watched = watch(&["total", "stats.hits", "owner", "--stats"]);
    let watched = watched.with(&BY_AGENT).attach(&[pid]);
    watched.wait_ready();
    program.go();
    assert_eq!(program.line(), "done");
    let report = watched.interrupt();
    let watch = &report.value["watch"];
    let found: Vec<_> = (0..3).map(|variable| hits(&report, variable)).collect();
    assert!(found.iter().all(|hits| *hits <= 10 * threads), "{watch:#}");
    let all = found.iter().sum::<u64>() + strays(&report);
    assert_eq!(all, 30 * threads, "{watch:#}");
    let sides = &report.value["watch"]["reservations"];
    assert_eq!(sides[0]["reservations"], 3 * (threads + 1), "{sides:#}");
    assert!(program.finish().1.success());
}

/// Regression: a thread's inherited breakpoints were accounted for only at its first hit: 2 reservations for 200
/// threads, one of which hits.
#[test]
fn threads_are_accounted_for_at_their_birth() {
    let Some(_turn) = turn() else { return };
    for (options, registers) in [(&["stats.state"][..], 1), (&["stats.state", "owner"], 2)] {
        let run = watch(&BY_AGENT).with(&["--stats"]).with(options);
        let run = run.run(&target("watched"), &["corrupt", "1"]);
        let report = run.good();
        assert_eq!(hits(report, 0), 1);
        let sides = &report.value["watch"]["reservations"];
        let count = |key| sides[0][key].as_u64().expect("a count");
        // A birth that meets another reservation is accounted for later, unless the thread has ended.
        let (reserved, unreserved) = (count("reservations"), count("unreserved"));
        assert_eq!(reserved + unreserved, registers * 201, "{sides:#}");
        assert!(reserved >= unreserved, "{sides:#}");
    }
}

/// Returns the hits without a cause, as on some virtual machines. Asserts that nothing else was lost.
fn strays(report: &Report) -> u64 {
    let drops = report.value["watch"]["drops"].as_array();
    let count = |dropped: &Value| {
        let reason = dropped["reason"].as_str().unwrap_or_default();
        assert!(reason.contains("whose trap had no cause"), "{dropped}");
        dropped["count"].as_u64().expect("a count")
    };
    drops.into_iter().flatten().map(count).sum()
}

/// Chains of threads that start and end before and during the attach.
#[test]
fn threads_that_start_and_end_are_each_seen_exactly_once() {
    let Some(_turn) = turn() else { return };
    for variables in [&["total"][..], &["total", "stats.hits", "mode"]] {
        let rounds = scaled(50_000).to_string();
        let mut program = Process::start(Command::new(target("watched")).args(["living", &rounds]));
        assert_eq!(program.line(), "ready");
        let watched = watch(variables).with(&BY_AGENT).attach(&[program.pid()]);
        watched.wait_ready();
        program.go();
        let line = program.line();
        let total = line.split_whitespace().last().and_then(|n| n.parse().ok());
        let total: u64 = total.unwrap_or_else(|| panic!("no total in {line:?}"));
        assert!(program.finish().1.success());
        let report = watched.finish();
        let (found, strays) = (hits(&report, 0), strays(&report));
        let watch = &report.value["watch"];
        assert!((total - strays..=total).contains(&found), "{watch:#}");
        assert_eq!(find_row(&report, "add")["count"], found);
    }
}

/// After the detach, the program holds no register.
#[test]
fn all_registers_are_released() {
    let Some(_turn) = turn() else { return };
    let mut program = Process::waiting(&target("watched"), &["forked", "1"]);
    let pid = program.pid();
    let variables = ["stats.hits", "stats.state", "owner", "total", "--all-slots"];
    let watched = watch(&variables).with(&BY_AGENT).attach(&[pid]);
    watched.wait_ready();
    let thread = Some(pid.cast_signed());
    assert!(Breakpoint::open(thread, None, Access::Write).is_err());
    watched.interrupt();
    assert!(!has_events(pid));
    assert_eq!(Breakpoint::all(thread, None, Access::Write).len(), 4);
    program.go();
    assert!(program.finish().1.success());
}

#[test]
fn the_watch_ends_with_its_process() {
    let Some(_turn) = turn() else { return };
    let exec = run(&["stats.hits"], "again", 1);
    let report = exec.good();
    assert_eq!(hits(report, 0), 1);
    let notes = report.value["notes"].to_string();
    assert!(notes.contains("called exec"), "{notes}");
    // A child must inherit none of its parent's breakpoints.
    let forked = run(&["stats.hits"], "forked", 1);
    assert_eq!(hits(forked.good(), 0), 20);
}

#[test]
fn a_hot_variable_does_not_stop_its_program() {
    let Some(_turn) = turn() else { return };
    check_hot(&BY_AGENT);
}

#[test]
fn a_tiptoe_that_is_killed_leaves_nothing() {
    let Some(_turn) = turn() else { return };
    let mut program = Process::waiting(&target("watched"), &["forked", "1"]);
    let pid = program.pid();
    let mut command = command();
    command.args([
        "watch",
        "stats.hits",
        "--via",
        "agent",
        "-p",
        &pid.to_string(),
    ]);
    let (tiptoe, ready) = Ready::of(&mut command, Process::start);
    ready.wait();
    tiptoe.signal(libc::SIGKILL);
    drop(tiptoe);
    wait_until("the agent's end", Duration::from_secs(20), || {
        !has_events(pid)
    });
    // The next tiptoe can use the agent.
    let watched = watch(&BY_AGENT).with(&["stats.hits"]).attach(&[pid]);
    watched.wait_ready();
    program.go();
    assert!(program.finish().1.success());
    assert_eq!(hits(&watched.finish(), 0), 20);
}

#[test]
fn what_cannot_be_watched_is_refused() {
    let Some(_turn) = turn() else { return };
    let refused = |options: &[&str], words: &[&str]| {
        let run = run(options, "forked", 1);
        assert_eq!(run.status, 2, "{}", run.stderr);
        assert!(run.stdout.is_empty(), "it has run");
        for words in words {
            assert!(run.stderr.contains(words), "{words}: {}", run.stderr);
        }
    };
    refused(&["nothing"], &["no variable `nothing`"]);
    let four = ["stats.hits", "stats.state", "owner", "total"];
    let words = ["'watched:stats.hits'", "one is left to them", "--all-slots"];
    refused(&four, &words);
    let all = run(&[&four[..], &["--all-slots"]].concat(), "forked", 1);
    assert_eq!(hits(all.good(), 0), 20);
}
