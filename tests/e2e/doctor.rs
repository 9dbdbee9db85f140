//! `tiptoe doctor`: what works here for this user, what would enable more, and other tracers.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tiptoe_tests::{Probe, Process, Report, WaitingTarget, command, is_root, skipped, target};

const ROWS: &[&str] = &[
    "perf_event_paranoid",
    "ptrace scope",
    "capabilities",
    "tracefs",
    "BPF programs",
    "BTF",
    "cgroups",
    "hardware PMU",
    "membarrier SYNC_CORE",
    "rseq",
];

fn doctor(command: &mut Command) -> Value {
    let output = command
        .args(["doctor", "--json"])
        .output()
        .expect("doctor runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Report::parse(&String::from_utf8_lossy(&output.stdout)).value
}

fn find_row<'a>(report: &'a Value, name: &str) -> &'a Value {
    let rows = report["checks"].as_array().expect("rows");
    let row = rows.iter().find(|row| row["name"] == name);
    row.unwrap_or_else(|| panic!("no row `{name}`: {report:#}"))
}

fn is_whole(report: &Value) {
    for name in ROWS {
        let row = find_row(report, name);
        if row["state"] != "ok" {
            assert!(
                row["limits"]
                    .as_array()
                    .is_some_and(|limits| !limits.is_empty()),
                "{row:#}"
            );
            assert!(
                row["fix"].as_str().is_some_and(|fix| fix.contains(' ')),
                "{row:#}"
            );
        }
    }
}

pub(crate) struct UnprivilegedTiptoe(PathBuf);

impl UnprivilegedTiptoe {
    pub(crate) fn new() -> UnprivilegedTiptoe {
        let folder = std::env::temp_dir().join(format!("tiptoe-doctor-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a temporary folder");
        std::fs::copy(command().get_program(), folder.join("tiptoe")).expect("a copy");
        UnprivilegedTiptoe(folder)
    }

    pub(crate) fn with(&self, rights: &[&str]) -> Command {
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid", "65534", "--clear-groups"])
            .args(rights);
        command.arg(self.0.join("tiptoe"));
        command
    }
}

impl Drop for UnprivilegedTiptoe {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn doctor_prints_every_row() {
    is_whole(&doctor(&mut command()));
    let output = command().arg("doctor").output().expect("doctor runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    for name in ROWS {
        assert!(
            text.contains(&format!("\n  {name} ")),
            "no `{name}` in {text}"
        );
    }
    assert!(!text.contains("to come"), "all instruments exist: {text}");
}

fn through(words: &[&str], inner: &Command) -> Command {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    command.arg(inner.get_program()).args(inner.get_args());
    command
}

/// Returns the features that do not work. Asserts that doctor's verdict and status agree.
fn is_true(who: &str, tiptoe: &dyn Fn() -> Command, pid: &str) -> Vec<&'static str> {
    let (hot, watched) = (target("hot"), target("watched"));
    let (hot, watched) = (hot.to_str().expect("text"), watched.to_str().expect("text"));
    let stat = ["stat", "-e", "task-clock"];
    let instruments: [(&str, &[&str]); 4] = [
        ("probe", &["probe", "add", "--", hot, "1", "100"]),
        ("lock", &["lock", "--", hot, "1", "100"]),
        (
            "watch",
            &["watch", "counts[0]", "--", watched, "counting", "5"],
        ),
        ("stat", &[&stat[..], &["--", hot, "1", "100"]].concat()),
    ];
    let attach = ["probe", "add", "--via", "agent", "--duration", "10ms", "-p"];
    let features: [(&str, &[&str]); 5] = [
        ("attaching in process", &[&attach[..], &[pid]].concat()),
        ("system-wide counts", &[&stat[..], &["-a", "true"]].concat()),
        (
            "counts by cgroup",
            &[&stat[..], &["--for-each-cgroup", "*", "true"]].concat(),
        ),
        ("kernel locks", &["lock", "--kernel", "--", "true"]),
        ("hardware counters", &["stat", "-e", "cycles", "true"]),
    ];
    let report = doctor(&mut tiptoe());
    let has = |list: &str, name: &str| {
        let list = report[list].as_array().expect("a list");
        list.contains(&Value::from(name))
    };
    let mut lacking = Vec::new();
    for (name, words) in instruments.into_iter().chain(features) {
        let works = tiptoe().args(words).output().expect("it runs");
        let is_instrument = instruments.iter().any(|(one, _)| *one == name);
        let promised = match is_instrument {
            true => has("can", name),
            false => !has("not", name),
        };
        assert_eq!(
            promised,
            works.status.success(),
            "{who}, {name}: can {:#}, not {:#} {works:?}",
            report["can"],
            report["not"]
        );
        if !promised {
            lacking.push(name);
        }
        if is_instrument {
            let asked = tiptoe().args(["doctor", name]).output().expect("it runs");
            let expected = i32::from(!promised);
            assert_eq!(asked.status.code(), Some(expected), "{who}, {name}");
        }
    }
    lacking
}

#[test]
fn what_the_verdict_promises_works() {
    if !is_root() {
        return skipped("another user", "needs root");
    }
    let user = UnprivilegedTiptoe::new();
    let of_user = ["setpriv", "--reuid", "65534", "--clear-groups"];
    let without = target("without");
    let without =
        |call, tiptoe: &Command| through(&[without.to_str().expect("text"), call], tiptoe);
    let program = |words: &[&str]| WaitingTarget::through(words, &target("hot"), &["2", "1000"]);
    let (roots, users) = (program(&["env"]), program(&of_user));
    let perf = ["watch", "stat", "system-wide counts"];
    let agent = ["probe", "lock", "watch"];
    type Whose<'a> = (
        &'a str,
        &'a WaitingTarget,
        &'a dyn Fn() -> Command,
        &'a [&'a str],
    );
    let whose: [Whose<'_>; 8] = [
        ("root", &roots, &command, &[]),
        ("a user", &users, &|| user.with(&[]), &[]),
        (
            "root without perf",
            &roots,
            &|| without("perf_event_open", &command()),
            &["watch", "system-wide counts"],
        ),
        (
            "a user without perf",
            &users,
            &|| without("perf_event_open", &user.with(&[])),
            &perf,
        ),
        (
            "a user without the agent",
            &users,
            &|| without("memfd_create", &user.with(&[])),
            &agent,
        ),
        (
            "a user whose agent reads nothing",
            &users,
            &|| without("process_vm_readv", &user.with(&[])),
            &agent,
        ),
        (
            "root without the agent",
            &roots,
            &|| without("memfd_create", &command()),
            &[],
        ),
        (
            "root whose agent reads nothing",
            &roots,
            &|| without("process_vm_readv", &command()),
            &[],
        ),
    ];
    for (who, program, tiptoe, lacking) in whose {
        let found = is_true(who, tiptoe, &program.pid.to_string());
        for name in lacking {
            assert!(found.contains(name), "{who}, {name}: {found:?}");
        }
        let text = tiptoe().arg("doctor").output().expect("it runs").stdout;
        let text = String::from_utf8_lossy(&text).into_owned();
        let verdict = text.split("\n\n").next().unwrap_or_default();
        let verdict = verdict.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(verdict.starts_with("you can: "), "{who}: {text}");
        let reads_others = !verdict.contains("other users' processes");
        assert_eq!(reads_others, who.starts_with("root"), "{text}");
    }
    roots.end();
    users.end();
}

