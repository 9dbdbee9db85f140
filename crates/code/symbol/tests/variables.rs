//! Compares variables of running programs with gdb's.

mod common;
#[path = "common/process.rs"]
mod process;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use common::{Disk, image, tool};
use process::Process;
use tempfile::TempDir;
use tiptoe_symbol::variable::{LoadedFile, Plan, Thread, Variables, Watch};
use tiptoe_symbol::{Content, Image};

const C: &str = include_str!("fixtures/variables.c");
const HIDDEN: &str = include_str!("fixtures/hidden.c");
const CPP: &str = include_str!("fixtures/variables.cpp");
const RUST: &str = include_str!("fixtures/variables.rs");

struct Program {
    _folder: TempDir,
    path: PathBuf,
    how: String,
}

fn build(compiler: &str, sources: &[(&str, &str)], options: &[&str]) -> Option<Program> {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("prog");
    let mut arguments: Vec<String> = options.iter().map(|o| o.to_string()).collect();
    for (name, source) in sources {
        let from = folder.path().join(name);
        fs::write(&from, source).unwrap();
        arguments.push(from.to_str().unwrap().to_owned());
    }
    arguments.extend(["-o".into(), path.to_str().unwrap().to_owned()]);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    tool(compiler, &arguments)?;
    let how = format!("{compiler} {}", options.join(" "));
    Some(Program {
        _folder: folder,
        path,
        how,
    })
}

/// Returns half of all combinations of options, or the other half. Each half has every pair of options.
fn mixes(other: bool) -> Vec<Vec<&'static str>> {
    let mut mixes = Vec::new();
    for dwarf in ["-gdwarf-4", "-gdwarf-5"] {
        for optimised in ["-O0", "-O2"] {
            for pie in [&["-pie", "-fPIE"][..], &["-no-pie", "-fno-pie"]] {
                mixes.push([&[dwarf, optimised], pie].concat());
            }
        }
    }
    let is_wanted = |at: usize| (at.count_ones() % 2 == 1) == other;
    let numbered = mixes.into_iter().enumerate();
    numbered
        .filter_map(|(at, mix)| is_wanted(at).then_some(mix))
        .collect()
}

#[derive(Debug, PartialEq)]
struct FoundVariable {
    address: u64,
    size: u64,
    value: String,
}

struct RunningProgram {
    program: Program,
    bytes: Content,
    image: Image,
    process: Process,
}

impl RunningProgram {
    fn start(program: Program) -> RunningProgram {
        let bytes = fs::read(&program.path).unwrap().into();
        let image = image(&program.path).unwrap();
        let process = Process::start(&program.path);
        RunningProgram {
            program,
            bytes,
            image,
            process,
        }
    }

    fn plan(&self, text: &str) -> Result<Plan, String> {
        let watch = Watch::parse(text).map_err(|error| error.to_string())?;
        let source = Disk::of(&self.program.path);
        let variables = |variables: &Variables<'_>| variables.plan(&watch);
        let plan = self.image.variables(&self.bytes, &source, variables);
        plan.map_err(|error| error.to_string())
    }

    fn find(&self, text: &str, thread_pointer: u64) -> Result<FoundVariable, String> {
        let plan = self.plan(text)?;
        let path = self.program.path.to_str().unwrap();
        let bias = match self.image.header().position_independent {
            true => self.process.base(path).unwrap(),
            false => 0,
        };
        let mut read = |address: u64, bytes: &mut [u8]| self.process.read(address, bytes);
        let thread = Thread {
            pointer: thread_pointer,
            bias,
            is_program: true,
            is_musl: false,
        };
        let thread_block = thread.block(&self.image, &mut read).ok();
        let place = LoadedFile { bias, thread_block };
        let address = plan
            .locate(&place, &mut read)
            .map_err(|error| error.to_string())?;
        let size = plan.value.size.unwrap_or(0);
        let mut value = vec![0; size.min(8) as usize];
        assert!(
            self.process.read(address, &mut value),
            "{text}: nothing at {address:#x}"
        );
        let value = plan.value.describe(&value);
        Ok(FoundVariable {
            address,
            size,
            value,
        })
    }

    /// Each pair has tiptoe's expression, and gdb's expression if the two differ.
    fn agrees_with_gdb(&self, language: &str, expressions: &[(&str, &str)]) {
        let mut prints = vec!["print $fs_base".to_owned()];
        for (ours, gdbs) in expressions {
            let text = if gdbs.is_empty() { ours } else { gdbs };
            prints.extend(["&", "sizeof", ""].map(|ask| format!("print {ask}({text})")));
        }
        let Some(answers) = gdb(&self.process, language, &prints) else {
            return;
        };
        let thread_pointer = answers[0].parse().unwrap();
        let how = &self.program.how;
        for ((text, _), answers) in expressions.iter().zip(answers[1..].chunks(3)) {
            let found = self.find(text, thread_pointer);
            let found = found.unwrap_or_else(|error| panic!("{how}: {text}: {error}"));
            let address = format!("{:#x}", found.address);
            println!("{how}: {text}: {found:x?}; gdb: {answers:?}");
            assert_eq!(hex_in(&answers[0]), Some(&*address), "{how}: {text}");
            assert_eq!(answers[1], found.size.to_string(), "{how}: {text}");
            let (value, ours) = (&*answers[2], &*found.value);
            let same = is_same(value, ours);
            assert!(same, "{how}: {text}: {value} in gdb, and here {ours}");
        }
    }

