//! Requests that must be refused, with one error and status 2.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Output};

use tiptoe_tests::process::output;
use tiptoe_tests::{Probe, Process, command, target};

fn refused(arguments: &[&str], words: &[&str]) {
    let output: Output = command().args(arguments).output().expect("tiptoe runs");
    let talk = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {talk}");
    for word in words {
        assert!(talk.contains(word), "{arguments:?}: no `{word}` in: {talk}");
    }
    assert!(output.stdout.is_empty(), "{arguments:?}: data on stdout");
}

const WRONG: &[&str] = &[
    "probe",
    "probe main",
    "probe main -p",
    "probe main -p 0",
    "probe main -p one",
    "probe main -p 1,x",
    "probe main -p 1 2",
    "lock -p 1 2",
    "stat -p 1 2",
    "watch hits -p 1 2",
    "bug out 5",
    "lock 5 -- HOT",
    "probe 5 -- HOT",
    "probe main -p 4194303",
    "probe main -p redis-server",
    "probe main --comm nobody-has-this",
    "probe main --comm a --comm b",
    "probe main -- /nonexistent/program",
    "probe chose -- HOT",
    "probe zzz* -- HOT",
    "probe ad[d] -- HOT",
    "probe choices -- HOT",
    "probe libc.so.6 -- HOT",
    "probe mem:x -- HOT",
    "watch uprobe:main -- HOT",
    "stat -e klock:* -- HOT",
    "probe main/latency/ -- HOT",
    "probe uretprobe:main+8 -- HOT",
    "probe main --filter arg9> -- HOT",
    "probe main --by colour -- HOT",
    "probe main --via magic -- HOT",
    "probe main --via kernel-task -- HOT",
    "probe main --budget 0 -- HOT",
    "probe main --budget 200% -- HOT",
    "probe main --count -- HOT",
    "lock --kernel sleep 1",
    "lock -a sleep 1",
    "probe main --latency --slower 1 -- HOT",
    "probe main --slower 1ms -- HOT",
    "probe main --histograms -- HOT",
    "probe main --latency --via kernel -- HOT",
    "probe main --record --by arg1 -- HOT",
    "probe main --under nothing_of_the_kind -- HOT",
    "probe main --duration -1s -- HOT",
    "probe main --top many -- HOT",
    "probe main --prometheus -- HOT",
    "probe main --color pink -- HOT",
    "probe main --ready-fd 2 -- HOT",
    "probe main --ready-fd 1000 -- HOT",
    "probe main -o /nonexistent/folder/file -- HOT",
    "probe main --json=yes -- HOT",
    "probe main -a",
    "probe answer+1 -- OFFSETS",
    "frobnicate",
    "--frobnicate",
    "prob main -- HOT",
    "lock",
    "lock --by colour -- HOT",
    "lock --by cgroup -- HOT",
    "lock --by scope --kernel -- HOT",
    "lock --now",
    "lock --now -- HOT",
    "lock --mmap -- HOT",
    "lock --every -- HOT",
    "lock --interval 1 -- HOT",
    "lock --kernel --hold x -- HOT",
    "lock --kernel --via agent -- HOT",
    "lock --kernel --force -- HOT",
    "lock --kernel --budget 1% -- HOT",
    "lock --via kernel --budget 1% -- HOT",
    "lock --now -p 1 --budget 1%",
    "lock --via kernel --force -- HOT",
    "lock --now -p 1 --interval 1",
    "lock --now -p 1 --force",
    "probe main --via kernel --force -- HOT",
    "lock --hold nothing_of_the_kind -- HOT",
    "watch",
    "watch hits",
    "watch nothing_of_the_kind -- HOT",
    "watch counts[0] --rotate 1 -- HOT",
    "watch counts[0] --delay 1 -- HOT",
    "watch counts[0] --when value -- HOT",
    "watch 0xzz -- HOT",
    "watch 0xfffffffffffffff8:8 -- HOT",
    "watch add:x --changed -- HOT",
    "watch add:x --when new==0 -- HOT",
    "stat",
    "stat -e no-such-event -- HOT",
    "stat -e cylces -- HOT",
    "stat -a -p 1",
    "stat -I 0 -a",
    "stat -x -- HOT",
    "stat -r 0 -- HOT",
    "stat -r 2 -a",
    "stat --per-cpu -- HOT",
    "stat --top 3 -- HOT",
    "stat --by scope -a",
    "stat --csv --json -- HOT",
    "stat --for-each-cgroup nobody-has-this -e cs -- HOT",
    "doctor prob",
    "doctor --fix --json",
    "help frobnicate",
    "--verbose",
];

