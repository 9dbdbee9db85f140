//! How to get the symbols that a stripped file lacks, in words.

use std::path::Path;

use crate::debug::hex;
use crate::image::Image;

/// glibc's own libraries, whose symbols Debian has in a package of another name and in
/// its main archive.
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
    /// For a stripped file: that it is one, and the commands that fetch its
    /// symbols. `package` is the Debian package that holds the file, where the
    /// caller knows it.
    pub fn symbols_hint(&self, path: &Path, package: Option<&str>) -> Option<String> {
        if !self.is_stripped() {
            return None;
        }
        let path = path.display();
        let functions = self.functions();
        let nameless = functions.iter().filter(|f| f.names.is_empty()).count();
        let mut text = format!(
            "{path} is stripped: no names for {nameless} of its {} functions\nhint: {}",
            functions.len(),
            self.install(&path.to_string(), package),
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

    /// The command that installs the symbols.
    fn install(&self, path: &str, package: Option<&str>) -> String {
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

/// The command that says which package holds a file. dpkg knows it by the path that the
/// package gave, `/lib/x` or `/usr/lib/x`: both end alike, and are one file now.
fn owner(path: &str) -> String {
    let path = path.strip_prefix("/usr").unwrap_or(path);
    format!("dpkg -S '*{path}' | cut -d: -f1")
}

#[cfg(test)]
mod tests {
    use super::owner;

    #[test]
    fn either_path_of_a_merged_usr_is_asked_for() {
        for path in ["/usr/bin/redis-server", "/bin/redis-server"] {
            assert_eq!(owner(path), "dpkg -S '*/bin/redis-server' | cut -d: -f1");
        }
    }
}
