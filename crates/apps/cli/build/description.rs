//! The text of `tiptoe --version --verbose`.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How many digits of a checksum or commit are printed: enough to identify a file, too few to detect a forgery.
const DIGITS: usize = 16;

/// `agent` is the built agent (the library for targets), `programs` the folder of the built BPF programs.
pub fn describe(agent: &Path, programs: &Path) -> String {
    let variable = |name: &str| std::env::var(name).unwrap_or_else(|_| "unknown".to_owned());
    let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let rows = [
        ("commit", commit(OsStr::new("git"), &root())),
        ("target", Some(variable("TARGET"))),
        ("profile", Some(variable("PROFILE"))),
        ("compiler", output(Command::new(compiler).arg("--version"))),
        ("features", Some(features())),
        (
            "CPU features",
            Some(variable("CARGO_CFG_TARGET_FEATURE").replace(',', " ")),
        ),
    ];
    let mut text = String::new();
    for (name, value) in rows {
        let value = value.unwrap_or_else(|| "unknown".to_owned());
        let _ = writeln!(text, "{name:<18} {value}");
    }
    text += &file("agent", agent);
    for object in objects(programs) {
        let name = object.file_name().unwrap_or_default().to_string_lossy();
        let name = name.trim_end_matches(".bpf.o");
        text += &file(&format!("BPF {name}"), &object);
    }
    text
}

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

/// Returns the commit of the sources in `root`; `None` if git is missing, or `root` is not the top of a repository.
pub fn commit(git: &OsStr, root: &Path) -> Option<String> {
    let git = |words: &[&str]| output(Command::new(git).arg("-C").arg(root).args(words));
    // Unpacked sources may be inside another project's repository, whose commit would be wrong.
    let top = git(&["rev-parse", "--show-toplevel"])?;
    let same = Path::new(&top).canonicalize().ok()? == root.canonicalize().ok()?;
    let commit = git(&["rev-parse", "HEAD"]).filter(|_| same)?;
    Some(commit.chars().take(DIGITS).collect())
}

/// Returns git's files that change when another commit is checked out.
pub fn files_of_the_commit(root: &Path) -> Vec<PathBuf> {
    let path = |name: &str| {
        let mut git = Command::new("git");
        let path = output(
            git.arg("-C")
                .arg(root)
                .args(["rev-parse", "--git-path", name]),
        )?;
        Some(root.join(path))
    };
    let files = ["HEAD", "logs/HEAD"].into_iter().filter_map(path);
    // A missing file in the list would make cargo run the build script at each build.
    files.filter(|file| file.exists()).collect()
}

pub fn objects(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let mut objects: Vec<PathBuf> = paths
        .filter(|path| path.to_string_lossy().ends_with(".bpf.o"))
        .collect();
    objects.sort();
    objects
}

pub fn checksum(path: &Path) -> Option<String> {
    let sum = output(Command::new("sha256sum").arg("--").arg(path))?;
    Some(sum.trim_start_matches('\\').chars().take(DIGITS).collect())
}

fn file(name: &str, path: &Path) -> String {
    let size = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
    let sum = checksum(path).unwrap_or_else(|| "unknown".to_owned());
    format!("{name:<18} {size} bytes, sha256 {sum}\n")
}

fn features() -> String {
    let names = std::env::vars().filter_map(|(name, _)| {
        let name = name.strip_prefix("CARGO_FEATURE_")?.to_lowercase();
        Some(name.replace('_', "-"))
    });
    match names.collect::<Vec<_>>().join(" ") {
        none if none.is_empty() => "none".to_owned(),
        names => names,
    }
}

fn output(command: &mut Command) -> Option<String> {
    let output = command
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim_end().to_owned())
}