#[test]
fn probes_work_where_memory_files_are_not_executable() {
    if !is_root() {
        return skipped("a sysctl of a pid namespace", "needs root");
    }
    let sysctl = "/proc/sys/vm/memfd_noexec";
    if !Path::new(sysctl).exists() {
        return skipped("vm.memfd_noexec", "this kernel does not have it");
    }
    let script = format!("echo 2 > {sysctl} && exec \"$@\"");
    let namespace = ["unshare", "--pid", "--fork", "--mount-proc"];
    let words = [&namespace[..], &["sh", "-c", &script, "sh"]].concat();
    let tiptoe = || through(&words, &command());
    let report = doctor(&mut tiptoe());
    let row = find_row(&report, "executable memfd");
    let hot = target("hot");
    let hot = hot.to_str().expect("text");
    let probe = ["probe", "add", "--via", "agent", "--", hot, "1", "100"];
    let works = tiptoe().args(probe).output().expect("it runs");
    assert_eq!(row["state"] == "ok", works.status.success(), "{works:?}");
    let asked = tiptoe().args(["doctor", "probe"]).output();
    assert!(asked.expect("it runs").status.success(), "{report:#}");
}

#[test]
fn fix_prints_each_command_before_it_runs_it() {
    if !is_root() {
        return skipped("a mount namespace", "needs root");
    }
    let user = UnprivilegedTiptoe::new();
    let tiptoe = command().get_program().to_owned();
    let script = "umount -l /sys/kernel/tracing && exec \"$@\"";
    let run = |last: &[&str]| {
        let mut unshare = Command::new("unshare");
        unshare
            .args(["--mount", "sh", "-c", script, "sh"])
            .args(last);
        unshare.output().expect("it runs")
    };
    let both = format!("{0} doctor --fix && {0} doctor --json", tiptoe.display());
    let output = run(&["sh", "-c", &both]);
    let said = String::from_utf8_lossy(&output.stderr);
    let mount = "running: mount -t tracefs tracefs /sys/kernel/tracing";
    assert!(
        output.status.success() && said.contains(mount),
        "{output:?}"
    );
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(find_row(&report, "tracefs")["state"], "ok", "{report:#}");
    let command = user.with(&[]);
    let words: Vec<&str> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_str().expect("text"))
        .chain(["doctor", "--fix"])
        .collect();
    let output = run(&words);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("only root") && said.contains("hint: sudo tiptoe doctor --fix"),
        "{said}"
    );
}