fn commands(hint: &str) -> (Vec<&str>, String) {
    if hint.starts_with("tiptoe ") {
        return (vec![hint], String::new());
    }
    let parts = hint.split('`').enumerate();
    let is_command = |(at, part): &(usize, &str)| {
        let is_program = part.starts_with("tiptoe ") || part.starts_with("ps ");
        at % 2 == 1 && is_program && part.split(' ').count() > 2
    };
    let (commands, rest): (Vec<_>, Vec<_>) = parts.partition(is_command);
    let rest: Vec<&str> = rest.into_iter().map(|(_, part)| part).collect();
    let commands = commands.into_iter().map(|(_, command)| command);
    (commands.collect(), rest.join(" "))
}

fn type_in(line: &str) -> Output {
    let mut words = line.split(' ');
    let mut typed = match words.next() {
        Some("tiptoe") => command(),
        program => Command::new(program.expect("a program")),
    };
    output(typed.args(words))
}

fn options(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| c.is_whitespace() || ",;:()".contains(c));
    words.filter(|word| {
        let name = word.trim_start_matches('-');
        name.len() < word.len() && name.starts_with(char::is_alphabetic)
    })
}

/// A hint's commands must work as printed; its options must be in `--help`.
#[test]
fn each_refused_line_has_one_error_and_at_most_one_hint() {
    assert!(WRONG.len() >= 40);
    let [hot, offsets] = ["hot", "offsets"].map(|name| target(name).display().to_string());
    for line in WRONG {
        let line = line.replace("HOT", &hot).replace("OFFSETS", &offsets);
        let output = output(command().args(line.split(' ')));
        let talk = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{line}: {talk}");
        assert!(output.stdout.is_empty(), "{line}: data on stdout");
        let lines: Vec<&str> = talk.lines().collect();
        let (error, hints) = lines.split_first().expect(&line);
        assert!(error.starts_with("error: "), "{line}: {talk}");
        assert!(!error.contains("invalid digit"), "{line}: {talk}");
        assert!(hints.len() <= 1, "{line}: {talk}");
        let Some(hint) = hints.first() else { continue };
        let hint = hint.strip_prefix("hint: ").expect(&talk);
        let placeholder = hint
            .split('<')
            .skip(1)
            .any(|rest| rest.starts_with(char::is_alphabetic));
        assert!(!placeholder, "{line}: {talk}");
        for word in ["invalid digit", "use '--"] {
            assert!(!hint.contains(word), "{line}: {talk}");
        }
        let (commands, rest) = commands(hint);
        for typed in commands {
            assert!(type_in(typed).status.success(), "{line}: {talk}");
        }
        let instrument = line.split(' ').next().unwrap_or_default();
        let help = type_in(&format!("tiptoe {instrument} --help")).stdout;
        let help = String::from_utf8_lossy(&help).into_owned();
        for option in options(&rest) {
            let is_listed = options(&help).any(|listed| listed == option);
            assert!(is_listed, "{option} is no option: {line}: {talk}");
        }
    }
}

#[test]
fn the_words_of_via_were_another_commands() {
    let hot = target("hot").display().to_string();
    for (command, has_threads) in [("probe", false), ("lock", false), ("watch", true)] {
        let line = match command {
            "lock" => "lock --via magic --".to_owned(),
            _ => format!("{command} main --via magic --"),
        };
        let talk = type_in(&format!("tiptoe {line} {hot}")).stderr;
        let help = type_in(&format!("tiptoe {command} -h")).stdout;
        for text in [talk, help] {
            let text = String::from_utf8_lossy(&text);
            assert!(text.contains("agent, kernel"), "{command}: {text}");
            assert_eq!(
                text.contains("kernel-task"),
                has_threads,
                "{command}: {text}"
            );
        }
    }
}

/// Users insert the output of `pidof`, which separates ids by spaces.
#[test]
fn a_second_process_id_was_taken_for_a_function() {
    for line in [
        "probe main -p 1 2",
        "lock -p 1 2",
        "lock --pid=1 2",
        "stat -p 1 2",
        "watch hits -p 1 2",
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        refused(&words, &["'2'", "separated by commas: -p 1,2"]);
    }
}

#[test]
fn a_number_without_process_ids_was_taken_for_one() {
    let hot = target("hot").display().to_string();
    for line in ["bug out 5", "lock 5 -- HOT -p", "probe 5 -- HOT"] {
        let line = line.replace("HOT", &hot);
        let output = output(command().args(line.split(' ')));
        let talk = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{line}: {talk}");
        assert!(
            talk.contains("'5'") || talk.contains("`5`"),
            "{line}: {talk}"
        );
        assert!(!talk.contains("commas"), "{line}: {talk}");
    }
}

