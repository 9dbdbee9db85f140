//! Makes roots of Debian releases, programs for these roots, whole systems (machines) and kernels in
//! `target/test-roots`, by apt.
//!
//! A program runs inside and outside of its root. So it names the loader and libraries by outside paths, and a link
//! in the root makes these paths valid inside.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use crate::process::output;
use crate::target::target_of;
use crate::waiting::WaitingTarget;
use crate::{installed, root};

const PACKAGES: &[&str] = &[
    "libc6",
    "libc6-dev",
    "libgcc-s1",
    "libstdc++6",
    "linux-libc-dev",
];
const MIRROR: &str = "http://deb.debian.org/debian";
const ENTER: &str = r#"set -e
for folder in proc dev; do mount --rbind "/$folder" "$1/$folder"; done
exec chroot "$@""#;

/// A release's root.
#[derive(Debug)]
pub struct Debian {
    root: PathBuf,
}

impl Debian {
    /// Returns a release's root. Fails if its packages cannot be downloaded.
    pub fn new(release: &str) -> Result<Debian, String> {
        let root = made(release, release, |packages, place| {
            packages.download(PACKAGES);
            unpack(packages.folder);
            link(packages.folder, place);
        })?;
        Ok(Debian { root })
    }

    /// Builds a target for this release.
    pub fn target(&self, name: &str) -> PathBuf {
        let libraries = ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"];
        let [first, second] = libraries.map(|folder| self.root.join(folder).display().to_string());
        let loader = self.root.join("lib64/ld-linux-x86-64.so.2");
        let flags = [
            format!("--sysroot={}", self.root.display()),
            format!("-B{first}"),
            format!("-L{first}"),
            format!("-L{second}"),
            // RPATH, not RUNPATH, because it must also hold for libraries that libc loads later.
            format!("-Wl,--disable-new-dtags,-rpath={second}"),
            format!("-Wl,--dynamic-linker={}", loader.display()),
        ];
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        target_of(&self.root.join("bin-of-tests"), name, &flags)
    }

    /// Starts a target as [`Debian::command`] does.
    pub fn waiting(&self, program: &Path, arguments: &[&str]) -> WaitingTarget {
        WaitingTarget::start(self.command(program).args(arguments), program)
    }

    /// Returns the command that runs a program in the root. `program` is its path outside.
    pub fn command(&self, program: &Path) -> Command {
        entered(&self.root, program)
    }
}

/// Returns the command that runs a program in any root. `program` is its path inside.
pub fn entered(root: &Path, program: &Path) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", ENTER, "sh"]);
    command.arg(root).arg(program);
    command
}

/// Returns a folder with these packages.
pub fn unpacked(name: &str, release: &str, packages: &[&str]) -> Result<PathBuf, String> {
    made(name, release, |apt, _| {
        apt.download(packages);
        unpack(apt.folder);
    })
}

/// Returns a release's kernel.
pub fn kernel(release: &str) -> Result<PathBuf, String> {
    let name = format!("{release}-kernel");
    let root = made(&name, release, |apt, _| {
        apt.download(&[&apt.dependency("linux-image-cloud-amd64", "linux-image-")]);
        unpack(apt.folder);
    })?;
    let files = std::fs::read_dir(root.join("boot")).map_err(|error| error.to_string())?;
    let mut files = files.filter_map(|entry| Some(entry.ok()?.path()));
    let is_kernel = |path: &PathBuf| path.to_string_lossy().contains("/vmlinuz-");
    files
        .find(is_kernel)
        .ok_or("the package has no kernel".to_owned())
}

/// Returns a whole system with these packages.
pub fn machine(release: &str, packages: &[&str]) -> Result<PathBuf, String> {
    let debootstrap = installed("debootstrap").ok_or("there is no debootstrap")?;
    made(&format!("{release}-machine"), release, |apt, _| {
        let mut command = Command::new(debootstrap);
        command
            .arg("--variant=minbase")
            .arg(format!("--include={}", packages.join(",")));
        command.arg(release).arg(apt.folder.join("root"));
        run(command.arg(MIRROR)).expect("a machine");
    })
}