#[test]
fn the_fix_for_missing_rights_works() {
    if !is_root() {
        return skipped("another user", "needs root");
    }
    let user = UnprivilegedTiptoe::new();
    let report = doctor(&mut user.with(&[]));
    is_whole(&report);
    assert_eq!(report["uid"], 65534);
    for name in ["capabilities", "BPF programs", "kernel uprobes, process"] {
        let fix = find_row(&report, name)["fix"].as_str().expect("a command");
        assert!(
            fix.contains("chmod 0750") && fix.contains("setcap cap_bpf,"),
            "{name}: {fix}"
        );
    }
    let capabilities = "+bpf,+checkpoint_restore,+perfmon,+sys_ptrace";
    let rights = ["--inh-caps", capabilities, "--ambient-caps", capabilities];
    let report = doctor(&mut user.with(&rights));
    for name in [
        "capabilities",
        "BPF programs",
        "kernel uprobes, process",
        "perf_event_paranoid",
    ] {
        assert_eq!(
            find_row(&report, name)["state"],
            "ok",
            "{:#}",
            find_row(&report, name)
        );
    }
}

/// Regression: with cap_sys_ptrace the row was `ok`, although that capability alone may not suffice.
#[test]
fn other_users_processes_are_ok_only_where_they_can_be_traced() {
    if !is_root() {
        return skipped("another user", "needs root");
    }
    let user = UnprivilegedTiptoe::new();
    let some = "+bpf,+checkpoint_restore,+perfmon,+sys_ptrace";
    let all = format!("{some},+dac_override");
    let given = |rights: &str| user.with(&["--inh-caps", rights, "--ambient-caps", rights]);
    let contained = || {
        let mut unshare = Command::new("unshare");
        let tiptoe = command().get_program().to_owned();
        unshare.args(["--user", "--map-root-user"]).arg(tiptoe);
        unshare
    };
    let mut program = Process::waiting(&target("hot"), &["2", "1000"]);
    let whose: [(&str, &dyn Fn() -> Command); 4] = [
        ("part", &|| user.with(&[])),
        ("part", &|| given(some)),
        ("ok", &|| given(&all)),
        ("part", &contained),
    ];
    for (state, tiptoe) in whose {
        let report = doctor(&mut tiptoe());
        let row = find_row(&report, "other users' processes");
        assert_eq!(row["state"], state, "{row:#}");
        let pid = program.pid().to_string();
        let options = ["--via", "agent", "--duration", "10ms", "-p", &pid];
        let output = tiptoe().args(["probe", "add"]).args(options).output();
        let output = output.expect("tiptoe runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.success(), state == "ok", "{row:#} {said}");
    }
    program.go();
    assert!(program.finish().1.success());
}

fn listed(pid: u32) -> Vec<String> {
    let report = doctor(&mut command());
    let foreign = report["foreign"].as_array().expect("a list").clone();
    foreign
        .iter()
        .filter(|tracer| tracer["pid"] == pid)
        .filter_map(|tracer| Some(tracer["what"].as_str()?.to_owned()))
        .collect()
}

#[test]
fn other_tracers_on_hot_tracepoints_and_cgroups_are_listed() {
    let Some(cgroup) = cgroup() else {
        return skipped("a cgroup", "version 2 is not mounted");
    };
    if !is_root() {
        return skipped("a foreign tracer", "needs root");
    }
    let cgroup = cgroup.to_str().expect("text");
    let tracer = Process::waiting(&target("tracer"), &[cgroup]);
    let what = listed(tracer.pid());
    let has = |words: &str| what.iter().any(|what| what.contains(words));
    assert!(has("BPF raw_tracepoint link on sched_switch"), "{what:?}");
    assert!(has(&format!("perf event, of cgroup {cgroup}")), "{what:?}");
    let pid = tracer.pid();
    drop(tracer);
    assert!(listed(pid).is_empty());
}

#[test]
fn another_tiptoe_is_listed() {
    if !is_root() {
        return skipped("the kernel's probes", "needs root");
    }
    let waiting = WaitingTarget::through(&["env"], &target("hot"), &["2", "1000"]);
    let site = waiting.site("add");
    let other = Probe::new(&["add"])
        .with(&["--via", "kernel"])
        .attach(&[waiting.pid]);
    site.wait_probed();
    assert!(!listed(other.process.pid()).is_empty());
    other.interrupt();
    waiting.end();
}

pub(crate) fn cgroup() -> Option<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
    let mut lines = mounts
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>());
    let line = lines.find(|words| words.get(2) == Some(&"cgroup2"))?;
    Some(Path::new(line[1]).to_owned())
}
