//! Makes roots of other Debian releases, with their C libraries, and builds programs for them.
//!
//! apt downloads the packages once, into lists and folders of its own, and they are unpacked under
//! `target`. A program built for a root must run inside it and outside. So it names the root's
//! loader and libraries by their paths here, and a link in the root makes the same paths valid
//! after a chroot.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use crate::process::output;
use crate::target::target_of;
use crate::waiting::Waiting;
use crate::{installed, root};

/// The packages that our programs and their compiler need.
const PACKAGES: &[&str] = &[
    "libc6",
    "libc6-dev",
    "libgcc-s1",
    "libstdc++6",
    "linux-libc-dev",
];
/// The script that mounts /proc and /dev in a mount namespace of its own, then runs the program in
/// the root.
const ENTER: &str = r#"set -e
for folder in proc dev; do mount --rbind "/$folder" "$1/$folder"; done
exec chroot "$@""#;

/// The root of one release.
#[derive(Debug)]
pub struct Debian {
    root: PathBuf,
}

impl Debian {
    /// Returns the root of a release such as `trixie`. Fails with the reason if its packages cannot
    /// be downloaded.
    pub fn new(release: &str) -> Result<Debian, String> {
        static MAKING: Mutex<()> = Mutex::new(());
        let _turn = MAKING.lock();
        let folder = root().join("target/test-roots");
        let root = folder.join(release);
        if !root.exists() {
            // Unpacked under another name and renamed when complete, because another run of the
            // tests may make the same root.
            let part = folder.join(format!("{release}-{}", std::process::id()));
            let packages = Packages::new(release, &part);
            let reached = packages.reach();
            if reached.is_ok() {
                packages.download();
                unpack(&part, &root);
                let renamed = std::fs::rename(part.join("root"), &root);
                assert!(root.exists(), "{renamed:?}");
            }
            std::fs::remove_dir_all(&part).expect("our own folder");
            reached?;
        }
        Ok(Debian { root })
    }

    /// Builds a program of `tests/targets` for this release.
    pub fn target(&self, name: &str) -> PathBuf {
        let libraries = ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"];
        let [first, second] = libraries.map(|folder| self.root.join(folder).display().to_string());
        let loader = self.root.join("lib64/ld-linux-x86-64.so.2");
        let flags = [
            format!("--sysroot={}", self.root.display()),
            // The compiler must use the libraries of the release that it comes from.
            format!("-B{first}"),
            format!("-L{first}"),
            format!("-L{second}"),
            // RPATH rather than RUNPATH, because it must also hold for libraries that libc itself
            // loads, such as libgcc_s when a thread is cancelled.
            format!("-Wl,--disable-new-dtags,-rpath={second}"),
            format!("-Wl,--dynamic-linker={}", loader.display()),
        ];
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        target_of(&self.root.join("bin-of-tests"), name, &flags)
    }

    /// Starts a program in the root, with its own /proc and /dev.
    pub fn waiting(&self, program: &Path, arguments: &[&str]) -> Waiting {
        Waiting::start(self.command(program).args(arguments), program)
    }

    /// Returns the command that runs a program in the root, with its own /proc and /dev. Paths are
    /// the same inside and outside.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", ENTER, "sh"]);
        command.arg(&self.root).arg(program);
        command
    }
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = output(command);
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    output.status.success().then_some(()).ok_or(said)
}

/// An apt with its own folders.
struct Packages<'a> {
    folder: &'a Path,
    options: Vec<String>,
}

impl Packages<'_> {
    fn new<'a>(release: &str, folder: &'a Path) -> Packages<'a> {
        for name in ["state/lists/partial", "cache/archives/partial"] {
            std::fs::create_dir_all(folder.join(name)).expect("target is writable");
        }
        let list = format!("deb http://deb.debian.org/debian {release} main\n");
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
        let mut command = Command::new("apt-get");
        let options = self.options.iter().flat_map(|option| ["-o", option]);
        run(command.args(options).args(words).current_dir(self.folder))
    }

    /// Downloads the lists of packages.
    fn reach(&self) -> Result<(), String> {
        installed("apt-get").ok_or("there is no apt-get")?;
        self.apt(&["update"])
    }

    fn download(&self) {
        let words = [&["download"], PACKAGES].concat();
        self.apt(&words).expect("the packages");
    }
}

/// Unpacks the packages of a folder to `root` in it. Links are made for `place`, to which the
/// folder is renamed later.
fn unpack(folder: &Path, place: &Path) {
    let script = r#"set -e
mkdir root
for package in *.deb; do dpkg-deb -x "$package" root; done
cd root
for folder in lib lib64; do [ -e $folder ] || ln -s usr/$folder $folder; done
mkdir -p proc dev "./$(dirname "$1")"
find . -type l -lname '/*' | while read -r link; do ln -sfn "$1$(readlink "$link")" "$link"; done
ln -s / "./$1""#;
    let mut shell = Command::new("sh");
    let shell = shell.args(["-c", script, "sh"]).arg(place);
    run(shell.current_dir(folder)).expect("a root");
}