    fn refuses(&self, text: &str, parts: &[&str]) {
        let error = self.find(text, 0).map(|found| panic!("{text}: {found:?}"));
        let error = error.unwrap_or_else(|error| error);
        println!("{text}: {error}");
        for part in parts {
            assert!(
                error.contains(part),
                "{}: {text}: {error}",
                self.program.how
            );
        }
    }
}

/// gdb's text of a structure or array is not compared, because tiptoe's text is one number.
fn is_same(gdb: &str, ours: &str) -> bool {
    let last = gdb.rsplit([' ', ':']).next();
    gdb == ours
        || last == Some(ours)
        || gdb.starts_with(['{', '"', '['])
        || gdb.contains(" {")
        || hex_in(gdb) == Some(ours)
        || gdb.contains('\'') && gdb.split(' ').next() == ours.split(' ').next()
}

fn gdb(process: &Process, language: &str, prints: &[String]) -> Option<Vec<String>> {
    let (pid, language) = (
        process.pid().to_string(),
        format!("set language {language}"),
    );
    let mut command = Command::new("gdb");
    command.args(["-nx", "-batch", "-p", &pid, "-ex", &language]);
    for print in prints {
        command.args(["-ex", "echo @@", "-ex", print]);
    }
    let output = command.stdin(Stdio::null()).output();
    let Ok(output) = output else {
        common::skipped("gdb", "it is not installed");
        return None;
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let answers = text.split("@@").skip(1).map(|answer| {
        let (_, value) = answer.split_once(" = ").unwrap_or_default();
        value.lines().next().unwrap_or_default().trim().to_owned()
    });
    let answers: Vec<String> = answers.collect();
    assert_eq!(
        answers.len(),
        prints.len(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Some(answers)
}

fn hex_in(text: &str) -> Option<&str> {
    let text = &text[text.find("0x")?..];
    let end = text[2..].find(|c: char| !c.is_ascii_hexdigit());
    Some(&text[..end.map_or(text.len(), |end| end + 2)])
}

const C_EXPRESSIONS: [(&str, &str); 42] = [
    ("stats.hits", ""),
    ("stats.misses", ""),
    ("stats.name[2]", ""),
    ("stats.name", ""),
    ("stats.colour", ""),
    ("stats.on", ""),
    ("stats", ""),
    ("counter", ""),
    ("'variables.c'::counter", ""),
    ("tick::count", ""),
    ("count", "tick::count"),
    ("'variables.c'::twin", ""),
    ("'hidden.c'::twin", ""),
    ("nodes", ""),
    ("nodes[2].id", ""),
    ("nodes[1].word", ""),
    ("nodes[1].bytes[3]", ""),
    ("nodes[3].inner.b", ""),
    ("nodes[3].weight", ""),
    ("nodes[0].next->next->id", ""),
    ("nodes[0].call", ""),
    ("*nodes", ""),
    ("table[3]", ""),
    ("table[3]->next", ""),
    ("(*table[1]).inner.b", ""),
    ("*table[2]", ""),
    ("(table[0])->weight", ""),
    ("table[1]->next[1].id", ""),
    ("matrix[2][4]", ""),
    ("matrix[1]", ""),
    ("*matrix[1]", ""),
    ("*ptr", ""),
    ("ptr[-1]", ""),
    ("**pointer_to_ptr", ""),
    ("letter", ""),
    ("byte", ""),
    ("ratio", ""),
    ("half", ""),
    ("odd", ""),
    ("packed.value", ""),
    ("hidden->second", "'hidden.c'::one.second"),
    ("hidden->self->first", "'hidden.c'::one.first"),
];

#[test]
fn variables_of_c() {
    check_c(false);
}

#[test]
#[ignore = "nightly: other options of the compiler"]
fn variables_of_c_with_other_options() {
    check_c(true);
}

fn check_c(other: bool) {
    for mix in mixes(other) {
        let sources = [("variables.c", C), ("hidden.c", HIDDEN)];
        let Some(program) = build("gcc", &sources, &mix) else {
            return;
        };
        let running = RunningProgram::start(program);
        running.agrees_with_gdb("c", &C_EXPRESSIONS);
        running.agrees_with_gdb("c", &[("mine", ""), ("also_mine", ""), ("function", "")]);
        running.refuses("statz.hits", &["no variable `statz`", "`stats`"]);
        running.refuses(
            "stats.hitz",
            &["`stats` has no member `hitz`", "`hits`, `misses`"],
        );
        running.refuses("nodes[0].inner.c", &["`a` and `b`"]);
        running.refuses(
            "nodes[1].flag",
            &[
                "`nodes[1].flag` is a bit field (3 bits)",
                "byte 0x",
                "of the file",
            ],
        );
        running.refuses(
            "table[0]->rest",
            &["7 bits", "bytes 0x4 to 0x5 of its structure"],
        );
        running.refuses("main", &["`main` is a function"]);
        running.refuses("tick::local", &["`tick::local`"]);
        running.refuses("twin", &["variables.c'::twin`", "hidden.c'::twin`"]);
        running.refuses("*stats.name.x", &["which has no members"]);
        running.refuses("counter.x", &["`volatile long int`, which has no members"]);
        running.refuses("*counter", &["neither a pointer nor an array"]);
        running.refuses("matrix[3][0]", &["`matrix` has 3 elements"]);
        running.refuses("table[7]->id", &["`table[7]` is null"]);
        running.refuses("nothing->x", &["`void *`, which has no members"]);
        running.refuses("*nodes[0].bytes[1]", &["neither"]);
        running.refuses("table[1]->bytes->x", &["no members"]);
    }
}

#[test]
fn variables_of_cpp() {
    check_cpp(false);
}

#[test]
#[ignore = "nightly: other options of the compiler"]
fn variables_of_cpp_with_other_options() {
    check_cpp(true);
}

fn check_cpp(other: bool) {
    let expressions = [
        ("counter", "::counter"),
        ("ns::counter", ""),
        ("'ns::counter'", ""),
        ("_ZN2ns7counterE", "ns::counter"),
        ("ns::hidden", "'ns::(anonymous namespace)::hidden'"),
        ("ns::versioned", "ns::v1::versioned"),
        ("ns::Derived::shared", ""),
        ("'ns::Derived::shared'", ""),
        ("Derived::shared", "ns::Derived::shared"),
        ("ns::Derived::inlined", ""),
        ("ns::Box<int>::held", "'ns::Box<int>::held'"),
        ("ns::object.level", ""),
        ("ns::object.flag", ""),
        ("ns::object.wide", ""),
        ("ns::object.reference", ""),
        ("ns::object.inner.deep", ""),
        ("ns::object.base_field", ""),
        ("ns::object.other_field", ""),
        ("ns::pointer->self->other_field", ""),
        ("ns::pointer", ""),
        ("ns::alias", ""),
        ("ns::object.atomic", "ns::object.atomic._M_i"),
        ("ns::method::calls", "'ns::method(long)::calls'"),
        ("'ns::method(long)::calls'", ""),
        (
            "ns::Counter::count::total",
            "'ns::Counter::count(long)::total'",
        ),
        ("ns::mine", ""),
        ("ns::virtually->own", ""),
    ];
    for mix in mixes(other) {
        let sources = [("variables.cpp", CPP)];
        let options = [&["-std=c++17"][..], &mix].concat();
        let Some(program) = build("g++", &sources, &options) else {
            return;
        };
        let running = RunningProgram::start(program);
        running.agrees_with_gdb("c++", &expressions);
        running.find("ns::inlined::inner", 0).unwrap();
        running.refuses(
            "ns::Derived::constant",
            &["no place in memory", "always 32"],
        );
        running.refuses("ns::Derived::large", &["always 18446744073709551615"]);
        running.refuses("ns::virtually->other_field", &["virtual base class"]);
        running.refuses("held", &["several variables", "`ns::Box<long int>::held`"]);
        running.refuses("ns::method", &["is a function"]);
    }
}

#[test]
fn variables_of_rust() {
    let expressions = [
        ("prog::inner::HITS", ""),
        ("inner::HITS", "prog::inner::HITS"),
        ("HITS", "prog::inner::HITS"),
        ("TABLE[2].id", "prog::inner::TABLE[2].id"),
        ("TABLE[1].pair.1", "prog::inner::TABLE[1].pair.1"),
        ("TABLE[1].level", "prog::inner::TABLE[1].level"),
        ("LETTER", "prog::inner::LETTER"),
        ("prog::RATIO", ""),
        ("(*POINTER).id", "(*prog::POINTER).id"),
        ("POINTER->pair.0", "(*prog::POINTER).pair.0"),
    ];
    for dwarf in ["-Zdwarf-version=4", "-Zdwarf-version=5"] {
        for level in ["0", "2"] {
            let level = format!("-Copt-level={level}");
            let dwarf = dwarf.replace("-Z", "-C");
            let options = [
                "--edition=2024",
                "-g",
                &*dwarf,
                &*level,
                "--crate-name=prog",
            ];
            let Some(program) = build("rustc", &[("variables.rs", RUST)], &options) else {
                return;
            };
            let running = RunningProgram::start(program);
            running.agrees_with_gdb("rust", &expressions);
            running.find("prog::count::CALLS", 0).unwrap();
            running.refuses("TABLE[3].id", &["has 3 elements"]);
            running.refuses("TABLE[0].level.x", &["no members"]);
        }
    }
}
