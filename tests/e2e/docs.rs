//! Runs each `tiptoe` command of README and the book. Blocks of commands are marked `sh`, those with output
//! `console`.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::LazyLock;

use tiptoe_tests::process::output;
use tiptoe_tests::{Cgroup, Process, command, installed, is_root, root, skipped, target};

/// The replacements in commands, applied in this order. Capital words are the test's programs and cgroups.
const REPLACED: &[(&str, &str)] = &[
    ("$(pidof redis-server)", "REDIS"),
    ("-p 9410", "-p REDIS"),
    ("-p 1278", "-p REDIS"),
    ("-p 31779", "-p REDIS"),
    ("server.stat_numcommands -p REDIS", "head -p WATCHED"),
    (
        "ngx_current_msec --changed -p 2417",
        "head --changed -p WATCHED",
    ),
    ("-- turns 1000000 4 200", "-- TURNS 1000 4 20"),
    ("./watched", "WATCHES"),
    ("./scoped", "SCOPES"),
    ("-- redis-benchmark -q …", "-- true"),
    ("--duration 3", "--duration 0.1"),
    ("--duration 2s", "--duration 0.1"),
    ("db,web", "GROUP/db,GROUP/web"),
    ("'system.slice/*'", "'GROUP/*'"),
    ("--for-each-cgroup NAMES", "--for-each-cgroup GROUP/db"),
    ("-e EVENTS -- CMD", "-e cs -- HOT 1 100"),
    ("-- CMD ARG…", "-- HOT 1 100"),
    ("--under FUNC …", "--under main -- HOT 1 100"),
    ("--by arg0 …", "--by arg0 -- HOT 1 100"),
    ("SPEC…", "libc.so.6:malloc"),
    (
        "A B C D E --rotate 100ms …",
        "'counts[0]' 'counts[1]' 'counts[2]' 'counts[3]' -p WATCHED --rotate 50ms",
    ),
    ("watch VARIABLE -p PID", "watch head -p WATCHED"),
    ("VARIABLE --via agent …", "head --via agent -p WATCHED"),
    ("VARIABLE --trace …", "head --trace -p WATCHED"),
    ("head -p PID", "head -p WATCHED"),
    ("'table[3]->next' -p PID", "'head->next' -p WATCHED"),
    ("0x7ffd1000:4:rw -p PID", "head:8:rw -p WATCHED"),
    ("--hold cache_lock -p PID", "--hold hot_mutex -p CONTENDED"),
    ("--by scope -p PID", "--by scope -p SCOPED"),
    // redis is unsuitable, because its own allocator is a second `malloc`.
    ("> 4096' -p PID", "> 4096' -p WATCHED"),
    ("-p PID", "-p REDIS"),
];

const ENDLESS: [&str; 4] = ["probe", "lock", "watch", "stat"];

const END: &str = "--duration 0.1";

struct Page {
    name: String,
    text: String,
}

static PAGES: LazyLock<Vec<Page>> = LazyLock::new(|| {
    let book = fs::read_dir(root().join("docs/src")).expect("the book");
    let book = book.map(|entry| entry.expect("an entry").path());
    let is_page = |path: &PathBuf| path.extension().is_some_and(|end| end == "md");
    let paths = book.filter(is_page).chain([root().join("README.md")]);
    let page = |path: PathBuf| Page {
        name: path
            .file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned(),
        text: fs::read_to_string(&path).expect("a page"),
    };
    let mut pages: Vec<Page> = paths.map(page).collect();
    pages.sort_by(|one, other| one.name.cmp(&other.name));
    pages
});

struct PageCommand {
    page: &'static str,
    line: String,
}

fn lines_in_blocks(page: &str) -> Vec<(&str, &str)> {
    let (mut language, mut lines) = (None, Vec::new());
    for line in page.lines() {
        match (line.strip_prefix("```"), language) {
            (Some(_), Some(_)) => language = None,
            (Some(opened), None) => language = Some(opened),
            (None, Some(language)) => lines.push((language, line)),
            (None, None) => {}
        }
    }
    lines
}

