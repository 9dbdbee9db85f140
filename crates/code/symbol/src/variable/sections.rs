//! The sections that describe variables, and the files that they are in.
//!
//! A file's own sections come first, then those of its separate debug file. Either may leave
//! a part to a file that several packages share (`.gnu_debugaltlink`, made by dwz), and either
//! may leave all but a stub to `.dwo` files, which are not read.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use object::read::{Object as _, ObjectSection as _};

use crate::debug::{self, Bytes, DebugSource};
use crate::{elf, image};

/// Sections may unpack to this many times the file's size (and [`MAX_UNPACKED`] more).
const MAX_RATIO: u64 = 32;
const MAX_UNPACKED: u64 = 64 << 20;

/// The sections of one file, empty where it has none.
#[derive(Default)]
pub(super) struct Sections<'d> {
    pub(super) info: Cow<'d, [u8]>,
    pub(super) types: Cow<'d, [u8]>,
    pub(super) abbrev: Cow<'d, [u8]>,
    pub(super) strings: Cow<'d, [u8]>,
    pub(super) line_strings: Cow<'d, [u8]>,
    pub(super) string_offsets: Cow<'d, [u8]>,
    pub(super) addresses: Cow<'d, [u8]>,
}

impl<'d> Sections<'d> {
    /// Those of a file; of one that cannot be read, none.
    pub(super) fn read(bytes: &'d [u8]) -> Sections<'d> {
        let Ok(file) = object::read::File::parse(bytes) else {
            return Sections::default();
        };
        let section = |name: &str| unpacked(&file, bytes, name).unwrap_or_default();
        Sections {
            info: section(".debug_info"),
            types: section(".debug_types"),
            abbrev: section(".debug_abbrev"),
            strings: section(".debug_str"),
            line_strings: section(".debug_line_str"),
            string_offsets: section(".debug_str_offsets"),
            addresses: section(".debug_addr"),
        }
    }
}

/// A section of a file of these bytes, unpacked within limits.
pub(crate) fn unpacked<'d>(
    file: &object::read::File<'d>,
    bytes: &[u8],
    name: &str,
) -> Option<Cow<'d, [u8]>> {
    let limit = (bytes.len() as u64).saturating_mul(MAX_RATIO) + MAX_UNPACKED;
    let packed = file.section_by_name(name)?.compressed_data().ok()?;
    let fits = packed.uncompressed_size <= limit;
    fits.then(|| packed.decompress().ok()).flatten()
}

/// The files beside the program's own.
#[derive(Default)]
pub(crate) struct Files {
    separate: Option<Bytes>,
    shared: Option<Bytes>,
    /// A shared file that is not there.
    pub(super) missing: Option<String>,
}

impl Files {
    /// Those that belong to a file.
    pub(crate) fn find(bytes: &[u8], source: &dyn DebugSource) -> Files {
        let (mut separate, mut path) = (None, source.image_path().map(Path::to_owned));
        if !has_info(bytes) {
            let header = elf::read(bytes).ok().map(|contents| contents.header);
            let found = header.and_then(|header| image::debug_file(&header, source));
            if let Some((found, bytes)) = found {
                (separate, path) = (Some(bytes), Some(found));
            }
        }
        let mut files = Files {
            separate,
            ..Files::default()
        };
        if let Some((name, build_id)) = alternate(files.described(bytes)) {
            let paths = places(source, path.as_deref(), &name, &build_id);
            let same =
                |bytes: &Bytes| elf::build_id((**bytes).as_ref()).as_deref() == Some(&build_id[..]);
            let mut found = paths.iter().filter_map(|path| source.read(path));
            files.shared = found.find(same);
            files.missing = files.shared.is_none().then_some(name);
        }
        files
    }

    /// The file that describes the variables: the program's, or its debug file.
    pub(crate) fn described<'f>(&'f self, own: &'f [u8]) -> &'f [u8] {
        self.separate
            .as_ref()
            .map_or(own, |bytes| (**bytes).as_ref())
    }

    /// The file in which others leave what they have in common.
    pub(crate) fn shared(&self) -> Option<&[u8]> {
        self.shared.as_ref().map(|bytes| (**bytes).as_ref())
    }
}

fn has_info(bytes: &[u8]) -> bool {
    let file = object::read::File::parse(bytes).ok();
    let section = file
        .as_ref()
        .and_then(|file| file.section_by_name(".debug_info"));
    section.is_some_and(|section| section.size() > 0)
}

/// The name and build-id of the shared file.
fn alternate(bytes: &[u8]) -> Option<(String, Vec<u8>)> {
    let file = object::read::File::parse(bytes).ok()?;
    let (name, build_id) = file.gnu_debugaltlink().ok().flatten()?;
    let name = std::str::from_utf8(name).ok()?;
    Some((name.to_owned(), build_id.to_vec()))
}

/// Where the shared file may be: its name is relative to the file that refers to it.
fn places(
    source: &dyn DebugSource,
    from: Option<&Path>,
    name: &str,
    build_id: &[u8],
) -> Vec<PathBuf> {
    let folder = from.and_then(Path::parent);
    let mut paths: Vec<PathBuf> = folder.map(|folder| folder.join(name)).into_iter().collect();
    paths.extend(debug::by_build_id(source, build_id));
    paths
}
