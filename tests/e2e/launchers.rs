//! `--exec`: the traced program is started by another one.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tiptoe_tests::process::{output, wait_until};
use tiptoe_tests::{Probe, Process, Run, command, is_root, skipped, target};

use crate::counts::with_constructors;
use crate::watch::{EVERY, hits, on, said, watch};

const PYTHON: &str = "/usr/bin/python3";

/// Runs a script in bash, whose `$0` and `$@` are `words`.
fn launched(instrument: &Probe, program: &str, script: &str, words: &[&str]) -> Run {
    let words = [&["-c", script], words].concat();
    let launched = instrument.clone().with(&["--exec", program]);
    launched.run(Path::new("/bin/bash"), &words)
}

fn path_of(name: &str) -> String {
    target(name).to_str().expect("text").to_owned()
}

fn alone(script: &str, words: &[&str]) -> Vec<u8> {
    let mut bash = Command::new("/bin/bash");
    output(bash.args(["-c", script]).args(words)).stdout
}

#[test]
fn a_program_behind_a_launcher_is_counted_from_its_start() {
    let program = with_constructors();
    let path = program.to_str().expect("text");
    let (_, name) = path.rsplit_once('/').expect("a folder");
    for script in [
        "exec \"$0\"",
        "exec env -i \"$0\"",
        "exec nice env A=1 nohup \"$0\"",
        "exec sh -c 'exec \"$0\"' \"$0\"",
        "cd \"${0%/*}\" && exec \"./${0##*/}\"",
        "export PATH=\"${0%/*}\" && exec \"${0##*/}\"",
        "\"$0\"; exit $?",
        "timeout 50 \"$0\"; echo again | (cat >/dev/null; timeout 9 true); \"$0\" >/dev/null",
        "ls >/dev/null & (ls | cat >/dev/null; (\"$0\" & wait $!)); wait",
        "(sleep 0.1; kill -CONT $$) & kill -STOP $$; \"$0\"; wait",
    ] {
        for via in ["agent", "kernel"] {
            let probe = Probe::new(&["libearly.so:early_work", "own_work"]);
            let probe = probe.with(&["--via", via]);
            let run = launched(&probe, name, script, &[path]);
            run.good().assert_exact(&run.expected());
            assert_eq!(run.good().via(via), 2, "{script}: {}", run.stderr);
        }
    }
    let by_path = launched(&Probe::new(&["own_work"]), path, "exec \"$0\"", &[path]);
    assert_eq!(by_path.good().count("own_work"), 4);
}