fn command_in(language: &str, line: &str) -> Option<String> {
    let typed = match language {
        "sh" => line,
        "console" => line.strip_prefix("$ ")?,
        _ => return None,
    };
    let typed = typed.split(" # ").next().unwrap_or_default().trim();
    let is_ours = typed == "tiptoe" || typed.starts_with("tiptoe ");
    is_ours.then(|| typed.to_owned())
}

fn documented() -> Vec<PageCommand> {
    let (mut all, mut seen) = (Vec::new(), BTreeSet::new());
    for page in &*PAGES {
        let lines = lines_in_blocks(&page.text).into_iter();
        for line in lines.filter_map(|(language, line)| command_in(language, line)) {
            if seen.insert(line.clone()) {
                let page = &page.name;
                all.push(PageCommand { page, line });
            }
        }
    }
    all
}

fn shown(command: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    let of_page = move |page: &'static Page| {
        let blocks = page.text.split("```console\n").skip(1);
        let blocks = blocks.filter_map(|rest| rest.split("\n```").next()?.split_once('\n'));
        let ours = move |(line, _): &(&str, &str)| {
            command_in("console", line).is_some_and(|line| line == command)
        };
        blocks.filter(ours).map(|(_, shown)| (&*page.name, shown))
    };
    PAGES.iter().flat_map(of_page)
}

const CUT: &str = "[…]";

fn closing(report: &str) -> BTreeSet<String> {
    let after_cut = report.trim_end().rsplit(CUT).next().unwrap_or_default();
    let last = after_cut.rsplit("\n\n").next().unwrap_or_default();
    let lines = last.lines().filter(|line| !line.is_empty());
    let lines = lines.filter(|line| !line.starts_with("note: ") && !line.starts_with("warning: "));
    let is_number = |letter: char| letter == ':' || letter.is_ascii_digit();
    let begins = |line: &str| line.split(is_number).next().unwrap_or_default().to_owned();
    lines.map(begins).collect()
}

fn stale(command: &str, printed: &Output) -> Vec<String> {
    let instrument = command.split(' ').nth(1).unwrap_or_default();
    let is_report = !command.contains("--record") && !command.contains("--csv");
    if !ENDLESS.contains(&instrument) || !is_report {
        return Vec::new();
    }
    let printed = [&printed.stdout, &printed.stderr].map(|text| String::from_utf8_lossy(text));
    let mut reports = printed
        .iter()
        .filter(|text| text.contains("cost of tracing"));
    let today = closing(reports.next().expect("a report"));
    let is_stale = |(_, report): &(&str, &str)| match report.contains(CUT) {
        true => !closing(report).is_subset(&today),
        false => closing(report) != today,
    };
    let stale = shown(command).filter(is_stale);
    let line = |(page, report): (&str, &str)| {
        let closing = closing(report);
        format!("{page}: {command}\n  ends with {closing:?}, not {today:?}")
    };
    stale.map(line).collect()
}

fn runnable(line: &str) -> String {
    let replace = |line: String, (from, to): &(&str, &str)| line.replace(from, to);
    let line = REPLACED.iter().fold(line.to_owned(), replace);
    let instrument = line.split(' ').nth(1).unwrap_or_default();
    let ends = line.contains(" -- ") || line.contains("--duration");
    match ENDLESS.contains(&instrument) && !ends {
        true => format!("{line} {END}"),
        false => line,
    }
}

#[test]
fn every_command_is_in_a_block_that_is_run() {
    for Page { name, text } in &*PAGES {
        for (language, line) in lines_in_blocks(text) {
            let typed = line.strip_prefix("$ ").unwrap_or(line);
            let is_run = ["sh", "console"].contains(&language);
            let is_command = typed.starts_with("tiptoe ") || line.starts_with("$ ");
            assert!(is_run || !is_command, "{name}: `{language}`: {line}");
            assert!(!language.is_empty(), "{name}: no language: {line}");
        }
    }
}

