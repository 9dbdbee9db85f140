//! The status line is on a terminal while a run counts, and is erased afterwards.

use std::process::Command;

use tiptoe_tests::process::output;
use tiptoe_tests::target::folder;
use tiptoe_tests::{OnTerminal, Process, command, is_root, skipped, target};

const END: &str = "Ctrl-C ends";

fn busy() -> Process {
    let plugin = target("plugin");
    let plugin = plugin.to_str().expect("UTF-8");
    let mut busy = Process::waiting(&target("busy"), &[plugin]);
    busy.go();
    busy
}

fn status_lines(written: &str) -> Vec<&str> {
    let drawn = written.split('\r');
    let drawn = drawn.filter_map(|part| part.strip_suffix("\x1b[K"));
    drawn.filter(|line| line.contains(END)).collect()
}

#[test]
fn each_instrument_shows_its_progress_and_erases_it() {
    if !is_root() {
        return skipped("counting in the kernel", "needs root");
    }
    let busy = busy();
    let pid = busy.pid().to_string();
    for (line, shown) in [
        ("probe called", "hits, cost ~"),
        ("probe called --via kernel --budget off", "hits, cost ~"),
        ("lock", "waits, cost ~"),
        ("lock --via kernel", "waits, cost 0"),
        ("lock --kernel", "waits, cost 0"),
        ("watch made:8", "hits, cost ~"),
        ("stat -e cs", " cs; Ctrl-C"),
    ] {
        let _turn = line
            .starts_with("watch")
            .then(tiptoe_tests::breakpoint::RegisterLock::wait);
        let mut tiptoe = command();
        tiptoe.args(line.split(' ')).args(["-p", &pid]);
        let mut tiptoe = OnTerminal::start(&mut tiptoe, 80);
        tiptoe.wait_for(END);
        tiptoe.wait_for(shown);
        tiptoe.interrupt();
        let (written, left, status) = tiptoe.finish();
        assert!(status.success(), "{line}: {written}");
        let lines = status_lines(&written);
        let whom = format!("busy (pid {pid}): ");
        let counting = lines.iter().filter(|line| line.starts_with(&whom));
        assert!(counting.count() > 0, "{line}: {written:?}");
        for status in lines {
            assert!(status.chars().count() < 80, "{line}: {status}");
        }
        let screen = left.join("\n");
        assert!(!screen.contains(END), "{line}: {screen}");
        assert!(!screen.contains("^C"), "{line}: {screen}");
        assert!(screen.contains("counting: busy"), "{line}: {screen}");
        assert!(
            left.iter().all(|line| line.chars().count() <= 80),
            "{line}: {screen}"
        );
    }
}

#[test]
fn intervals_are_printed_above_the_status_line() {
    let busy = busy();
    let pid = busy.pid().to_string();
    let mut tiptoe = command();
    tiptoe.args(["probe", "called", "--interval", "100ms", "-p", &pid]);
    let mut tiptoe = OnTerminal::start(&mut tiptoe, 80);
    tiptoe.wait_for("hits, cost ~");
    tiptoe.interrupt();
    let (written, left, _) = tiptoe.finish();
    let screen = left.join("\n");
    let intervals = left.iter().filter(|line| line.contains("busy:called "));
    assert!(intervals.count() >= 2, "{screen}");
    assert!(!screen.contains(END), "{screen}");
    assert!(!status_lines(&written).is_empty(), "{written:?}");
}

#[test]
fn no_status_line_is_mixed_with_a_commands_output() {
    let script = "i=0; while [ $i -lt 60 ]; do sleep 0.02; i=$((i+1)); done; echo done";
    let mut tiptoe = command();
    tiptoe.args(["probe", "libc.so.6:malloc", "--", "sh", "-c", script]);
    let (written, left, status) = OnTerminal::start(&mut tiptoe, 80).finish();
    assert!(status.success(), "{written}");
    let after = written.split_once("counting: ").expect("it counts").1;
    assert!(!after.contains(END), "{written:?}");
    assert!(left.iter().any(|line| line == "done"), "{left:#?}");
}

#[test]
fn without_a_terminal_there_is_no_status_line() {
    let busy = busy();
    let pid = busy.pid().to_string();
    let arguments = ["probe", "called", "--duration", "1500ms", "-p", &pid];
    let ran = output(command().args(arguments));
    let talk = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert_eq!(talk.lines().count(), 1, "{talk}");
    assert!(!talk.contains('\x1b'), "{talk:?}");
    let mut to_file = Command::new("sh");
    let file = folder().join("talk");
    to_file.args(["-c", r#"to="$1"; shift; exec "$@" 2>"$to""#, "sh"]);
    to_file
        .arg(&file)
        .arg(command().get_program())
        .args(arguments);
    let (written, _, _) = OnTerminal::start(&mut to_file, 80).finish();
    let talk = std::fs::read_to_string(&file).expect("the file");
    assert!(
        !written.contains(END) && !talk.contains(END),
        "{written}{talk}"
    );
    for (more, variable) in [("--json", "xterm"), ("--top=1", "dumb")] {
        let mut tiptoe = command();
        tiptoe.args(arguments).arg(more);
        let mut shell = Command::new("env");
        shell
            .arg(format!("TERM={variable}"))
            .arg(tiptoe.get_program())
            .args(tiptoe.get_args());
        let (written, _, _) = OnTerminal::start(&mut shell, 80).finish();
        assert!(!written.contains(END), "{more}: {written}");
    }
}
