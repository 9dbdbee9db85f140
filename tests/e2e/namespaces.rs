//! A target in a container of its own: other mounts, other process ids, and a root of which we see nothing.

use std::path::{Path, PathBuf};
use std::process::Command;

use tiptoe_tests::{Probe, Waiting, is_root, skipped, target};

const FUNCTIONS: &[&str] = &["add", "down", "digits", "scale", "fill", "choose"];
/// A small root on a tmpfs that only the new mount namespace has. Arguments: where, the program, and `whole`
/// (a container's way: pivot_root, and a /proc) or `bare` (chroot, and none).
const ENTER: &str = r#"set -e
mount -t tmpfs tmpfs "$1"
mkdir -p "$1/bin" "$1/proc" "$1/old"
cp "$2" "$1/bin/"
ldd "$2" | grep -o '/[^ ]*' | while read -r file; do
    mkdir -p "$1$(dirname "$file")"
    cp -L "$file" "$1$file"
done
cd "$1"
program=/bin/$(basename "$2")
kind=$3
shift 3
if [ "$kind" = bare ]; then exec chroot . "$program" "$@"; fi
mount -t proc proc proc
pivot_root . old
exec /old/usr/sbin/chroot . "$program" "$@""#;

/// Starts `hot` there, as process 1.
fn contained(kind: &str) -> (Waiting, PathBuf) {
    let program = target("hot");
    let root = std::env::temp_dir().join(format!("tiptoe-root-{kind}-{}", std::process::id()));
    std::fs::create_dir_all(&root).expect("a temporary folder");
    let mut command = Command::new("unshare");
    command
        .args([
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "sh",
            "-c",
            ENTER,
            "sh",
        ])
        .args([root.as_path(), &program])
        .args([kind, "2", "20000"]);
    (Waiting::start(&mut command, &program), root)
}

fn is_apart(waiting: &Waiting, root: &Path) {
    let own = |name: &str| std::fs::read_link(name).expect("it lives");
    let program = own(&format!("/proc/{}/exe", waiting.pid));
    assert!(
        !program.exists() && !root.join("bin").exists(),
        "{program:?}"
    );
    for name in ["ns/mnt", "ns/pid"] {
        let theirs = own(&format!("/proc/{}/{name}", waiting.pid));
        assert_ne!(theirs, own(&format!("/proc/self/{name}")));
    }
}

#[test]
fn a_container_is_counted_in_process() {
    if !is_root() {
        return skipped("a container", "needs root");
    }
    let (waiting, root) = contained("whole");
    is_apart(&waiting, &root);
    let report = waiting.count(&Probe::new(FUNCTIONS), FUNCTIONS);
    assert_eq!(report.via("agent"), FUNCTIONS.len(), "{:#}", report.value);
    let _ = std::fs::remove_dir(root);
}

/// The loader opens the agent through /proc: where there is none the kernel counts.
#[test]
fn a_container_without_proc_is_counted_by_the_kernel() {
    if !is_root() {
        return skipped("a container", "needs root");
    }
    let (waiting, root) = contained("bare");
    is_apart(&waiting, &root);
    let report = waiting.count(&Probe::new(FUNCTIONS), FUNCTIONS);
    assert_eq!(report.via("kernel"), FUNCTIONS.len(), "{:#}", report.value);
    assert!(
        report.value["notes"].to_string().contains("sees no /proc"),
        "{:#}",
        report.value
    );
    let _ = std::fs::remove_dir(root);
}
