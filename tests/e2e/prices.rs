//! Runs reuse measured costs (prices) from a cache.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tiptoe_tests::{Probe, target};

struct CacheFolder(PathBuf);

impl CacheFolder {
    fn new(name: &str) -> CacheFolder {
        let path =
            std::env::temp_dir().join(format!("tiptoe-caches-{name}-{}", std::process::id()));
        fs::create_dir(&path).expect("a folder");
        CacheFolder(path)
    }

    fn probe(&self, probe: Probe) -> Probe {
        probe.env("XDG_CACHE_HOME", self.0.to_str().expect("a path"))
    }
}

impl Drop for CacheFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn is_measured(calibrated: &Value) -> bool {
    calibrated == "now" || calibrated == "unsteady"
}

/// Asserts that the second run measures again, and keeps a second file, only if the CPUs' state has changed.
fn twice(name: &str, probe: Probe, kind: &str, program: &str, arguments: &[&str]) {
    let caches = CacheFolder::new(name);
    let probe = caches.probe(probe);
    let run = || {
        let run = probe.run(&target(program), arguments);
        run.good().value["cost"]["calibrated"].clone()
    };
    let folder = caches.0.join("tiptoe");
    let kept = || {
        let files = fs::read_dir(&folder).expect("a folder").flatten();
        let is_kind = |name: &str| name.split('.').next() == Some(kind);
        let names = files.map(|file| file.file_name().into_string().expect("text"));
        names.filter(|name| is_kind(name)).collect::<Vec<_>>()
    };
    let mode = |path: &Path| fs::metadata(path).expect("it is kept").permissions().mode() & 0o7777;
    let calibrated = run();
    if calibrated == "unsteady" {
        // The machine's speed changed during each measurement, so nothing is kept.
        return;
    }
    assert_eq!(calibrated, "now", "{name}");
    let first = kept();
    let [file] = &first[..] else {
        panic!("{name}: {first:?}")
    };
    let path = folder.join(file);
    assert_eq!([mode(&folder), mode(&path)], [0o700, 0o600]);
    let before = fs::read(&path).expect("a file");
    let second = run();
    match kept().len() {
        1 => assert_eq!(
            (second, fs::read(&path).expect("a file")),
            ("cached".into(), before),
            "{name}"
        ),
        _ => assert!(is_measured(&second), "{name}: {second}: {:?}", kept()),
    }
}

#[test]
fn a_second_probe_uses_the_prices_of_the_first() {
    twice(
        "probe",
        Probe::new(&["add"]),
        "counts",
        "hot",
        &["1", "1000"],
    );
}

#[test]
fn a_second_trace_of_locks_uses_the_prices_of_the_first() {
    twice("lock", Probe::lock(), "waits", "hot", &["1", "1000"]);
}

#[test]
fn a_cache_that_cannot_be_written_is_no_error() {
    let caches = CacheFolder::new("nowhere");
    fs::write(caches.0.join("tiptoe"), "a file").expect("a file");
    for _ in 0..2 {
        let run = caches
            .probe(Probe::new(&["add"]))
            .run(&target("hot"), &["1", "1000"]);
        let calibrated = &run.good().value["cost"]["calibrated"];
        assert!(is_measured(calibrated), "{calibrated}");
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
