//! `tiptoe watch`: the form of reports, lines and notes, and exit statuses.

use tiptoe_tests::process::output;
use tiptoe_tests::{Form, Process, command, root, target};

use crate::watch::{EVERY, KERNELS, heard, on};

/// JSON paths of strings that depend on compiler, machine or chance.
const ANY: [&str; 7] = [
    ".at",
    ".command[]",
    ".tiptoe",
    ".watch.form.why",
    ".watch.rows[].at",
    ".watch.rows[].stacks[].callers[]",
    ".watch.drops[].reason",
];

fn printed(options: &str, mode: &str, rounds: u64) -> String {
    let mut tiptoe = command();
    tiptoe
        .arg("watch")
        .args(options.split(' '))
        .args(["-o", "-", "--"]);
    tiptoe.arg(target("watched"));
    let run = output(tiptoe.args([mode, &rounds.to_string()]));
    let talk = String::from_utf8_lossy(&run.stderr);
    assert_eq!(run.status.code(), Some(0), "{options}: {talk}");
    assert_eq!(talk, "", "a command owns stderr");
    String::from_utf8_lossy(&run.stdout).into_owned()
}

fn plain(text: &str) -> String {
    let of_line = |line: &str| {
        let mut plain = String::new();
        let mut is_after_number = false;
        for word in line.split_whitespace() {
            let core = word.trim_end_matches([',', ';', ':', ')']);
            let mut units = ["ns", "us", "ms", "min", "s"].iter();
            let number = units.find_map(|unit| core.strip_suffix(unit));
            let is_number = |text: &str| match text.is_empty() {
                true => is_after_number,
                false => text.chars().all(|c| c.is_ascii_digit() || c == '.'),
            };
            let word = match number.filter(|number| is_number(number)) {
                Some(number) => format!("{number}T{}", &word[core.len()..]),
                None => word.to_owned(),
            };
            is_after_number = word.ends_with(|last: char| last.is_ascii_digit());
            for (index, part) in word.split("0x").enumerate() {
                plain += match index {
                    0 => part,
                    _ => "0x0",
                };
                if index > 0 {
                    plain += part.trim_start_matches(|digit: char| digit.is_ascii_hexdigit());
                }
            }
            plain.push(' ');
        }
        plain + "\n"
    };
    text.lines().map(of_line).collect()
}

fn assert_form(form: &Form, name: &str) {
    let file = root().join(format!("tests/e2e/forms/watch-{name}.txt"));
    form.assert_is(&std::fs::read_to_string(file).expect("a form"));
}

#[test]
fn the_json_keeps_its_form() {
    on(EVERY, |via| {
        let all = "stats.level mode --trace --by thread --stats";
        let options = format!("{all} --json --budget off --via {via}");
        let text = printed(&options, "values", 1);
        assert_form(&Form::of_json(&text, &ANY), via);
    });
}

#[test]
fn the_json_of_turns_and_of_an_allowance_keeps_its_form() {
    on(KERNELS, |via| {
        let five = "counts[0]/pinned/ counts[1] counts[2] counts[3] counts[4]";
        let options = format!("{five} --json --rotate 20ms --budget off --via {via}");
        let text = printed(&options, "counting", 1_000);
        assert_form(&Form::of_json(&text, &ANY), "turns");
        let text = printed(&format!("stats.hits --json --via {via}"), "hot", 300);
        assert_form(&Form::of_json(&text, &ANY), "allowance");
    });
}

#[test]
fn the_text_keeps_its_form() {
    on(EVERY, |via| {
        let options = format!("stats.level --trace --budget off --via {via}");
        let text = printed(&options, "values", 1);
        // Callers depend on the C library, and the cost's words depend on chance.
        let left_out = ["<-", "cost", "tiptoe itself"];
        let is_kept = |line: &&str| !left_out.iter().any(|words| line.contains(words));
        let kept: Vec<&str> = text.lines().filter(is_kept).collect();
        let form = Form::of_text(&plain(&kept.join("\n")));
        assert_form(&form, &format!("text-{via}"));
    });
}

fn talk(options: &[&str], program: &mut Process, words: &str) -> [Form; 2] {
    let watched = heard(options, program.pid());
    watched.wait_ready();
    program.go();
    watched.wait_for(words);
    program.close();
    program.wait();
    let said = watched.talk();
    let report = watched.finish();
    let notes = report.value["notes"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let notes: Vec<&str> = notes.iter().filter_map(|note| note.as_str()).collect();
    [said, notes.join("\n")].map(|text| Form::of_text(&plain(&text)))
}

#[test]
fn notes_keep_their_form() {
    on(EVERY, |via| {
        for (mode, variable, words) in [
            ("moved", "head->next", "the watch follows its pointers"),
            ("late", "late->next", "is watched since"),
        ] {
            let mut program = Process::waiting(&target("watched"), &[mode, "1"]);
            let [said, notes] = talk(&[variable, "--via", via], &mut program, words);
            assert_form(&said, &format!("{mode}-talk"));
            assert_form(&notes, &format!("{mode}-notes"));
        }
        let text = printed(&format!("stats.hits --budget off --via {via}"), "again", 1);
        let notes = text.lines().filter(|line| line.contains("exec"));
        let notes: Vec<&str> = notes.collect();
        assert_form(&Form::of_text(&plain(&notes.join("\n"))), "exec-notes");
    });
}

#[test]
fn exit_statuses_are_the_commands() {
    on(EVERY, |via| {
        for (script, status) in [("exit 7", 7), ("kill -TERM $$", 128 + libc::SIGTERM)] {
            let mut tiptoe = command();
            tiptoe.args(["watch", "environ", "--via", via, "--json", "-o", "-"]);
            let run = output(tiptoe.args(["--", "sh", "-c", script]));
            let talk = String::from_utf8_lossy(&run.stderr);
            assert_eq!(run.status.code(), Some(status), "{script}: {talk}");
        }
    });
}
