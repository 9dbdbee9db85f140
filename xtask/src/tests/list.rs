//! Builds the test programs and lists their tests.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::root;

#[derive(Debug)]
pub struct Built {
    programs: Vec<Program>,
    pub command: PathBuf,
}

#[derive(Debug)]
struct Program {
    /// The package, then an integration test's target: `tiptoe-tests::e2e`.
    name: String,
    path: PathBuf,
    folder: PathBuf,
}

#[derive(Debug, Clone)]
pub struct Test {
    /// The program's name, then the test's own.
    pub name: String,
    pub own_name: String,
    pub is_nightly: bool,
    pub program: PathBuf,
    pub folder: PathBuf,
}

/// Builds the test programs; `None` if a build fails, which cargo has printed.
pub fn build() -> Option<Built> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["test", "--workspace", "--locked", "--no-run", "--quiet"]);
    cargo
        .args(["--message-format", "json-render-diagnostics"])
        .current_dir(root());
    let output = cargo.stderr(Stdio::inherit()).output().expect("cargo runs");
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut programs = Vec::new();
    let mut command = None;
    for message in lines
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
    {
        let Some(executable) = message["executable"].as_str() else {
            continue;
        };
        let target = &message["target"];
        if message["profile"]["test"] == true {
            programs.push(program(&message, executable)?);
        } else if target["name"] == "tiptoe" && target["kind"][0] == "bin" {
            command = Some(PathBuf::from(executable));
        }
    }
    if !output.status.success() {
        return None;
    }
    let command = command.expect("the command is built with the tests of its package");
    Some(Built { programs, command })
}

fn program(message: &Value, executable: &str) -> Option<Program> {
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?;
    let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).ok()?;
    let package = manifest
        .lines()
        .find_map(|line| line.strip_prefix("name = \""))?
        .trim_end_matches('"');
    let target = message["target"]["name"].as_str()?;
    let is_test = message["target"]["kind"][0] == "test";
    Some(Program {
        name: if is_test {
            format!("{package}::{target}")
        } else {
            package.to_owned()
        },
        path: executable.into(),
        folder: folder.to_owned(),
    })
}

/// Returns all tests.
pub fn tests(built: &Built) -> Vec<Test> {
    let mut tests = Vec::new();
    for program in &built.programs {
        let nightly: HashSet<String> = names(program, &["--ignored"]).into_iter().collect();
        for name in names(program, &[]) {
            tests.push(Test {
                name: format!("{}::{name}", program.name),
                is_nightly: nightly.contains(&name),
                own_name: name,
                program: program.path.clone(),
                folder: program.folder.clone(),
            });
        }
    }
    tests
}

fn names(program: &Program, options: &[&str]) -> Vec<String> {
    let mut list = Command::new(&program.path);
    list.args(["--list", "--format", "terse"])
        .args(options)
        .current_dir(&program.folder);
    let output = list
        .output()
        .unwrap_or_else(|error| panic!("{}: {error}", program.path.display()));
    assert!(
        output.status.success(),
        "{}: {output:?}",
        program.path.display()
    );
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines()
        .filter_map(|line| line.strip_suffix(": test"))
        .map(str::to_owned)
        .collect()
}
