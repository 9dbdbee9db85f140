//! Counts and times all functions of real programs, whose output and status must not change. `make nightly` runs the
//! first of each list, `make stress` all.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;

use tiptoe_tests::process::{FedProcess, output};
use tiptoe_tests::tiptoe::take_report;
use tiptoe_tests::{Probe, go_target, installed, java_target, scaled, skipped, target};

mod servers;

const EVERYTHING: &[&str] = &["*:*"];

struct Program {
    path: PathBuf,
    arguments: Vec<String>,
    input: Vec<u8>,
}

/// A program's stdout and status, which is 128 + N for signal N.
#[derive(PartialEq, Eq)]
struct ProgramResult(Vec<u8>, i32);

impl Program {
    fn new(name: &str, arguments: &[&str], input: impl Into<Vec<u8>>) -> Result<Program, String> {
        let path = installed(name).ok_or_else(|| format!("{name} is not installed"))?;
        Ok(Program::at(path, arguments, input))
    }

    fn at(path: PathBuf, arguments: &[&str], input: impl Into<Vec<u8>>) -> Program {
        Program {
            path,
            arguments: arguments.iter().map(|&text| text.to_owned()).collect(),
            input: input.into(),
        }
    }

    fn run(&self, command: &mut Command, while_it_waits: impl FnOnce(u32)) -> ProgramResult {
        steady(command);
        let program = FedProcess::start(command);
        while_it_waits(program.pid());
        let (stdout, status) = program.finish(&self.input);
        ProgramResult(stdout, status)
    }

    fn alone(&self) -> ProgramResult {
        self.run(Command::new(&self.path).args(&self.arguments), |_| {})
    }

    fn launched(&self, probe: &Probe) -> ProgramResult {
        let (mut command, report) = probe.launch(&self.path);
        let ended = self.run(command.args(&self.arguments), |_| {});
        assert!(
            take_report(&report).is_some(),
            "no report of {}",
            self.path.display()
        );
        ended
    }

    fn attached(&self, probe: &Probe) -> ProgramResult {
        let mut attached = None;
        let ended = self.run(Command::new(&self.path).args(&self.arguments), |pid| {
            let probing = probe.attach(&[pid]);
            probing.wait_ready();
            attached = Some(probing);
        });
        attached.expect("it was started").finish();
        ended
    }

    fn check(&self, how: &[&str]) {
        let alone = self.alone();
        let probe = Probe::new(EVERYTHING).with(how);
        for (way, ended) in [
            ("launched", self.launched(&probe)),
            ("attached", self.attached(&probe)),
        ] {
            let name = self.path.display();
            assert_eq!(ended.1, alone.1, "{name}, {way}: status");
            assert!(
                ended.0 == alone.0,
                "{name}, {way}: stdout\n{}",
                String::from_utf8_lossy(&ended.0)
            );
        }
    }
}

/// Fixes hash seeds and the language, so that the output is the same each time.
fn steady(command: &mut Command) -> &mut Command {
    command.envs([
        ("PYTHONHASHSEED", "0"),
        ("PERL_HASH_SEED", "0"),
        ("LC_ALL", "C"),
    ])
}

fn each<T>(all: &[(&str, T)], least: u64, check: impl Fn(&T) -> Result<(), String>) {
    let count = scaled(all.len() as u64).max(least) as usize;
    let failed = all.iter().take(count).filter(|(name, one)| {
        let checked = catch_unwind(AssertUnwindSafe(|| check(one)));
        if let Ok(Err(why)) = &checked {
            skipped(name, why);
        }
        checked.is_err()
    });
    let failed: Vec<&str> = failed.map(|(name, _)| *name).collect();
    assert!(failed.is_empty(), "not as without tiptoe: {failed:?}");
}

type Build = fn() -> Result<Program, String>;

/// Quick programs are first.
const PROGRAMS: [(&str, Build); 16] = [
    ("perl", || Program::new("perl", &["-e", PERL], "seed\n")),
    ("libm", || Ok(Program::at(target("libm"), &[], "go\n"))),
    ("C++", || Ok(Program::at(target("mixed_cc"), &[], "go\n"))),
    ("Rust", || {
        Ok(Program::at(target("mixed_rust"), &[], "go\n"))
    }),
    ("sqlite3", || {
        Program::new("sqlite3", &["-batch", ":memory:"], SQL)
    }),
    ("xz", || Program::new("xz", &["-3", "-T2", "-c"], text())),
    ("openssl", || Program::new("openssl", &ENCRYPT, text())),
    ("sort", || {
        Program::new("sort", &["-k2", "--parallel=2"], text())
    }),
    ("bash", || Program::new("bash", &["-s"], BASH)),
    ("git", git),
    ("Go", go),
    ("as", || {
        Program::new("as", &["-aln", "-o", "/dev/null"], ASSEMBLY.repeat(200))
    }),
    ("cc1", cc1),
    ("python3's tests", || {
        Program::new("python3", &["-c", PYTHON], PYTHON_TESTS)
    }),
    ("java", java),
    ("node", || Program::new("node", &["-e", NODE], "seed\n")),
];

#[test]
#[ignore = "nightly: all functions of real programs"]
fn all_functions_of_real_programs_are_counted() {
    each(&PROGRAMS, 2, |build| {
        build().map(|program| program.check(&[]))
    });
}

#[test]
#[ignore = "nightly: all functions of real programs"]
fn all_functions_of_real_programs_are_timed() {
    each(&PROGRAMS, 2, |build| {
        build().map(|program| program.check(&["--latency"]))
    });
}

