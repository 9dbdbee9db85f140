//! The sections that describe variables, and the files that have them.
//!
//! The sections are a file's own, or else its separate debug file's. A part may be in another file, which several
//! files share (`.gnu_debugaltlink`, made by dwz).

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use object::read::{Object as _, ObjectSection as _};

use crate::content::Content;
use crate::debug::{self, DebugSource};
use crate::reader::{Section, unpacked};
use crate::{elf, image};

#[derive(Default)]
pub(super) struct Sections<'d> {
    pub(super) info: Cow<'d, [u8]>,
    pub(super) types: Cow<'d, [u8]>,
    pub(super) abbrev: Cow<'d, [u8]>,
    /// Read in parts, because the strings are a third of all debug information.
    pub(super) strings: Section<'d>,
    pub(super) line_strings: Cow<'d, [u8]>,
    pub(super) string_offsets: Cow<'d, [u8]>,
    pub(super) addresses: Cow<'d, [u8]>,
}

impl<'d> Sections<'d> {
    pub(super) fn read(bytes: &'d Content) -> Sections<'d> {
        let Some(file) = elf::parse(bytes) else {
            return Sections::default();
        };
        let section = |name: &str| unpacked(&file, bytes, name).unwrap_or_default();
        Sections {
            info: section(".debug_info"),
            types: section(".debug_types"),
            abbrev: section(".debug_abbrev"),
            strings: Section::of(&file, bytes, ".debug_str"),
            line_strings: section(".debug_line_str"),
            string_offsets: section(".debug_str_offsets"),
            addresses: section(".debug_addr"),
        }
    }
}

#[derive(Default)]
pub(crate) struct Files {
    separate: Option<Content>,
    shared: Option<Content>,
    pub(super) missing: Option<MissingFile>,
}

#[derive(Clone, Debug)]
pub(super) struct MissingFile {
    /// The path, relative to the referring file.
    pub(super) name: String,
    pub(super) build_id: Vec<u8>,
}

type Fetch<'f> = &'f dyn Fn(&[u8]) -> Option<(PathBuf, Content)>;

impl Files {
    pub(crate) fn find(bytes: &Content, source: &dyn DebugSource) -> Files {
        Files::search(bytes, source, &|_| None)
    }

    pub(super) fn find_or_fetch(bytes: &Content, source: &dyn DebugSource) -> Files {
        Files::search(bytes, source, &|build_id| {
            let (path, content) = source.fetch(&debug::hex(build_id))?;
            has_id(&content, build_id).then_some((path, content))
        })
    }

    fn search(bytes: &Content, source: &dyn DebugSource, fetch: Fetch<'_>) -> Files {
        let (mut separate, mut path) = (None, source.image_path().map(Path::to_owned));
        if !has_info(bytes) {
            let header = elf::read(bytes).ok().map(|contents| contents.header);
            let found = header.and_then(|header| {
                let fetched = || fetch(header.build_id.as_deref()?);
                image::debug_file(&header, source).0.or_else(fetched)
            });
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
            let mut found = paths.iter().filter_map(|path| source.read(path));
            let found = found.find(|content| has_id(content, &build_id));
            files.shared = found.or_else(|| fetch(&build_id).map(|(_, content)| content));
            let missing = MissingFile { name, build_id };
            files.missing = files.shared.is_none().then_some(missing);
        }
        files
    }

    pub(super) fn are_cut(&self, own: &Content) -> bool {
        let separate = self.separate.iter().chain(&self.shared);
        own.is_exceeded() || separate.into_iter().any(Content::is_exceeded)
    }

    pub(crate) fn described<'f>(&'f self, own: &'f Content) -> &'f Content {
        self.separate.as_ref().unwrap_or(own)
    }

    pub(crate) fn shared(&self) -> Option<&Content> {
        self.shared.as_ref()
    }
}

fn has_id(content: &Content, build_id: &[u8]) -> bool {
    elf::build_id(content).as_deref() == Some(build_id)
}

fn has_info(bytes: &Content) -> bool {
    let file = elf::parse(bytes);
    let section = file
        .as_ref()
        .and_then(|file| file.section_by_name(".debug_info"));
    section.is_some_and(|section| section.size() > 0)
}

fn alternate(bytes: &Content) -> Option<(String, Vec<u8>)> {
    let file = elf::parse(bytes)?;
    let (name, build_id) = file.gnu_debugaltlink().ok().flatten()?;
    let name = std::str::from_utf8(name).ok()?;
    Some((name.to_owned(), build_id.to_vec()))
}

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
