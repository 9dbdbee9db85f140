//! The cache of prices, from run to run.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tiptoe_tests::{Probe, target};

/// A folder for caches, removed when the test is over.
struct Caches(PathBuf);

impl Caches {
    fn new(name: &str) -> Caches {
        let path =
            std::env::temp_dir().join(format!("tiptoe-caches-{name}-{}", std::process::id()));
        fs::create_dir(&path).expect("a folder");
        Caches(path)
    }

    fn probe(&self, probe: Probe) -> Probe {
        probe.env("XDG_CACHE_HOME", self.0.to_str().expect("a path"))
    }
}

impl Drop for Caches {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What the yardstick took when a file was written.
fn yardstick(file: &Path) -> f64 {
    let text = fs::read_to_string(file).expect("a file of prices");
    text.lines()
        .nth(5)
        .and_then(|line| line.parse().ok())
        .unwrap_or_else(|| panic!("{text}"))
}

/// Runs twice. The second run measures only if the machine is another one by then, which the files say.
fn twice(name: &str, probe: Probe, kind: &str, program: &str, arguments: &[&str]) {
    let caches = Caches::new(name);
    let probe = caches.probe(probe);
    let run = || {
        let run = probe.run(&target(program), arguments);
        run.good().value["cost"]["calibrated"].clone()
    };
    assert_eq!(run(), "now", "{name}");
    let folder = caches.0.join("tiptoe");
    let file = folder.join(kind);
    let mode = |path: &Path| fs::metadata(path).expect("it is kept").permissions().mode() & 0o7777;
    assert_eq!([mode(&folder), mode(&file)], [0o700, 0o600]);
    let (before, first) = (fs::read(&file).expect("a file"), yardstick(&file));
    let second = run();
    let ratio = yardstick(&file) / first;
    match (0.8..=1.25).contains(&ratio) {
        true => assert_eq!(
            (second, fs::read(&file).expect("a file")),
            ("cached".into(), before),
            "{name}"
        ),
        false => assert_eq!(second, "now", "{name}: {ratio}"),
    }
}

#[test]
fn a_second_probe_takes_the_prices_of_the_first() {
    twice(
        "probe",
        Probe::new(&["add"]),
        "counts",
        "hot",
        &["1", "1000"],
    );
}

#[test]
fn a_second_look_at_locks_takes_the_prices_of_the_first() {
    twice("lock", Probe::lock(), "waits", "hot", &["1", "1000"]);
}

/// A cache that cannot be used changes nothing that is said.
#[test]
fn a_cache_that_cannot_be_written_is_no_error() {
    let caches = Caches::new("nowhere");
    fs::write(caches.0.join("tiptoe"), "a file").expect("a file");
    for _ in 0..2 {
        let run = caches
            .probe(Probe::new(&["add"]))
            .run(&target("hot"), &["1", "1000"]);
        assert_eq!(run.good().value["cost"]["calibrated"], "now");
        assert!(
            !run.stderr.contains("tiptoe-caches") && !run.stderr.contains("warning"),
            "{}",
            run.stderr
        );
    }
    assert_eq!(
        fs::read_to_string(caches.0.join("tiptoe")).expect("it is left"),
        "a file"
    );
}
