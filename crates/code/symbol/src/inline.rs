//! Functions that the compiler put into others, and lines of source: what debug information tells of an instruction.

use std::borrow::Cow;

use addr2line::Context;
use gimli::{Dwarf, EndianSlice, LittleEndian, SectionId};

use crate::content::Content;
use crate::debug::DebugSource;
use crate::demangle::demangle;
use crate::elf;
use crate::image::Image;
use crate::variable::{Files, MAX_UNITS, unpacked};

pub(crate) type Slice<'d> = EndianSlice<'d, LittleEndian>;

/// More functions within each other are not told.
const MOST: usize = 32;

/// What is known of an instruction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The functions that were put into the one that it is in, the innermost first.
    pub inlined: Vec<String>,
    /// Its file's name, without folders, and its line there.
    pub line: Option<(String, u32)>,
}

/// The debug information of an image, to be asked for instructions.
pub struct Origins<'d>(Option<Context<Slice<'d>>>);

impl Image {
    /// Asks where instructions of this image, whose `bytes` are the same that it was read from, come from. What
    /// is unpacked and found out on the way is kept for all that `ask` asks.
    pub fn origins<R>(
        &self,
        bytes: &Content,
        source: &dyn DebugSource,
        ask: impl FnOnce(&Origins<'_>) -> R,
    ) -> R {
        let files = Files::find(bytes, source);
        let own = Sections::read(files.described(bytes));
        let shared = files.shared().map(Sections::read);
        let mut dwarf = own.dwarf();
        if let Some(shared) = &shared {
            dwarf.set_sup(shared.dwarf());
        }
        // addr2line keeps something of each unit.
        let mut units = dwarf.units();
        let few = (0..=MAX_UNITS).any(|_| !matches!(units.next(), Ok(Some(_))));
        let context = few.then(|| Context::from_dwarf(dwarf).ok());
        ask(&Origins(context.flatten()))
    }
}

impl Origins<'_> {
    /// Where the instruction at a link-time address comes from; nothing where that is not told.
    pub fn of(&self, address: u64) -> Origin {
        self.find(address).unwrap_or_default()
    }

    fn find(&self, address: u64) -> Option<Origin> {
        let frames = self.0.as_ref()?.find_frames(address);
        let mut frames = frames.skip_all_loads().ok()?;
        let mut origin = Origin::default();
        let mut names = Vec::new();
        while let Ok(Some(frame)) = frames.next() {
            if names.is_empty() {
                origin.line = frame.location.and_then(|location| {
                    let file = location.file?.rsplit('/').next()?;
                    Some((file.to_owned(), location.line?))
                });
            }
            let name = frame
                .function
                .and_then(|f| Some(f.raw_name().ok()?.into_owned()));
            names.push(name.unwrap_or_default());
            if names.len() > MOST {
                return None;
            }
        }
        // The last one is the function itself.
        names.pop();
        let shown = |name: String| match demangle(&name) {
            Some(found) => found.bare,
            None => name,
        };
        origin.inlined = names.into_iter().map(shown).collect();
        Some(origin)
    }
}

/// The sections that addr2line reads, of one file.
pub(crate) struct Sections<'d>(Vec<(SectionId, Cow<'d, [u8]>)>);

impl<'d> Sections<'d> {
    pub(crate) fn read(bytes: &'d Content) -> Sections<'d> {
        let Some(file) = elf::parse(bytes) else {
            return Sections(Vec::new());
        };
        let all = [
            SectionId::DebugAbbrev,
            SectionId::DebugAddr,
            SectionId::DebugAranges,
            SectionId::DebugInfo,
            SectionId::DebugLine,
            SectionId::DebugLineStr,
            SectionId::DebugRanges,
            SectionId::DebugRngLists,
            SectionId::DebugStr,
            SectionId::DebugStrOffsets,
            SectionId::DebugTypes,
        ];
        let section = |id: SectionId| Some((id, unpacked(&file, bytes, id.name())?));
        Sections(all.into_iter().filter_map(section).collect())
    }

    /// How long a section is.
    pub(crate) fn len_of(&self, id: SectionId) -> usize {
        let found = self.0.iter().find(|(found, _)| *found == id);
        found.map_or(0, |(_, bytes)| bytes.len())
    }

    pub(crate) fn dwarf(&self) -> Dwarf<Slice<'_>> {
        let section = |id: SectionId| -> Result<Slice<'_>, gimli::Error> {
            let found = self.0.iter().find(|(found, _)| *found == id);
            let bytes = found.map_or(&[][..], |(_, bytes)| bytes);
            Ok(EndianSlice::new(bytes, LittleEndian))
        };
        Dwarf::load(section).unwrap_or_default()
    }
}
