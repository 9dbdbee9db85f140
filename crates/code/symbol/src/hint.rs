//! Hints how to get the symbols that a stripped file lacks.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use tiptoe_event::{Printable, ShellWord};

use crate::debug::hex;
use crate::image::Image;

/// glibc's own libraries, whose symbols Debian has in a differently named package of its main
/// archive.
const GLIBC: [&str; 7] = [
    "ld-linux-x86-64.so.2",
    "libc.so.6",
    "libm.so.6",
    "libpthread.so.0",
    "libdl.so.2",
    "librt.so.1",
    "libresolv.so.2",
];

impl Image {
    /// Returns, for a stripped file, that it is stripped, and the commands that fetch its symbols.
    /// `package` is the file's Debian package, if the caller knows it.
    pub fn symbols_hint(&self, path: &Path, package: Option<&str>) -> Option<String> {
        if !self.is_stripped() {
            return None;
        }
        let shown = path.display().to_string();
        let functions = self.functions();
        let nameless = functions.iter().filter(|f| f.names.is_empty()).count();
        let mut text = format!(
            "{} is stripped: no names for {nameless} of its {} functions\nhint: {}",
            Printable(&shown),
            functions.len(),
            self.install(path, package),
        );
        if let Some(build_id) = &self.header().build_id {
            text += &format!(
                "\nhint: or `DEBUGINFOD_URLS=https://debuginfod.debian.net \
                 debuginfod-find debuginfo {}`",
                hex(build_id),
            );
        }
        Some(text)
    }

    /// Returns the command that installs the symbols.
    fn install(&self, path: &Path, package: Option<&str>) -> String {
        let soname = self.header().soname.as_deref().unwrap_or_default();
        let package = match package {
            _ if GLIBC.contains(&soname) => return "`apt install libc6-dbg` brings them".into(),
            Some(package) => package.to_owned(),
            None => format!("$({})", owner(path)),
        };
        format!(
            "`apt install {package}-dbgsym` brings them, with the archive \
             `deb http://deb.debian.org/debian-debug/ bookworm-debug main`"
        )
    }
}

/// Returns the command that names a file's package. dpkg knows the file by the package's path,
/// `/lib/x` or `/usr/lib/x`. Both have the same end, and are now one file.
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

    /// The traced program chose the path, and a user pastes the command, so it must be one word.
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