fn made(name: &str, release: &str, make: impl FnOnce(&Packages, &Path)) -> Result<PathBuf, String> {
    static MAKING: Mutex<()> = Mutex::new(());
    let _turn = MAKING.lock();
    let folder = root().join("target/test-roots");
    let place = folder.join(name);
    if !place.exists() {
        // Another run may make the same folder, so the folder is renamed when complete.
        let part = folder.join(format!("{name}-{}", std::process::id()));
        let packages = Packages::new(release, &part);
        let reached = packages.reach();
        if reached.is_ok() {
            make(&packages, &place);
            let renamed = std::fs::rename(part.join("root"), &place);
            assert!(place.exists(), "{renamed:?}");
        }
        std::fs::remove_dir_all(&part).expect("our own folder");
        reached?;
    }
    Ok(place)
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = output(command);
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    output.status.success().then_some(()).ok_or(said)
}

struct Packages<'a> {
    folder: &'a Path,
    options: Vec<String>,
}

impl Packages<'_> {
    fn new<'a>(release: &str, folder: &'a Path) -> Packages<'a> {
        for name in ["state/lists/partial", "cache/archives/partial"] {
            std::fs::create_dir_all(folder.join(name)).expect("target is writable");
        }
        let list = format!("deb {MIRROR} {release} main\n");
        std::fs::write(folder.join("sources.list"), list).expect("target is writable");
        let inside = |option: &str, name: &str| format!("{option}={}", folder.join(name).display());
        let others = [
            "Dir::Etc::SourceParts=/dev/null",
            "Dir::State::status=/dev/null",
            "APT::Architecture=amd64",
            "APT::Sandbox::User=root",
            "APT::Update::Error-Mode=any",
            "Acquire::Languages=none",
        ];
        let mut options = vec![
            inside("Dir::Etc::SourceList", "sources.list"),
            inside("Dir::State", "state"),
            inside("Dir::Cache", "cache"),
        ];
        options.extend(others.map(str::to_owned));
        Packages { folder, options }
    }

    fn apt(&self, words: &[&str]) -> Result<(), String> {
        run(self.command("apt-get").args(words))
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let options = self.options.iter().flat_map(|option| ["-o", option]);
        command.args(options).current_dir(self.folder);
        command
    }

    fn reach(&self) -> Result<(), String> {
        installed("apt-get").ok_or("there is no apt-get")?;
        self.apt(&["update"])
    }

    fn download(&self, packages: &[&str]) {
        let words = [&["download"], packages].concat();
        self.apt(&words).expect("the packages");
    }

    fn dependency(&self, package: &str, prefix: &str) -> String {
        let listed = output(self.command("apt-cache").args(["depends", package]));
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        let mut lines = listed.lines().map(|line| line.trim());
        let name = lines.find_map(|line| line.strip_prefix("Depends: "));
        let name = name.filter(|name| name.starts_with(prefix));
        name.unwrap_or_else(|| panic!("{package}: {listed}"))
            .to_owned()
    }
}

fn unpack(folder: &Path) {
    let script = r#"set -e
mkdir root
for package in *.deb; do dpkg-deb -x "$package" root; done
mkdir -p root/proc root/dev"#;
    let mut shell = Command::new("sh");
    run(shell.args(["-c", script]).current_dir(folder)).expect("a root");
}

/// Rewrites the links of a root that will be renamed to `place`.
fn link(folder: &Path, place: &Path) {
    let script = r#"set -e
cd root
for folder in lib lib64; do [ -e $folder ] || ln -s usr/$folder $folder; done
mkdir -p "./$(dirname "$1")"
find . -type l -lname '/*' | while read -r link; do ln -sfn "$1$(readlink "$link")" "$link"; done
ln -s / "./$1""#;
    let mut shell = Command::new("sh");
    let shell = shell.args(["-c", script, "sh"]).arg(place);
    run(shell.current_dir(folder)).expect("a root");
}
