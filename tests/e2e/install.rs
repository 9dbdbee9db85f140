//! Installs what `make dist` made, runs it in roots without other programs, and removes it. Nothing may remain.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tiptoe_tests::debian::{entered, unpacked};
use tiptoe_tests::process::output;
use tiptoe_tests::{Debian, Report, musl_target, root, target};

/// Releases with different C libraries.
const RELEASES: [&str; 3] = ["bullseye", "bookworm", "trixie"];

pub(crate) fn released(end: &str) -> PathBuf {
    let dist = root().join("target/dist");
    let files = fs::read_dir(&dist).expect("`make dist` has made what is released");
    let mut files = files.map(|entry| entry.expect("an entry").path());
    let is_it = |path: &PathBuf| path.to_string_lossy().ends_with(end);
    files
        .find(is_it)
        .unwrap_or_else(|| panic!("no {end} in {}", dist.display()))
}

pub(crate) fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(name);
    fs::create_dir_all(&folder).expect("a folder");
    folder
}

pub(crate) fn said(command: &mut Command) -> String {
    let output = output(command);
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8(output.stdout).expect("text")
}

pub(crate) fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        match path.is_dir() {
            true => all.extend(files_below(&path)),
            false => all.push(path),
        }
    }
    all
}

#[test]
#[ignore = "nightly: needs what `make dist` makes"]
fn the_command_starts_in_an_empty_root() {
    let empty = folder("empty");
    fs::copy(released("dist/tiptoe"), empty.join("tiptoe")).expect("a copy");
    let run = |word: &str| said(Command::new("chroot").arg(&empty).args(["/tiptoe", word]));
    assert!(
        run("--version").starts_with("tiptoe "),
        "{}",
        run("--version")
    );
    assert!(run("--help").contains("Usage: tiptoe"));
}

pub(crate) fn musl_and_busybox() -> PathBuf {
    let packages = ["musl", "busybox-static"];
    let debian = unpacked("musl", "bookworm", &packages).expect("its packages can be reached");
    let place = std::env::temp_dir().join("musl");
    said(Command::new("cp").arg("-a").arg(debian).arg(&place));
    let program = musl_target("hot", &[]).expect("musl-tools are installed");
    for (file, name) in [(released("dist/tiptoe"), "tiptoe"), (program, "hot")] {
        fs::copy(file, place.join(name)).expect("a copy");
    }
    place
}

#[test]
#[ignore = "nightly: needs what `make dist` makes, and packages of Debian"]
fn the_command_traces_in_a_root_with_only_musl_and_busybox() {
    let place = musl_and_busybox();
    let mut command = entered(&place, Path::new("/bin/busybox"));
    let line =
        "/tiptoe doctor probe >/verdict && /tiptoe probe add --json -o /report -- /hot 2 1000";
    said(command.args(["sh", "-c", line]));
    let read = |name: &str| fs::read_to_string(place.join(name)).expect("it was written");
    assert!(
        read("verdict").starts_with("you can: probe"),
        "{}",
        read("verdict")
    );
    let session = Report::parse(&read("report")).value;
    let event = &session["events"][0];
    assert_eq!(event["via"], "agent", "{session:#}");
    assert!(event["count"].as_u64() > Some(0), "{session:#}");
}

#[test]
#[ignore = "nightly: needs what `make dist` makes, and other releases of Debian"]
fn the_command_traces_in_other_releases() {
    for release in RELEASES {
        let debian = Debian::new(release).expect("its packages can be reached");
        let program = debian.target("hot");
        let tiptoe = program.with_file_name("tiptoe");
        fs::copy(released("dist/tiptoe"), &tiptoe).expect("a copy");
        let report = program.with_file_name("report.json");
        let mut command = debian.command(&tiptoe);
        command.args(["probe", "add", "--json", "-o"]).arg(&report);
        said(command.arg("--").arg(&program).args(["2", "1000"]));
        let session = fs::read_to_string(&report).expect("a report");
        fs::remove_file(&report).expect("our own file");
        let session = Report::parse(&session).value;
        let event = &session["events"][0];
        assert_eq!(event["via"], "agent", "{release}: {session:#}");
        assert!(event["count"].as_u64() > Some(0), "{release}: {session:#}");
    }
}

