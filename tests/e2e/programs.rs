//! sqlite3 and python3: output is as without tracing, and counts equal those of kernel uprobes.

use std::path::Path;
use std::process::Command;

use tiptoe_tests::process::output;
use tiptoe_tests::{Probe, Report, command, installed, skipped, target};

fn agree(program: &str, arguments: &[&str], specs: &[&str]) {
    let Some(path) = installed(program) else {
        return skipped(program, "not installed");
    };
    let seed = ("PYTHONHASHSEED", "0");
    let alone = Command::new(&path)
        .args(arguments)
        .env(seed.0, seed.1)
        .output()
        .expect("it runs");
    let runs = ["agent", "kernel"].map(|via| {
        let run = Probe::new(specs)
            .with(&["--via", via])
            .env(seed.0, seed.1)
            .run(&path, arguments);
        assert_eq!(run.stdout, alone.stdout, "{via}");
        run.good().clone()
    });
    let [ours, kernels] = &runs;
    assert!(!ours.events().is_empty(), "{:#}", ours.value);
    for event in ours.events() {
        let name = &event["event"];
        let theirs = kernels
            .events()
            .iter()
            .find(|event| event["event"] == *name);
        let theirs = theirs.unwrap_or_else(|| panic!("the kernel has no {name}"));
        assert_eq!(event["count"], theirs["count"], "{name}");
        assert!(event["count"].as_u64() > Some(0), "{name} was never hit");
    }
}

fn everything(program: &str, arguments: &[&str], spec: &str) -> Option<Report> {
    let Some(path) = installed(program) else {
        skipped(program, "not installed");
        return None;
    };
    let alone = Command::new(&path)
        .args(arguments)
        .output()
        .expect("it runs");
    let run = Probe::new(&[spec]).run(&path, arguments);
    let report = run.good().clone();
    assert_eq!(
        String::from_utf8_lossy(&run.stdout),
        String::from_utf8_lossy(&alone.stdout)
    );
    println!(
        "{program} {spec}: {} in process, {} through the kernel",
        report.via("agent"),
        report.via("kernel")
    );
    report
        .refusals()
        .iter()
        .for_each(|(reason, count)| println!("  refused {count}: {reason}"));
    Some(report)
}

const SQL: &str = "create table t(a integer primary key, b text, c real);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 20000)
insert into t select i, 'row ' || i, i / 7.0 from n;
create index tb on t(b);
select count(*), sum(a), max(b), avg(c) from t where b like 'row 1%';";

const SCRIPT: &str = "
import json, re, hashlib
words = {f'k{i}': [i, i * i, str(i)] for i in range(3000)}
text = json.dumps(words, sort_keys=True)
print(len(re.findall(r'k[0-9]+', text)), hashlib.sha256(text.encode()).hexdigest())
print(sum(len(v[2]) for v in json.loads(text).values()))
";

#[test]
fn sqlite3_counts_as_the_kernel_does() {
    let specs = [
        "libsqlite3.so.0:sqlite3_step",
        "libsqlite3.so.0:sqlite3_prepare_v2",
    ];
    agree("sqlite3", &["-batch", ":memory:", SQL], &specs);
}

#[test]
fn python3_counts_as_the_kernel_does() {
    agree(
        "python3",
        &["-S", "-c", SCRIPT],
        &["PyDict_SetItem", "PyLong_FromLong", "PyUnicode_New"],
    );
}

#[test]
fn all_functions_of_sqlite3() {
    everything("sqlite3", &["-batch", ":memory:", SQL], "*");
    everything("sqlite3", &["-batch", ":memory:", SQL], "libsqlite3.so.0:*");
}

/// Regression: the `fld` with which these functions begin ran twice, and left a value on the x87 stack.
#[test]
fn long_doubles_are_the_same_while_libm_is_probed() {
    let program = target("long_doubles");
    let alone = Command::new(&program).output().expect("it runs");
    let report = std::env::temp_dir().join(format!("tiptoe-long-doubles-{}", std::process::id()));
    for options in [&[][..], &["--latency"], &["--record"]] {
        let mut command = command();
        command.args(["probe", "libm.so.6:*", "--budget", "off", "-o"]);
        command.arg(&report).args(options).arg("--").arg(&program);
        let run = output(&mut command);
        let text = std::fs::read_to_string(&report).expect("a report");
        assert!(text.contains("libm.so.6:"), "{text}");
        let [found, alone] = [&run.stdout, &alone.stdout].map(|out| String::from_utf8_lossy(out));
        assert_eq!(found, alone, "{options:?}");
    }
    std::fs::remove_file(&report).expect("our own report");
}

/// Regression: generated code was also planned above the stack, where nothing can be mapped. Without randomisation,
/// libraries are right below the stack.
#[test]
fn trampolines_have_room_where_nothing_is_randomised() {
    let Some(path) = installed("sqlite3") else {
        return skipped("sqlite3", "not installed");
    };
    const ADDR_NO_RANDOMIZE: libc::c_ulong = 0x40000;
    // SAFETY: the call changes only programs that this thread starts later.
    let before = unsafe { libc::personality(ADDR_NO_RANDOMIZE) };
    assert!(before >= 0, "personality(2)");
    let run = Probe::new(&["libsqlite3.so.0:*"])
        .with(&["--latency"])
        .run(&path, &["-batch", ":memory:", SQL]);
    let is_jump = |event: &&serde_json::Value| {
        event["via"] == "agent" && !event["notes"].to_string().contains("trap")
    };
    let events = run.good().events();
    let jumps = events.iter().filter(is_jump).count();
    assert!(
        100 * jumps > 99 * events.len(),
        "{jumps} of {}: {}",
        events.len(),
        run.good().value["notes"]
    );
}

/// Regression: in 7% of runs the kernel found no hole for shared memory of 88 GiB, and mapped it next to the
/// libraries.
#[test]
fn segments_are_never_placed_next_to_libraries() {
    for _ in 0..40 {
        let run = Probe::new(&["libc.so.6:malloc"])
            .with(&["--latency"])
            .run(Path::new("/bin/cat"), &["/proc/self/maps"]);
        run.good();
        let maps = String::from_utf8_lossy(&run.stdout).into_owned();
        let mut segments = maps.lines().filter(|line| line.contains("tiptoe-data"));
        let segment = segments.next().expect("the agent's segment");
        assert!(segment.starts_with("55"), "{maps}");
    }
}

#[test]
fn all_functions_of_python3() {
    everything("python3", &["-S", "-c", SCRIPT], "*");
}

#[test]
fn all_functions_of_libc_under_python3() {
    everything("python3", &["-S", "-c", SCRIPT], "libc.so.6:*");
}

#[test]
fn pythons_faulthandler_gets_its_own_faults() {
    let Some(path) = installed("python3") else {
        return skipped("python3", "not installed");
    };
    for (signal, number) in [("SIGILL", libc::SIGILL), ("SIGSEGV", libc::SIGSEGV)] {
        let script = format!("import os, signal; os.kill(os.getpid(), signal.{signal})");
        let run = Probe::new(&["Py*"]).run(&path, &["-X", "faulthandler", "-c", &script]);
        assert_eq!(run.status, 128 + number, "{}", run.stderr);
        assert!(run.stderr.contains("Current thread"), "{}", run.stderr);
    }
}