const PERL: &str = r#"
my $seed = <STDIN>; my %h;
for my $i (1 .. 20000) { $h{"k" . ($i % 997)} += $i }
my $text = $seed . join(",", map { "$_=$h{$_}" } sort keys %h);
print length($text), " ", unpack("%32C*", $text), " ", sprintf("%.12f", sin(1) + log(3) ** 2.5), "\n";
eval { die { why => "x" } }; print ref $@, " ", scalar(() = $text =~ /k(\d+)5=/g), "\n";
my $pid = fork; if (!$pid) { print "child\n"; exit 3 } waitpid $pid, 0; print $? >> 8, "\n"; exit 7"#;

const SQL: &str = "create table t(a integer primary key, b text, c real);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 3000) insert into t select i, 'row ' || i, i / 7.0 from n;
create index tb on t(b);
select count(*), sum(a), max(b), avg(c), round(sin(sum(c)), 9) from t where b like 'row 1%';
select nothing; select group_concat(a) from t where b glob '*77';";

const ENCRYPT: [&str; 8] = [
    "enc",
    "-aes-256-cbc",
    "-pbkdf2",
    "-S",
    "0011223344556677",
    "-k",
    "word",
    "-nosalt",
];

const BASH: &str = r#"declare -A words; for i in {1..2000}; do words[k$((i % 97))]+=$i; done
for word in $(printf '%s\n' "${!words[@]}" | sort); do [[ ${words[$word]} =~ 9$ ]] && echo "$word ${#words[$word]}"; done
trap 'echo trapped' USR1; kill -USR1 $$; (exit 5); echo $?; exit 7"#;

const ASSEMBLY: &str = "\t.text\n1:\tpushq %rbx\n\tmovq 8(%rdi,%rsi,4), %rax\n\tvpaddd %ymm1, %ymm2, %ymm3\n\tjne 1b\n\tret\n";

const NODE: &str = r#"const seed = require("fs").readFileSync(0, "utf8"), words = {};
for (let i = 0; i < 20000; i++) words["k" + i % 997] = (words["k" + i % 997] || 0) + i;
const sum = require("crypto").createHash("sha256").update(seed + JSON.stringify(words)).digest("hex");
try { null.x } catch (error) { console.log(sum, error.message) }
Promise.all([1, 2, 3].map(async x => x * 2)).then(all => { console.log(all); process.exitCode = 7 });"#;

const PYTHON: &str = "
import io, sys, unittest
names = sys.stdin.read().split()
ran = unittest.TextTestRunner(stream=io.StringIO()).run(unittest.defaultTestLoader.loadTestsFromNames(names))
print(ran.testsRun, sorted(str(test) for test, _ in ran.failures + ran.errors), len(ran.skipped))
sys.exit(7 if ran.testsRun > 500 else 1)";
const PYTHON_TESTS: &str = "test.test_json test.test_re test.test_struct test.test_math test.test_float test.test_generators
test.test_exceptions test.test_dict test.test_list test.test_set test.test_cmath test.test_threading_local test.test_queue test.test_zlib";

fn text() -> Vec<u8> {
    let names = ["CHANGELOG.md", "ARCHITECTURE.md", "README.md"];
    let read = |name| fs::read(tiptoe_tests::root().join(name)).expect("a file of ours");
    names.map(read).concat()
}

fn folder(name: &str) -> PathBuf {
    let folder = tiptoe_tests::target::folder().join(format!("campaign-{name}"));
    fs::create_dir_all(&folder).expect("target is writable");
    folder
}

fn done(command: &mut Command) -> Result<String, String> {
    let done = output(command);
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    done.status
        .success()
        .then(|| said(&done.stdout))
        .ok_or_else(|| said(&done.stderr))
}

fn git() -> Result<Program, String> {
    let git = installed("git").ok_or("git is not installed")?;
    let (repository, sources) = (folder("git"), tiptoe_tests::root().join("tests/targets"));
    done(Command::new(&git).args(["init", "-q"]).arg(&repository))?;
    let mut add = Command::new(&git);
    add.arg("--git-dir").arg(repository.join(".git"));
    done(
        add.arg("--work-tree")
            .arg(&sources)
            .args(["add", "."])
            .current_dir(&sources),
    )?;
    let names = fs::read_dir(&sources).expect("our targets").flatten();
    let mut names: Vec<String> = names
        .map(|entry| format!(":{}\n", entry.file_name().to_string_lossy()))
        .collect();
    names.sort();
    let repository = repository.to_str().ok_or("UTF-8")?;
    Program::new(
        "git",
        &["-C", repository, "cat-file", "--batch"],
        names.concat(),
    )
}

fn go() -> Result<Program, String> {
    Ok(Program::at(go_target("mixed_go", &[])?, &[], "go\n"))
}

fn cc1() -> Result<Program, String> {
    let path = done(Command::new("gcc").arg("-print-prog-name=cc1"))?;
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("targets/hot.c");
    let source = done(Command::new("gcc").args(["-E", "-P"]).arg(source))?;
    Ok(Program::at(
        path.into(),
        &["-quiet", "-O2", "-o", "-", "-"],
        source,
    ))
}

fn java() -> Result<Program, String> {
    let (java, arguments) = java_target("Mixed")?;
    let arguments = arguments.each_ref().map(String::as_str);
    Ok(Program::at(java, &arguments, "go\n"))
}