/// An unused replacement might change a command that is documented later.
#[test]
fn each_replacement_is_needed() {
    let commands = documented();
    assert!(commands.len() > 30, "only {} commands", commands.len());
    for (at, (from, _)) in REPLACED.iter().enumerate() {
        let before = |line: &str| {
            let rules = REPLACED[..at].iter();
            rules.fold(line.to_owned(), |line, (from, to)| line.replace(from, to))
        };
        let mut commands = commands.iter();
        assert!(
            commands.any(|it| before(&it.line).contains(from)),
            "no command has `{from}`"
        );
    }
}

fn redis(program: &PathBuf, folder: &std::path::Path) -> Process {
    let mut server = Command::new(program);
    server
        .args(["--port", "0", "--save", "", "--dir"])
        .arg(folder);
    server.arg("--unixsocket").arg(folder.join("socket"));
    let process = Process::start(&mut server);
    let socket = folder.join("socket");
    tiptoe_tests::process::wait_until("redis", std::time::Duration::from_secs(60), || {
        socket.exists()
    });
    process
}

#[test]
fn outputs_lacked_lines_that_reports_have() {
    for (report, expected) in [
        ("a 1\n\ncost: 5%\n", &["cost"][..]),
        (
            "a\n\nnote: b\ntiptoe used 3 s\ncost: 5%",
            &["cost", "tiptoe used "],
        ),
        ("a\n[…]\ncost: 5%", &["cost"]),
        ("a\n\n[…]", &[]),
    ] {
        let closing: Vec<String> = closing(report).into_iter().collect();
        assert_eq!(closing, expected, "{report}");
    }
}

#[test]
#[ignore = "nightly: traces with some forty commands, one after another"]
fn every_command_of_the_documentation_works() {
    if !is_root() {
        return skipped("commands of the documentation", "some need root");
    }
    let Some(server) = installed("redis-server") else {
        return skipped(
            "commands of the documentation",
            "redis-server is not installed",
        );
    };
    let cgroup = match Cgroup::new() {
        Ok(cgroup) => cgroup,
        Err(why) => return skipped("commands of the documentation", &why),
    };
    cgroup.make("db");
    cgroup.make("web");
    let folder = std::env::temp_dir().join(format!("tiptoe-docs-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a temporary folder");
    let redis = redis(&server, &folder);
    let waiting = |name: &str, words: &[&str]| Process::waiting(&target(name), words);
    let watched = waiting("watched", &["counting", "5"]);
    let contended = waiting("contended", &["mutex", "5"]);
    let scoped = waiting("scoped", &["calls", "1", "5"]);
    let path = |name: &str| target(name).display().to_string();
    let programs = [
        ("REDIS", redis.pid().to_string()),
        ("WATCHED", watched.pid().to_string()),
        ("CONTENDED", contended.pid().to_string()),
        ("SCOPED", scoped.pid().to_string()),
        ("GROUP", cgroup.name()),
        ("HOT", path("hot")),
        ("TURNS", path("turns")),
        ("WATCHES", path("watched")),
        ("SCOPES", path("scoped")),
    ];
    let tiptoe = PathBuf::from(command().get_program());
    let search = std::env::var("PATH").unwrap_or_default();
    let search = format!("{}:{search}", tiptoe.parent().expect("a folder").display());
    let mut failed = Vec::new();
    for (at, PageCommand { page, line }) in documented().iter().enumerate() {
        let run = programs.iter().fold(runnable(line), |line, (name, value)| {
            line.replace(name, value)
        });
        assert!(
            !run.contains('…'),
            "{page}: nothing replaces the `…` in: {line}"
        );
        let place = folder.join(at.to_string());
        fs::create_dir_all(&place).expect("a temporary folder");
        let mut shell = Command::new("bash");
        shell
            .args(["-c", &run])
            .current_dir(place)
            .env("PATH", &search);
        let output = output(&mut shell);
        if output.status.success() {
            failed.extend(stale(line, &output));
        } else {
            let said = String::from_utf8_lossy(&output.stderr);
            failed.push(format!(
                "{page}: {line}\n  run as {run}\n  {}: {said}",
                output.status
            ));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
