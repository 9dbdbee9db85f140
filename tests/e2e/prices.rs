//! Runs reuse measured costs (prices) from a cache.

use std::collections::BTreeMap;
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

/// A run measures again if the CPUs' speed has changed.
const RUNS: usize = 6;

fn repeatedly(name: &str, probe: Probe, kind: &str, program: &str, arguments: &[&str]) {
    let caches = CacheFolder::new(name);
    let probe = caches.probe(probe);
    let folder = caches.0.join("tiptoe");
    let mode = |path: &Path| fs::metadata(path).expect("it is kept").permissions().mode() & 0o7777;
    let kept = || {
        let files = fs::read_dir(&folder).into_iter().flatten().flatten();
        let of_kind = files.map(|file| file.path()).filter(|path| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.and_then(|name| name.split('.').next()) == Some(kind)
        });
        let texts = of_kind.map(|path| {
            assert_eq!([mode(&folder), mode(&path)], [0o700, 0o600]);
            (path.clone(), fs::read(&path).expect("a file"))
        });
        texts.collect::<BTreeMap<_, _>>()
    };
    for number in 0..RUNS {
        let before = kept();
        let run = probe.run(&target(program), arguments);
        let calibrated = &run.good().value["cost"]["calibrated"];
        if calibrated == "cached" {
            assert!(
                !before.is_empty() && before == kept(),
                "{name}, run {number}"
            );
            return;
        }
        assert!(is_measured(calibrated), "{name}: {calibrated}");
        // In a later run, `now` may be about another kind of price.
        if number == 0 && calibrated == "now" {
            assert_eq!(kept().len(), 1, "{name}");
        }
    }
    panic!("{name}: no run used kept prices: {:?}", kept().keys());
}

#[test]
fn a_second_probe_uses_the_prices_of_the_first() {
    repeatedly(
        "probe",
        Probe::new(&["add"]),
        "counts",
        "hot",
        &["1", "1000"],
    );
}

#[test]
fn a_second_trace_of_locks_uses_the_prices_of_the_first() {
    repeatedly("lock", Probe::lock(), "waits", "hot", &["1", "1000"]);
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