/// Regression: the search for the hint panicked.
#[test]
fn a_refused_word_was_no_utf_8() {
    let word = OsStr::from_bytes(b"\xff");
    for words in [[word].as_slice(), &["lock".as_ref(), word]] {
        let output = output(command().args(words));
        let talk = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{words:?}: {talk}");
        assert!(talk.starts_with("error: "), "{words:?}: {talk}");
    }
}

#[test]
fn no_such_process() {
    refused(&["probe", "main", "-p", "4194303"], &["4194303"]);
}

#[test]
fn no_such_command() {
    refused(
        &["probe", "main", "--", "/nonexistent/program"],
        &["/nonexistent/program"],
    );
}

#[test]
fn the_error_for_a_glob_names_the_libraries_that_match_it() {
    let hot = target("hot");
    refused(
        &["probe", "*mallopt*", "--", hot.to_str().expect("text")],
        &["no function matches", "there is `'libc.so.6:*mallopt*'`"],
    );
}

#[test]
fn the_error_for_an_unknown_symbol_names_the_nearest() {
    refused(
        &[
            "probe",
            "chose",
            "--",
            target("hot").to_str().expect("text"),
        ],
        &["chose", "choose"],
    );
}

#[test]
fn no_such_binary() {
    // tiptoe must start the command, because the command might load the library.
    let run = Probe::new(&["libnothing.so.9:f"]).run(&target("hot"), &[]);
    assert_eq!(run.status, 2, "{}", run.stderr);
    let said = "error: `libnothing.so.9:f` matched nothing that was loaded";
    assert!(run.stderr.contains(said), "{}", run.stderr);
    assert!(!run.stdout.is_empty(), "the command has run");
}

#[test]
fn a_glob_that_matches_nothing() {
    refused(
        &["probe", "zzz*", "--", target("hot").to_str().expect("text")],
        &["zzz*"],
    );
}

#[test]
fn a_probe_on_data() {
    refused(
        &[
            "probe",
            "choices",
            "--",
            target("hot").to_str().expect("text"),
        ],
        &["choices"],
    );
}

#[test]
fn options_of_watch_that_do_nothing_were_ignored() {
    let mut program = Process::waiting(&target("hot"), &["1", "1"]);
    let pid = program.pid().to_string();
    let watch = ["watch", "add:x", "-p", &pid];
    for (options, said) in [
        (
            &["--thread", &pid][..],
            "--thread is only for thread-local variables",
        ),
        (
            &["--changed"],
            "--changed compares values, and `hot:add:x` is code",
        ),
        (
            &["--when", "new == 0"],
            "--when compares values, and `hot:add:x` is code",
        ),
    ] {
        refused(&[&watch[..], options].concat(), &[said]);
    }
    program.go();
    assert!(program.finish().1.success());
}

#[test]
fn nothing_to_trace() {
    refused(&["probe", "main"], &["-p"]);
}

#[test]
fn a_malformed_filter_is_refused() {
    refused(
        &[
            "probe",
            "add",
            "--filter",
            "arg9 >",
            "--",
            target("hot").to_str().expect("text"),
        ],
        &["filter"],
    );
}

#[test]
fn a_filter_of_kernel_probes_is_refused() {
    let program = target("hot");
    let arguments = [
        "probe",
        "add",
        "--via",
        "kernel",
        "--filter",
        "arg0 > 1",
        "--",
        program.to_str().expect("text"),
    ];
    refused(&arguments, &["filter"]);
}

#[test]
fn a_library_function_is_found_without_the_librarys_name() {
    let program = target("hot");
    let program = program.to_str().expect("text");
    let output = command().args(["probe", "malloc", "--", program]).output();
    let output = output.expect("tiptoe runs");
    let talk = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{talk}");
    for said in [
        "note: the program has no function `malloc`: `libc.so.6:malloc` is probed",
        "event (uprobe:libc.so.6:…, via agent)",
    ] {
        assert!(talk.contains(said), "{said}: {talk}");
    }
    refused(
        &["probe", "libc.so.6", "--", program],
        &["`libc.so.6:FUNCTION`"],
    );
}

#[test]
fn a_ready_descriptor_that_cannot_be_written_to_is_refused() {
    for instrument in [
        &["probe", "main"][..],
        &["lock"],
        &["watch", "hits"],
        &["stat"],
    ] {
        let never = ["--ready-fd", "1000", "-p", "1"];
        let said = [
            "--ready-fd 1000 cannot be written to",
            "hint: in a shell: --ready-fd 3 3>FILE",
        ];
        refused(&[instrument, &never].concat(), &said);
        refused(
            &[instrument, &["--ready-fd", "2", "-p", "1"]].concat(),
            &["--ready-fd <N>"],
        );
    }
}
