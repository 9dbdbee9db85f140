//! Commands that install missing symbols.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use tiptoe_event::ShellWord;

use crate::debug::hex;
use crate::image::Image;

/// Debian has these libraries' symbols in its main archive, in a differently named package.
const GLIBC: [&str; 7] = [
    "ld-linux-x86-64.so.2",
    "libc.so.6",
    "libm.so.6",
    "libpthread.so.0",
    "libdl.so.2",
    "librt.so.1",
    "libresolv.so.2",
];

const ARCHIVE: &str = "`deb http://deb.debian.org/debian-debug bookworm-debug main`";

const PACKAGED: [&str; 5] = ["/usr/", "/bin/", "/sbin/", "/lib/", "/lib64/"];

const MOST_LETTERS: usize = 100;

/// What a stripped file lacks.
#[derive(Clone, Debug)]
pub struct MissingSymbols {
    /// The number of functions without a name.
    pub nameless: usize,
    /// The number of all functions.
    pub functions: usize,
    /// The commands that install the names.
    pub remedy: String,
}

impl Image {
    /// Returns what a stripped file lacks; `None` for other files.
    pub fn missing_symbols(&self, path: &Path) -> Option<MissingSymbols> {
        let functions = self.functions();
        self.is_stripped().then(|| MissingSymbols {
            nameless: functions.iter().filter(|f| f.names.is_empty()).count(),
            functions: functions.len(),
            remedy: self.install(path),
        })
    }

    /// Returns the commands that install a file's debug information, if a package has the file.
    pub(crate) fn debug_hint(&self, path: &Path) -> Option<String> {
        let is_in = |folder: &&str| path.starts_with(folder);
        if !PACKAGED.iter().any(is_in) || path.starts_with("/usr/local") {
            return None;
        }
        let mut text = self.install(path);
        if let Some(build_id) = &self.header().build_id {
            text += &format!(", or {}", debuginfod(build_id));
        }
        Some(text)
    }

    fn install(&self, path: &Path) -> String {
        let soname = self.header().soname.as_deref().unwrap_or_default();
        if GLIBC.contains(&soname) {
            return "`apt install libc6-dbg` brings them".into();
        }
        let package = format!("$({})", owner(path));
        format!("`apt install {package}-dbgsym` brings them ({ARCHIVE})")
    }
}

/// Returns the commands that install a file made by dwz. Debian names the file after its package,
/// `.dwz/x86_64-linux-gnu/PACKAGE.debug`.
pub(crate) fn shared_file(name: &str, build_id: &[u8]) -> String {
    let own = name.rsplit_once(".dwz/").map(|(_, own)| own);
    let package = own.and_then(|own| own.split_once('/'));
    let package = package.and_then(|(_, file)| file.strip_suffix(".debug"));
    // The traced program chose the name. A user pastes the command into a shell, so special characters are refused.
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || "+-.".contains(letter);
    let package = package.filter(|package| {
        let begins = package.starts_with(|first: char| first.is_ascii_alphanumeric());
        begins && package.len() <= MOST_LETTERS && package.chars().all(is_letter)
    });
    let brings = match (package, build_id.split_first()) {
        (Some(package), _) => format!("`apt install {package}-dbgsym` brings it ({ARCHIVE})"),
        (None, Some((first, rest))) if !rest.is_empty() => format!(
            "`dnf --enablerepo='*debug*' install /usr/lib/debug/.build-id/{first:02x}/{}.debug` brings it",
            hex(rest)
        ),
        _ => return "the package of its debug information brings it".to_owned(),
    };
    format!("{brings}, or {}", debuginfod(build_id))
}

fn debuginfod(build_id: &[u8]) -> String {
    let id = hex(build_id);
    format!("`DEBUGINFOD_URLS=https://debuginfod.debian.net debuginfod-find debuginfo {id}`")
}

/// Returns a command that prints a file's package, whether dpkg lists the file in `/lib` or `/usr/lib`.
fn owner(path: &Path) -> String {
    let path = path.as_os_str().as_bytes();
    let path = path.strip_prefix(b"/usr").unwrap_or(path);
    let pattern = [b"*", path].concat();
    format!("dpkg -S {} | cut -d: -f1", ShellWord(&pattern))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_command_finds_either_path_of_a_merged_usr() {
        for path in ["/usr/bin/redis-server", "/bin/redis-server"] {
            let command = owner(Path::new(path));
            assert_eq!(command, "dpkg -S '*/bin/redis-server' | cut -d: -f1");
        }
    }

    #[test]
    fn a_shared_file_is_brought_by_its_package() {
        let found = |name: &str| shared_file(name, &[0xab, 0xcd, 0x01]);
        for name in [
            "/usr/lib/debug/.dwz/x86_64-linux-gnu/sqlite3.debug",
            "../../.dwz/x86_64-linux-gnu/sqlite3.debug",
        ] {
            let hint = found(name);
            assert!(
                hint.starts_with("`apt install sqlite3-dbgsym` brings it"),
                "{hint}"
            );
            assert!(
                hint.ends_with("debuginfod-find debuginfo abcd01`"),
                "{hint}"
            );
        }
        // RPM's file names include the version, so the build-id is used.
        let rpm = found("../../../.dwz/sqlite-3.40.1-2.fc38.x86_64");
        assert!(
            rpm.contains("install /usr/lib/debug/.build-id/ab/cd01.debug`"),
            "{rpm}"
        );
    }

    #[test]
    fn a_name_that_is_no_package_is_no_part_of_a_command() {
        for name in ["$(reboot)", "a b", "a`id`", "", "-y", "../x"] {
            let hint = shared_file(&format!(".dwz/x86_64-linux-gnu/{name}.debug"), &[1, 2]);
            assert!(!hint.contains("apt install"), "{hint}");
        }
        let long = format!(".dwz/x/{}.debug", "a".repeat(MOST_LETTERS + 1));
        assert!(!shared_file(&long, &[]).contains("apt install"));
    }

    #[test]
    fn a_path_is_one_word_of_the_command() {
        for (path, word) in [
            ("/tmp/a' && reboot '", r"'*/tmp/a'\'' && reboot '\'''"),
            ("/tmp/a\x1b[2J", r"$'*/tmp/a\033[2J'"),
        ] {
            let command = owner(Path::new(path));
            assert_eq!(command, format!("dpkg -S {word} | cut -d: -f1"));
        }
    }
}
