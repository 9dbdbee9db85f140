//! `tiptoe --version`, and with `--verbose` what tiptoe was built from.

#[path = "../build/description.rs"]
#[expect(dead_code, reason = "only the build script describes a whole build")]
mod description;

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

const AGENT: &str = env!("TIPTOE_AGENT_SO");

fn printed(args: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tiptoe"));
    let output = command.args(args).output().expect("tiptoe runs");
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{output:?}"
    );
    String::from_utf8(output.stdout).expect("text")
}

fn find_row<'a>(text: &'a str, name: &str) -> &'a str {
    let mut rows = text.lines().filter_map(|line| line.strip_prefix(name));
    let value = rows.find(|rest| rest.starts_with(' '));
    value
        .unwrap_or_else(|| panic!("no {name} in {text}"))
        .trim()
}

fn identity(path: &Path) -> String {
    let size = std::fs::metadata(path).expect("a file").len();
    let sum = description::checksum(path).expect("`sha256sum` is installed");
    format!("{size} bytes, sha256 {sum}")
}

#[test]
fn the_version_is_one_line() {
    let version = concat!("tiptoe ", env!("CARGO_PKG_VERSION"), "\n");
    for args in [["--version"], ["-V"]] {
        assert_eq!(printed(&args), version);
    }
}

#[test]
fn the_verbose_version_names_what_is_inside() {
    let text = printed(&["--version", "--verbose"]);
    assert!(text.starts_with(&printed(&["--version"])), "{text}");
    for args in [&["-V", "-v"][..], &["-v", "-V"], &["-Vv"]] {
        assert_eq!(printed(args), text);
    }
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    assert!(find_row(&text, "target").contains("-linux-"), "{text}");
    assert!(find_row(&text, "compiler").starts_with("rustc "), "{text}");
    assert_eq!(find_row(&text, "features"), "none");
    assert_eq!(find_row(&text, "agent"), identity(Path::new(AGENT)));
}

#[test]
fn the_listed_bpf_programs_are_those_inside() {
    let text = printed(&["--version", "--verbose"]);
    let command = std::fs::read(env!("CARGO_BIN_EXE_tiptoe")).expect("the command");
    let folder = description::root().join("crates/host/kernel/bpf");
    let objects = description::objects(&folder);
    let listed = text.lines().filter(|line| line.starts_with("BPF "));
    assert_eq!(listed.count(), objects.len(), "{text}");
    for path in objects {
        let name = path.file_name().expect("a name").to_string_lossy();
        let name = name.trim_end_matches(".bpf.o");
        assert_eq!(
            find_row(&text, &format!("BPF {name}")),
            identity(&path),
            "{text}"
        );
        let object = std::fs::read(&path).expect("an object");
        // BPF programs are aligned, because their loader reads them in place.
        let mut places = (0..command.len()).step_by(8);
        assert!(
            places.any(|at| command[at..].starts_with(&object)),
            "{name}"
        );
    }
}

#[test]
fn the_commit_is_that_of_the_sources() {
    let root = description::root();
    let commit = description::commit(OsStr::new("git"), &root);
    let text = printed(&["-Vv"]);
    assert_eq!(
        find_row(&text, "commit"),
        commit.as_deref().unwrap_or("unknown")
    );
}

#[test]
fn without_git_or_a_repository_of_its_own_the_commit_is_unknown() {
    let root = description::root();
    assert_eq!(
        description::commit(OsStr::new("/nonexistent/git"), &root),
        None
    );
    let git = OsStr::new("git");
    assert_eq!(description::commit(git, Path::new("/proc")), None);
    assert_eq!(description::commit(git, &root.join("crates")), None);
}

#[test]
fn verbose_alone_is_refused() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tiptoe"));
    let output = command.arg("--verbose").output().expect("tiptoe runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.starts_with("error: ") && said.contains("--version"),
        "{said}"
    );
}