/// The program is started a second time with tiptoe's library, and must not see that.
#[test]
fn a_program_behind_a_launcher_sees_what_it_would_see() {
    let name = format!("tiptoe-launched-{}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    let at = folder.to_str().expect("text");
    let math = "LD_PRELOAD=libm.so.6 LD_BIND_NOW=1";
    let file = |first: &str| {
        format!(
            "mkdir -p $0 && cd $0 && echo '{first}' > file && chmod 755 file && exec ./file a 'b c'"
        )
    };
    for (program, script) in [
        ("env", "exec env".to_owned()),
        ("env", format!("{math} exec env")),
        ("env", "exec env -i A=1 env B=2".to_owned()),
        // The name of a link, and an argument in place of the program's name.
        (
            "sh",
            "exec -a other sh -c 'cat /proc/$$/comm; tr \"\\0\" \" \" < /proc/$$/cmdline' a 'b c'"
                .to_owned(),
        ),
        ("cat", file("#!/bin/cat /proc/self/cmdline")),
        ("cat", file("#!/bin/cat")),
        ("cat", "mkdir -p $0 && cd $0 && echo '#!/bin/cat' > file && chmod 755 file && exec $0/file $0/file".to_owned()),
        (
            "cat",
            "cat /proc/self/cmdline; exec cat /proc/self/cmdline <&-".to_owned(),
        ),
        ("ls", "exec ls /proc/self/fd".to_owned()),
        // Nor does the launcher see anything.
        ("env", "ls /proc/$$/fd; env; exec env -i".to_owned()),
    ] {
        let run = launched(&Probe::new(&["libc.so.6:malloc"]), program, &script, &[at]);
        let events = run.report.as_ref().map(|report| report.via("agent"));
        // The kernel counts where it is not clear which arguments exec got.
        let is_ambiguous = script.ends_with("$0/file $0/file");
        assert_eq!(events, Some(usize::from(!is_ambiguous)), "{script}: {}", run.stderr);
        let seen = String::from_utf8_lossy(&run.stdout).into_owned();
        let wanted = alone(&script, &[at]);
        assert_eq!(seen, String::from_utf8_lossy(&wanted), "{script}");
    }
    let _ = std::fs::remove_dir_all(folder);
}

#[test]
fn a_program_of_another_user_is_counted() {
    if !is_root() {
        return skipped("another user", "needs root");
    }
    let path = &path_of("exec");
    let close =
        "for fd in /proc/$$/fd/*; do fd=${fd##*/}; [ $fd -gt 2 ] && eval \"exec $fd>&-\"; done";
    let nobody = "setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps -all";
    let script = format!("{close}; unshare -pf {nobody} \"$0\" 100");
    let probe = Probe::new(&["called"]).with(&["--via", "agent"]);
    let run = launched(&probe, "exec", &script, &[path]);
    assert_eq!(run.good().count("called"), 100, "{}", run.stderr);
}

/// The loader could not open the agent, and would print an error.
#[test]
fn a_program_without_proc_is_left_to_the_kernel() {
    if !is_root() {
        return skipped("chroot", "needs root");
    }
    let path = &path_of("exec");
    let root = std::env::temp_dir().join(format!("tiptoe-root-{}", std::process::id()));
    let root = root.to_str().expect("text");
    let copy = "mkdir -p $1/lib64 $1/lib/x86_64-linux-gnu && cp \"$0\" $1/exec && \
                cp /lib64/ld-linux-x86-64.so.2 $1/lib64 && \
                cp /lib/x86_64-linux-gnu/libc.so.6 $1/lib/x86_64-linux-gnu && chroot $1 /exec 100; true";
    let run = launched(&Probe::new(&["called"]), "exec", copy, &[path, root]);
    let _ = std::fs::remove_dir_all(root);
    assert_eq!(run.good().via("kernel"), 1, "{}", run.stderr);
    let said = run.good().value["notes"].to_string();
    assert!(
        said.contains("it cannot open its own descriptors in /proc"),
        "{said}"
    );
    assert!(!run.stderr.contains("LD_PRELOAD"), "{}", run.stderr);
}

#[test]
fn a_command_that_never_starts_the_program_is_an_error() {
    let probe = Probe::new(&["malloc"]);
    let run = launched(&probe, "absent", "exec env sh -c 'exit 3'", &[]);
    let said = "`/bin/bash` ended (exit status: 3) and never ran `absent`: it ran bash, env, ";
    assert_eq!(run.status, 2);
    assert!(run.stderr.contains(said), "{}", run.stderr);
}

#[test]
fn a_function_that_the_launcher_lacks_leads_to_its_program() {
    let program = target("exec");
    let run = Probe::new(&["called"]).run(
        Path::new("/usr/bin/env"),
        &["A=1", program.to_str().expect("text")],
    );
    assert_eq!(run.status, 2);
    assert!(
        run.stderr.contains("`--exec exec` counts there"),
        "{}",
        run.stderr
    );
}

fn waiting_launcher() -> (Process, u32) {
    let mut tiptoe = command();
    tiptoe.args(["probe", "malloc", "--exec", "cat", "--", "bash", "-c"]);
    let mut tiptoe = Process::start(tiptoe.arg("echo $$; read line; exec cat"));
    let launcher = tiptoe.line().parse().expect("a number");
    (tiptoe, launcher)
}

#[test]
fn a_launcher_outlives_tiptoe() {
    let (mut tiptoe, launcher) = waiting_launcher();
    tiptoe.signal(libc::SIGKILL);
    let traced = || std::fs::read_to_string(format!("/proc/{launcher}/status")).expect("it lives");
    wait_until("tiptoe's end", Duration::from_secs(20), || {
        traced().contains("TracerPid:\t0")
    });
    tiptoe.go();
    let runs_cat = || {
        std::fs::read_link(format!("/proc/{launcher}/exe")).is_ok_and(|exe| exe.ends_with("cat"))
    };
    wait_until("the program", Duration::from_secs(20), runs_cat);
    tiptoe.go();
    assert_eq!(tiptoe.line(), "go");
}

#[test]
fn a_signal_that_ends_tiptoe_ends_the_launcher() {
    let (tiptoe, launcher) = waiting_launcher();
    tiptoe.signal(libc::SIGTERM);
    let lives = || Path::new(&format!("/proc/{launcher}")).exists();
    wait_until("the launcher's end", Duration::from_secs(20), || !lives());
    let (_, status) = tiptoe.finish();
    assert!(!status.success());
}

#[test]
fn every_way_to_start_a_child_is_followed() {
    let path = &path_of("exec");
    let code = format!(
        "import os, subprocess, threading\n\
         def start():\n    \
             subprocess.run(['true']); subprocess.run(['{path}', '100'], check=False)\n\
         thread = threading.Thread(target=start); thread.start(); thread.join()"
    );
    let spawned =
        format!("import os; os.wait4(os.posix_spawn('{path}', ['exec', '100'], os.environ), 0)");
    // A thread that calls exec takes over its process.
    let of_thread = |exec: &str| {
        format!(
            "import os, threading, time; \
             threading.Thread(target=lambda: {exec}).start(); time.sleep(50)"
        )
    };
    let becomes = of_thread(&format!("os.execv('{path}', ['exec', '100'])"));
    let again = format!("os.execv('/bin/sh', ['sh', '-c', 'exec {path} 100'])");
    for code in [code, spawned, becomes, of_thread(&again)] {
        let probe = Probe::new(&["called"]).with(&["--exec", "exec"]);
        let run = probe.run(Path::new(PYTHON), &["-c", &code]);
        assert_eq!(run.good().count("called"), 100, "{code}: {}", run.stderr);
    }
    let first = "(sleep 0.1; exec \"$0\" 100) & exit 7";
    let run = launched(&Probe::new(&["called"]), "exec", first, &[path]);
    let report = run.report.as_ref().expect("a report");
    assert_eq!(
        (run.status, report.count("called")),
        (7, 100),
        "{}",
        run.stderr
    );
}

#[test]
fn the_exit_status_is_the_launchers() {
    let path = &path_of("exec");
    let run = launched(
        &Probe::new(&["called"]),
        "exec",
        "\"$0\" 10; exit 5",
        &[path],
    );
    assert_eq!(run.status, 5, "{}", run.stderr);
    assert_eq!(run.report.expect("a report").count("called"), 10);
}

#[test]
fn locks_and_variables_of_a_program_behind_a_launcher() {
    let path = &path_of("contended");
    let run = launched(
        &Probe::lock(),
        "contended",
        "exec env \"$0\" mutex 200",
        &[path],
    );
    let [waits, _] = run.good().lock_calls();
    assert!(waits > Some(0), "{}", run.stderr);
    let path = &path_of("watched");
    on(EVERY, |via| {
        let watch = watch(&["stats.hits", "--via", via]);
        let run = launched(&watch, "watched", "exec env \"$0\" hot 500", &[path]);
        assert_eq!(
            hits(run.good(), 0),
            said(&run, "hits"),
            "{via}: {}",
            run.stderr
        );
    });
}
