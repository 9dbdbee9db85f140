//! How to get the symbols that a stripped file lacks, in words.

use std::path::Path;

use crate::debug::hex;
use crate::image::Image;

impl Image {
    /// For a stripped file: that it is one, and the commands that fetch its
    /// symbols. `package` is the Debian package that holds the file, where the
    /// caller knows it.
    pub fn symbols_hint(&self, path: &Path, package: Option<&str>) -> Option<String> {
        if !self.is_stripped() {
            return None;
        }
        let path = path.display();
        let nameless = self
            .functions()
            .iter()
            .filter(|f| f.names.is_empty())
            .count();
        let package = match package {
            Some(package) => format!("{package}-dbgsym"),
            None => format!("$(dpkg -S {path} | cut -d: -f1)-dbgsym"),
        };
        let mut text = format!(
            "{path} is stripped: {nameless} of its {} functions have no name\n\
             hint: `apt install {package}` brings them, with the archive \
             `deb http://deb.debian.org/debian-debug/ bookworm-debug main`",
            self.functions().len(),
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
}
