//! Names from a traced program must reach a terminal only escaped, and a shell only as one word, because they could
//! otherwise forge output or run commands.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tiptoe_tests::{Process, command, target};

/// Clears the screen, begins a line, hides the rest, and reverses the reading direction.
const PAINT: &str = "\u{1b}[2J\nforged: \u{9b}8m\u{202e}\u{200b}$(touch forged)'";

struct PaintedProgram {
    folder: PathBuf,
    program: Process,
}

impl PaintedProgram {
    fn new(name: &str) -> PaintedProgram {
        let name = format!("tiptoe-{name}-{}-{PAINT}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).expect("a folder");
        let library = folder.join(format!("lib{PAINT}.so"));
        fs::copy(target("plugin"), &library).expect("a copy");
        let own = folder.join(format!("painted{PAINT}"));
        // The name has no line break, because objcopy reads symbols as lines.
        let function = format!("painted=painted{}", PAINT.replace('\n', ""));
        let renamed = Command::new("objcopy")
            .args(["--redefine-sym", &function])
            .args([&target("painted"), &own])
            .status();
        assert!(renamed.expect("objcopy runs").success());
        let library = library.to_str().expect("text");
        PaintedProgram {
            program: Process::waiting(&own, &[library]),
            folder,
        }
    }

    fn traced(&self, arguments: &[&str]) -> Output {
        let mut command = command();
        command
            .args(arguments)
            .args(["-p", &self.program.pid().to_string()]);
        command.output().expect("tiptoe runs")
    }
}

impl Drop for PaintedProgram {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn is_clean(what: &[&str], output: &Output) -> String {
    let printed = [&output.stdout[..], &output.stderr[..]].concat();
    let text = String::from_utf8(printed).unwrap_or_else(|error| panic!("{what:?}: {error}"));
    let obeyed = |c: char| c != '\n' && (c.is_control() || "\u{202e}\u{200b}".contains(c));
    assert!(!text.contains(obeyed), "{what:?}: {text:?}");
    assert!(!text.contains("\nforged"), "{what:?}: {text:?}");
    text
}

#[test]
fn names_of_a_program_reach_a_terminal_only_escaped() {
    let painted = PaintedProgram::new("names");
    let mut seen = String::new();
    for arguments in [
        &["probe", "painted*", "--duration", "50ms"][..],
        &["probe", "painted*", "--duration", "50ms", "--json"],
        &["probe", "painted*", "--duration", "50ms", "--by", "comm"],
        &[
            "probe",
            "painted*",
            "--duration",
            "50ms",
            "--interval",
            "20ms",
        ],
        &["probe", "painted*", "--duration", "50ms", "--latency"],
        &["probe", "painted*", "--duration", "50ms", "--record"],
        &[
            "probe",
            "painted*",
            "--duration",
            "50ms",
            "--record",
            "--json",
        ],
        &["probe", "painted*", "--duration", "50ms", "--via", "kernel"],
        &["probe", "lib*:plugin_work", "--duration", "50ms"],
        &["probe", "nothing:f"],
        &["probe", "nothing"],
        &["probe", "plugin_work"],
        &["probe", "lib*:nothing"],
        &["lock", "--duration", "50ms"],
        &["lock", "--now"],
        &["watch", "nothing"],
        &["stat", "--duration", "50ms"],
    ] {
        let output = painted.traced(arguments);
        seen += &is_clean(arguments, &output);
    }
    for name in [
        "painted\\x1b[2J",
        "lib\\x1b[2J\\nforged",
        "\\x1b[2J\\nforged\\u{202e}",
    ] {
        assert!(seen.contains(name), "no {name}: {seen}");
    }
}

/// A script may have its arguments from a hostile source.
#[test]
fn arguments_reach_a_terminal_only_escaped() {
    let path = format!("/nonexistent/{PAINT}");
    for arguments in [
        &[PAINT][..],
        &["probe", PAINT, "-p", "1"],
        &["probe", "f", "-p", PAINT],
        &["probe", "f", "--comm", PAINT],
        &["probe", "f", "--under", PAINT, "-p", "1"],
        &["probe", "f", "--filter", PAINT, "-p", "1"],
        &["probe", "f", "-o", &path, "--", "true"],
        &["probe", "f", "--", &path],
        &["stat", "-e", PAINT, "--", "true"],
        &["stat", "--", &path],
        &["watch", PAINT, "-p", "1"],
    ] {
        let output = command().args(arguments).output().expect("tiptoe runs");
        let text = is_clean(arguments, &output);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {text}");
        let other = text
            .lines()
            .find(|line| !line.starts_with("error: ") && !line.starts_with("hint: "));
        assert_eq!(other, None, "{arguments:?}: {text}");
    }
    let invalid = OsStr::from_bytes(b"/nonexistent/\xff\x1b[2J");
    let output = command().args(["stat", "--"]).arg(invalid).output();
    is_clean(&["stat"], &output.expect("tiptoe runs"));
}

#[test]
fn a_pasted_hint_runs_nothing_that_the_program_chose() {
    let painted = PaintedProgram::new("pasted");
    let output = painted.traced(&["probe", "plugin_work"]);
    let text = String::from_utf8(output.stderr).expect("text");
    let spec = text
        .split_once("hint: there is `")
        .and_then(|(_, rest)| rest.split_once("`\n"));
    let (spec, _) = spec.unwrap_or_else(|| panic!("no spec: {text}"));
    let pasted = Command::new("bash")
        .args(["-c", &format!("printf %s {spec}")])
        .current_dir(&painted.folder)
        .output()
        .expect("bash runs");
    let word = String::from_utf8(pasted.stdout).expect("text");
    assert_eq!(word, format!("lib{PAINT}.so:plugin_work"));
    assert!(!Path::new(&painted.folder.join("forged")).exists());
}
