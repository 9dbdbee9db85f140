//! tiptoe takes no priority from other programs, and reports what it used.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use tiptoe_tests::process::{output, wait_until};
use tiptoe_tests::{Probe, Process, Report, WaitingTarget, command, target};

const PATIENCE: Duration = Duration::from_secs(60);

/// The index among the fields of /proc/PID/stat after the name (proc_pid_stat(5), field 19).
const NICE: usize = 16;

fn nice_values(pid: u32) -> Vec<i32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task"));
    let stat = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("stat")).ok();
    let threads = threads.into_iter().flatten().flatten();
    threads
        .filter_map(stat)
        .map(|stat| {
            let (_, fields) = stat.rsplit_once(')').expect("a name");
            let nice = fields.split_whitespace().nth(NICE).expect("field 19");
            nice.parse().expect("a number")
        })
        .collect()
}

fn look(
    tiptoe: &mut Process,
    what: &str,
    mut is_over: impl FnMut(&mut Process, &[i32]) -> bool,
) -> BTreeSet<i32> {
    let mut seen = BTreeSet::new();
    wait_until(what, PATIENCE, || {
        let values = nice_values(tiptoe.pid());
        seen.extend(values.iter().copied());
        is_over(tiptoe, &values)
    });
    seen
}

#[test]
fn no_thread_of_tiptoe_runs_at_a_priority_of_its_own() {
    let own = BTreeSet::from_iter(nice_values(std::process::id()));
    assert_eq!(own.len(), 1, "the test's threads: {own:?}");
    let mut process = Process::waiting(&target("hot"), &["1", "1000"]);
    // While the program is stopped, tiptoe cannot complete the attach or the detach.
    process.signal(libc::SIGSTOP);
    let mut attached = Probe::new(&["add"]).attach(&[process.pid()]);
    let tiptoe = &mut attached.process;
    // A second thread of tiptoe looks for a thread that can load tiptoe's library.
    let attaching = look(tiptoe, "attaching", |_, values| values.len() > 1);
    process.signal(libc::SIGCONT);
    attached.wait_ready();
    let tiptoe = &mut attached.process;
    let tracing = look(tiptoe, "tracing", |_, _| true);
    process.signal(libc::SIGSTOP);
    tiptoe.signal(libc::SIGINT);
    let detaching = look(tiptoe, "detaching", |tiptoe, _| !tiptoe.lives());
    process.signal(libc::SIGCONT);
    attached.finish();
    assert_eq!(
        [attaching, tracing, detaching],
        [own.clone(), own.clone(), own]
    );
    process.go();
    assert!(process.finish().1.success());
}

#[test]
fn the_agents_thread_keeps_the_nice_value_of_its_program() {
    let waiting = WaitingTarget::through(&["nice", "-n", "5"], &target("hot"), &["1", "1000"]);
    let before = nice_values(waiting.pid);
    let attached = Probe::new(&["add"]).attach(&[waiting.pid]);
    attached.wait_ready();
    let during = nice_values(waiting.pid);
    assert_eq!([before.len(), during.len()], [1, 2], "the agent's thread");
    assert!(during.iter().all(|nice| *nice == before[0]), "{during:?}");
    waiting.end();
    attached.finish();
}

#[test]
fn the_report_says_what_tiptoe_itself_used() {
    let process = Process::waiting(&target("hot"), &["1", "1000"]);
    let pid = process.pid().to_string();
    let run = |options: &[&str]| {
        let mut command = command();
        command.args(["probe", "add", "--duration", "20ms", "-p", &pid]);
        let output = output(command.args(options));
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    };
    let report = Report::parse(&run(&["--json"]));
    for key in ["own_cpu_ns", "longest_stop_ns"] {
        let value = report.value[key].as_u64();
        assert!(value.is_some_and(|ns| ns > 0), "{key}: {:#}", report.value);
    }
    let text = run(&[]);
    let mut last = text.lines().rev();
    assert!(
        last.next()
            .is_some_and(|line| line.starts_with("cost of tracing: ")),
        "{text}"
    );
    let own = last.next().unwrap_or_default();
    assert!(own.starts_with("tiptoe itself used "), "{text}");
    assert!(
        own.contains(" of CPU time, and stopped a thread for at most "),
        "{text}"
    );
}
