//! Finds the inlined functions and the source line of an instruction, from debug information.

use addr2line::Context;
use gimli::{Dwarf, SectionId};

use crate::content::Content;
use crate::debug::DebugSource;
use crate::demangle::demangle;
use crate::elf;
use crate::image::Image;
use crate::reader::{Section, SectionPart};
use crate::variable::{Files, MAX_UNITS};

/// The most reported functions inlined in each other.
const MOST: usize = 32;
/// The number of a shared file's first section.
const SHARED: u16 = 1 << 10;

/// The source of an instruction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The functions inlined at the instruction, innermost first.
    pub inlined: Vec<String>,
    /// The instruction's source file, without folders, and its line.
    pub line: Option<(String, u32)>,
}

/// The debug information of an image, for lookups of instructions.
pub struct Origins<'d>(Option<Context<SectionPart<'d>>>);

impl Image {
    /// Passes the image's origins to `ask`; `bytes` must be the image's. Unpacked and decoded data is kept for all
    /// lookups of `ask`.
    pub fn origins<R>(
        &self,
        bytes: &Content,
        source: &dyn DebugSource,
        ask: impl FnOnce(&Origins<'_>) -> R,
    ) -> R {
        let files = Files::find(bytes, source);
        let mut dwarf = dwarf(files.described(bytes), 0);
        if let Some(shared) = files.shared() {
            dwarf.set_sup(self::dwarf(shared, SHARED));
        }
        // addr2line keeps data for each unit, so their number must be bounded.
        let mut units = dwarf.units();
        let few = (0..=MAX_UNITS).any(|_| !matches!(units.next(), Ok(Some(_))));
        let context = few.then(|| Context::from_dwarf(dwarf).ok());
        ask(&Origins(context.flatten()))
    }
}

impl Origins<'_> {
    /// Returns an instruction's origin by link-time address, empty if unknown.
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

pub(crate) fn dwarf(bytes: &Content, first: u16) -> Dwarf<SectionPart<'_>> {
    let file = elf::parse(bytes);
    let mut numbers = first..;
    let mut part = |id: SectionId| {
        let section = file
            .as_ref()
            .map(|file| Section::of(file, bytes, id.name()));
        SectionPart::all(
            section.unwrap_or_default(),
            numbers.next().unwrap_or(u16::MAX),
        )
    };
    let load = |id: SectionId| Ok::<_, std::convert::Infallible>(part(id));
    match Dwarf::load(load) {
        Ok(dwarf) => dwarf,
        Err(never) => match never {},
    }
}