#[test]
#[ignore = "nightly: needs what `make dist` makes"]
fn the_package_can_be_installed_run_and_removed() {
    let place = folder("installed");
    let admin = place.join("var/lib/dpkg");
    for needed in ["info", "updates"] {
        fs::create_dir_all(admin.join(needed)).expect("a folder");
    }
    for needed in ["status", "available"] {
        fs::write(admin.join(needed), "").expect("a file");
    }
    let before = files_below(&place);
    let dpkg = |words: &[&str], last: &Path| {
        let mut dpkg = Command::new("dpkg");
        dpkg.arg("--root")
            .arg(&place)
            .arg("--force-script-chrootless");
        said(dpkg.args(words).arg(last));
    };
    dpkg(&["--install"], &released(".deb"));
    let installed = place.join("usr/bin/tiptoe");
    let mode = fs::metadata(&installed)
        .expect("the command")
        .permissions()
        .mode();
    assert_eq!(mode & 0o7777, 0o755);
    let pages = files_below(&place.join("usr/share/man/man1"));
    let has_page = |name: &str| pages.iter().any(|page| page.ends_with(name));
    for page in [
        "tiptoe.1.gz",
        "tiptoe-probe.1.gz",
        "tiptoe-lock.1.gz",
        "tiptoe-watch.1.gz",
        "tiptoe-stat.1.gz",
    ] {
        assert!(has_page(page), "{page} in {pages:?}");
    }
    for (completion, option) in [
        ("bash-completion/completions/tiptoe", "--latency"),
        ("zsh/vendor-completions/_tiptoe", "--latency"),
        ("fish/vendor_completions.d/tiptoe.fish", "-l latency"),
    ] {
        let path = place.join("usr/share").join(completion);
        let text = fs::read_to_string(&path).expect(completion);
        assert!(text.contains(option), "{completion}");
    }
    let mut probe = Command::new(&installed);
    probe
        .args(["probe", "add", "--json", "--"])
        .arg(target("hot"));
    let run = output(probe.args(["1", "1000"]));
    assert!(run.status.success(), "{run:?}");
    dpkg(&["--purge"], Path::new("tiptoe"));
    let is_dpkgs =
        |path: &PathBuf| path.starts_with(&admin) || path.starts_with(place.join("var/log"));
    let left: Vec<PathBuf> = files_below(&place)
        .into_iter()
        .filter(|path| !before.contains(path) && !is_dpkgs(path))
        .collect();
    assert_eq!(left, Vec::<PathBuf>::new());
}

#[test]
#[ignore = "nightly: needs what `make dist` makes"]
fn lintian_accepts_the_package() {
    let said = said(
        Command::new("lintian")
            .args(["--allow-root", "--fail-on", "error,warning"])
            .arg(released(".deb")),
    );
    assert_eq!(said, "");
}

#[test]
#[ignore = "nightly: needs what `make dist` makes"]
fn the_image_has_one_layer_that_runs() {
    let image = folder("image");
    said(
        Command::new("tar")
            .arg("-xf")
            .arg(released("-image.tar"))
            .arg("-C")
            .arg(&image),
    );
    let blob = |digest: &Value| {
        let digest = digest.as_str().expect("a digest");
        let (kind, name) = digest.split_once(':').expect("a kind and a name");
        assert_eq!(kind, "sha256");
        let path = image.join("blobs/sha256").join(name);
        let sum = said(Command::new("sha256sum").arg(&path));
        assert!(sum.starts_with(name), "{sum}");
        path
    };
    let json = |path: &Path| -> Value {
        serde_json::from_str(&fs::read_to_string(path).expect("a file")).expect("JSON")
    };
    let index = json(&image.join("index.json"));
    let manifest = json(&blob(&index["manifests"][0]["digest"]));
    let config = json(&blob(&manifest["config"]["digest"]));
    let layer = blob(&manifest["layers"][0]["digest"]);
    let place = folder("layer");
    said(
        Command::new("tar")
            .arg("-xf")
            .arg(layer)
            .arg("-C")
            .arg(&place),
    );
    let entry = config["config"]["Entrypoint"][0].as_str().expect("a path");
    let mut chroot = Command::new("unshare");
    chroot
        .args(["--mount", "--pid", "--fork", "chroot"])
        .arg(&place);
    assert!(said(chroot.args([entry, "--version"])).starts_with("tiptoe "));
}

#[test]
#[ignore = "nightly: needs what `make dist` makes"]
fn all_released_files_have_checksums() {
    let sums = released("SHA256SUMS");
    let mut check = Command::new("sha256sum");
    let dist = sums.parent().expect("a folder");
    said(
        check
            .args(["--check", "--strict", "--quiet"])
            .arg(&sums)
            .current_dir(dist),
    );
    let text = fs::read_to_string(&sums).expect("text");
    for file in files_below(dist) {
        let name = file
            .file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        assert!(name == "SHA256SUMS" || text.contains(&name), "{name}");
    }
}

#[test]
#[ignore = "nightly: needs what `make dist` makes"]
fn the_tarball_is_unpacked_and_runs() {
    let place = folder("tarball");
    let mut tar = Command::new("tar");
    said(
        tar.arg("-xzf")
            .arg(released(".tar.gz"))
            .arg("-C")
            .arg(&place),
    );
    let trees: Vec<_> = fs::read_dir(&place).expect("a folder").collect();
    let [Ok(tree)] = &trees[..] else {
        panic!("not one folder: {trees:?}");
    };
    let tree = tree.path();
    for file in [
        "LICENSE-MIT",
        "LICENSE-APACHE",
        "install.md",
        "usr/share/man/man1/tiptoe-probe.1.gz",
        "usr/share/bash-completion/completions/tiptoe",
    ] {
        assert!(tree.join(file).is_file(), "{file}");
    }
    let tiptoe = tree.join("usr/bin/tiptoe");
    let mut probe = Command::new(&tiptoe);
    probe.args(["probe", "add", "--budget", "off", "--json", "-o", "-", "--"]);
    let text = said(probe.arg(target("hot")).args(["1", "1000"]));
    let report = text.lines().rfind(|line| line.starts_with('{'));
    let session = Report::parse(report.expect("a report")).value;
    assert_eq!(session["events"][0]["via"], "agent", "{session:#}");
    assert_eq!(session["events"][0]["count"], 1000, "{session:#}");
}
