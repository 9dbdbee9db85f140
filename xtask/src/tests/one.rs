use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use super::list::Test;

/// A test's time limit in seconds. A program that a test starts has a shorter limit.
const LIMIT_S: &str = "120";

#[derive(Debug, Clone)]
pub struct Outcome {
    pub name: String,
    pub seconds: f64,
    status: i32,
    folder: PathBuf,
}

impl Outcome {
    pub fn is_ok(&self) -> bool {
        self.status == 0
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self.status {
            124 => "out of time, ".to_owned(),
            101 => String::new(),
            status => format!("status {status}, "),
        };
        write!(
            f,
            "{} ({why}{:.1} s, {})",
            self.name,
            self.seconds,
            self.folder.display()
        )
    }
}

/// Runs a test. The output goes into a folder named after the test and `part`, which is removed if the test passes.
pub fn run(test: &Test, command: &Path, part: &str) -> Outcome {
    let folder = super::failed_folder()
        .join(test.name.replace("::", "."))
        .join(part);
    fs::create_dir_all(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let log = folder.join("output.txt");
    let file = fs::File::create(&log).unwrap_or_else(|error| panic!("{}: {error}", log.display()));
    let other = file.try_clone().expect("a descriptor");
    let limit = std::env::var("TIPTOE_TEST_LIMIT").unwrap_or_else(|_| LIMIT_S.to_owned());
    // This program is started through /proc, because a build may have replaced its file.
    let mut keep = Command::new("/proc/self/exe");
    keep.args(["keep", &limit]).arg(&test.program);
    keep.args([
        &test.own_name,
        "--exact",
        "--include-ignored",
        "--nocapture",
    ]);
    keep.current_dir(&test.folder)
        .env("CARGO_MANIFEST_DIR", &test.folder);
    keep.env("TIPTOE_BIN", command)
        .env("TIPTOE_EVIDENCE", &folder);
    let begin = Instant::now();
    let status = keep
        .stdin(Stdio::null())
        .stdout(file)
        .stderr(other)
        .status();
    let seconds = begin.elapsed().as_secs_f64();
    let mut status = status.expect("our own program runs").code().unwrap_or(1);
    let text = fs::read(&log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    // A test that was renamed after the listing would pass without running.
    if status == 0 && !text.contains("1 passed; 0 failed") {
        status = 1;
    }
    if status == 0 {
        let _ = fs::remove_dir_all(&folder);
        let _ = fs::remove_dir(folder.parent().expect("a test's folder"));
    } else {
        report(test, &text, &folder);
    }
    Outcome {
        name: test.name.clone(),
        seconds,
        status,
        folder,
    }
}

fn report(test: &Test, text: &str, folder: &Path) {
    let lines: Vec<&str> = text.lines().collect();
    let end = lines.len().saturating_sub(40);
    let end = lines[end..]
        .iter()
        .map(|line| format!("    {line}\n"))
        .collect::<String>();
    println!(
        "tests: {} failed; its output ends:\n{end}    all of it: {}\n    again: cargo run -q -p xtask -- tests {}",
        test.name,
        folder.display(),
        test.name
    );
}
