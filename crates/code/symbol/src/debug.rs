//! Finds separate debug files.

use std::path::{Path, PathBuf};

use crate::content::Content;

/// The longest file whose check sum is computed while users wait.
const MOST_SUMMED: u64 = 1 << 30;

/// Fetches separate debug files. The caller decides whose file system to use (a container's, a test's).
pub trait DebugSource {
    /// Returns the path of the image (a program or library), symbolic links resolved.
    fn image_path(&self) -> Option<&Path>;

    /// Returns a regular file's content, if readable.
    fn read(&self, path: &Path) -> Option<Content>;

    /// Returns folders of debug files, which are named by build-id (in `.build-id`) or by their image's path.
    fn roots(&self) -> Vec<PathBuf> {
        vec![PathBuf::from("/usr/lib/debug")]
    }

    /// Returns debuginfod's client cache, if usable.
    fn debuginfod_cache(&self) -> Option<PathBuf> {
        None
    }

    /// Asks a debuginfod server for the file with this hexadecimal build-id. Must be called only if no local file has
    /// the information, because a server is slow.
    fn fetch(&self, _build_id: &str) -> Option<(PathBuf, Content)> {
        None
    }
}

/// A source without debug files.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoDebugFiles;

impl DebugSource for NoDebugFiles {
    fn image_path(&self) -> Option<&Path> {
        None
    }

    fn read(&self, _: &Path) -> Option<Content> {
        None
    }
}

/// A file's `.gnu_debuglink`: its debug file's name and check sum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DebugLink {
    /// A file name without a folder.
    pub name: String,
    /// The debug file's CRC-32.
    pub crc: u32,
}

/// Returns possible paths of the debug file with this build-id, the most likely first.
pub(crate) fn by_build_id(source: &dyn DebugSource, build_id: &[u8]) -> Vec<PathBuf> {
    let Some((first, rest)) = build_id.split_first().filter(|(_, rest)| !rest.is_empty()) else {
        return Vec::new();
    };
    let name = format!(".build-id/{first:02x}/{}.debug", hex(rest));
    let mut paths: Vec<PathBuf> = source.roots().iter().map(|root| root.join(&name)).collect();
    let cached = |cache: PathBuf| cache.join(hex(build_id)).join("debuginfo");
    paths.extend(source.debuginfod_cache().map(cached));
    paths
}

/// Returns possible paths of the linked debug file: beside the image, in `.debug`, and in the image's folder below
/// each root.
pub(crate) fn by_link(source: &dyn DebugSource, link: &DebugLink) -> Vec<PathBuf> {
    let plain = !link.name.is_empty() && link.name != ".." && !link.name.contains(['/', '\0']);
    let Some(folder) = source.image_path().and_then(Path::parent).filter(|_| plain) else {
        return Vec::new();
    };
    let mut paths = vec![
        folder.join(&link.name),
        folder.join(".debug").join(&link.name),
    ];
    let mirrored = folder.strip_prefix("/").unwrap_or(folder);
    paths.extend(
        source
            .roots()
            .iter()
            .map(|root| root.join(mirrored).join(&link.name)),
    );
    paths
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn crc32(content: &Content) -> Option<u32> {
    let mut crc = crc32fast::Hasher::new();
    content.stream(MOST_SUMMED, |part| crc.update(part))?;
    Some(crc.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct At(PathBuf);

    impl DebugSource for At {
        fn image_path(&self) -> Option<&Path> {
            Some(&self.0)
        }

        fn read(&self, _: &Path) -> Option<Content> {
            None
        }

        fn debuginfod_cache(&self) -> Option<PathBuf> {
            Some(PathBuf::from("/cache"))
        }
    }

    #[test]
    fn crc_of_the_standard_text() {
        let text = Content::from(b"123456789".to_vec());
        assert_eq!(crc32(&text), Some(0xcbf4_3926));
    }

    #[test]
    fn debug_files_have_these_paths() {
        let source = At(PathBuf::from("/opt/bin/prog"));
        let paths = by_build_id(&source, &[0xab, 0xcd, 0x01]);
        let wanted = [
            "/usr/lib/debug/.build-id/ab/cd01.debug",
            "/cache/abcd01/debuginfo",
        ];
        assert_eq!(paths, wanted.map(PathBuf::from));
        let link = DebugLink {
            name: "prog.debug".into(),
            crc: 0,
        };
        let wanted = ["/opt/bin/", "/opt/bin/.debug/", "/usr/lib/debug/opt/bin/"];
        assert_eq!(
            by_link(&source, &link),
            wanted.map(|dir| Path::new(dir).join("prog.debug"))
        );
    }

    #[test]
    fn a_link_does_not_leave_its_folders() {
        let source = At(PathBuf::from("/opt/bin/prog"));
        for name in ["../x", "/etc/passwd", "..", ""] {
            let link = DebugLink {
                name: name.into(),
                crc: 0,
            };
            assert!(by_link(&source, &link).is_empty(), "{name}");
        }
    }
}
