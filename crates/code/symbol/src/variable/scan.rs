//! Reading all entries of a unit, in order: how a variable is looked for.
//!
//! Most entries are not what is sought, so as little as possible is done with each: of an
//! entry with a name the attributes up to that one are read, and the name is compared by its
//! place in `.debug_str`, where all places that have the text sought were found before.

use gimli::constants as dw;
use gimli::{
    Abbreviation, Abbreviations, AttributeSpecification, AttributeValue, DwTag, EntriesRaw,
};

use super::error::VariableError;
use super::file::{Slice, Value};
use super::units::{Die, Entry, Units};
use crate::reader::Section;

/// Entries deeper than this are passed over.
const MAX_DEPTH: usize = 64;

/// Which entries are sought.
pub(super) struct Sought<'s> {
    tags: &'s [DwTag],
    name: Option<&'s str>,
    /// Where the name is in each file's `.debug_str`, ascending.
    places: Vec<Vec<usize>>,
}

impl<'s> Sought<'s> {
    /// All with these tags.
    pub(super) fn all(tags: &'s [DwTag]) -> Sought<'s> {
        Sought {
            tags,
            name: None,
            places: Vec::new(),
        }
    }

    /// Those that have this name, or variables with a place and none of their own.
    pub(super) fn called(units: &Units<'_>, tags: &'s [DwTag], name: &'s str) -> Sought<'s> {
        let places = units
            .strings()
            .map(|strings| places(strings, name.as_bytes()));
        Sought {
            tags,
            name: Some(name),
            places: places.collect(),
        }
    }

    /// Whether an entry of this kind may be one.
    fn may_be(&self, kind: &Abbreviation) -> bool {
        if !self.tags.contains(&kind.tag()) {
            return false;
        }
        let has = |name| kind.attributes().iter().any(|a| a.name() == name);
        let is_place = |a: &AttributeSpecification| {
            a.name() == dw::DW_AT_location
                && !matches!(a.form(), dw::DW_FORM_sec_offset | dw::DW_FORM_loclistx)
        };
        self.name.is_none()
            || has(dw::DW_AT_name)
            || kind.tag() == dw::DW_TAG_variable && kind.attributes().iter().any(is_place)
    }

    fn is<'d>(&self, units: &Units<'d>, die: Die, name: Value<'d>) -> bool {
        let Some(wanted) = self.name else { return true };
        let place = match name {
            AttributeValue::DebugStrRef(place) => (die.file, place.0),
            AttributeValue::DebugStrRefSup(place) => (1, place.0),
            _ => return units.is(die, name, wanted),
        };
        let places = self.places.get(place.0);
        places.is_some_and(|places| places.binary_search(&place.1).is_ok())
    }
}

/// Where in a table of strings one ends that is this text, or ends with it.
fn places(strings: &Section<'_>, text: &[u8]) -> Vec<usize> {
    let mut ends = Ends::of(text);
    strings.each_part(|part| ends.pass(part));
    ends.finish()
}

/// Looks for ends of strings in a table that is seen part by part.
struct Ends<'t> {
    text: &'t [u8],
    /// How many bytes have passed.
    at: usize,
    /// The end of the string that a part before began, no longer than the text.
    tail: Vec<u8>,
    found: Vec<usize>,
}

impl<'t> Ends<'t> {
    fn of(text: &'t [u8]) -> Ends<'t> {
        Ends {
            text,
            at: 0,
            tail: Vec::new(),
            found: Vec::new(),
        }
    }

    fn pass(&mut self, part: &[u8]) {
        let mut rest = part;
        while let Some(end) = rest.iter().position(|&byte| byte == 0) {
            self.extend(&rest[..end]);
            self.end();
            self.at += 1;
            rest = &rest[end + 1..];
        }
        self.extend(rest);
    }

    /// Goes on with a string.
    fn extend(&mut self, more: &[u8]) {
        let most = self.text.len();
        self.at += more.len();
        self.tail
            .extend_from_slice(&more[more.len().saturating_sub(most)..]);
        self.tail.drain(..self.tail.len().saturating_sub(most));
    }

    /// Ends a string.
    fn end(&mut self) {
        let is_one = self.tail == self.text;
        self.found.extend(is_one.then(|| self.at - self.text.len()));
        self.tail.clear();
    }

    fn finish(mut self) -> Vec<usize> {
        self.end();
        self.found
    }
}

/// The entries of a unit, one after the other, each with the places of those above it.
struct Cursor<'u, 'd> {
    raw: EntriesRaw<'u, Slice<'d>>,
    path: Vec<usize>,
}

impl<'u> Cursor<'u, '_> {
    /// The next entry's place and kind; its attributes are to be read or skipped.
    fn next(&mut self) -> Option<(usize, &'u Abbreviation)> {
        while !self.raw.is_empty() {
            let depth = usize::try_from(self.raw.next_depth()).unwrap_or(0);
            let offset = self.raw.next_offset().0;
            // Behind a damaged entry nothing makes sense any more.
            let Some(kind) = self.raw.read_abbreviation().ok()? else {
                continue;
            };
            self.path.truncate(depth.saturating_sub(1));
            if (1..=MAX_DEPTH).contains(&depth) {
                self.path.push(offset);
            }
            return Some((offset, kind));
        }
        None
    }

    /// The places of those above the entry, the root left out; `None` if they are too many.
    fn above(&self, offset: usize) -> Option<&[usize]> {
        let (&last, above) = self.path.split_last()?;
        (last == offset).then_some(above)
    }
}

impl<'d> Units<'d> {
    fn cursor<'u>(
        &self,
        (file, unit): (usize, usize),
        abbreviations: &'u Abbreviations,
    ) -> Option<Cursor<'u, 'd>> {
        let header = &self.unit(file, unit)?.header;
        let raw = header.entries_raw(abbreviations, None).ok()?;
        let path = Vec::new();
        Some(Cursor { raw, path })
    }

    /// Shows each entry of a unit that is sought, with the places of those above it.
    pub(super) fn scan(
        &self,
        (file, unit): (usize, usize),
        sought: &Sought<'_>,
        mut show: impl FnMut(&Entry<'d>, &[usize]) -> Result<(), VariableError>,
    ) -> Result<(), VariableError> {
        let Some(abbreviations) = self.abbreviations(file, unit) else {
            return Ok(());
        };
        let Some(mut cursor) = self.cursor((file, unit), &abbreviations) else {
            return Ok(());
        };
        let mut entry = Entry::at(Die {
            file,
            unit,
            offset: 0,
        });
        while let Some((offset, kind)) = cursor.next() {
            self.spend(1 + kind.attributes().len())?;
            if !sought.may_be(kind) || cursor.above(offset).is_none() {
                if cursor.raw.skip_attributes(kind.attributes()).is_err() {
                    break;
                }
                continue;
            }
            (entry.die.offset, entry.tag) = (offset, kind.tag());
            let Some(found) = self.read_if(sought, &mut cursor.raw, kind, &mut entry) else {
                break;
            };
            if let Some(above) = cursor.above(offset).filter(|_| found) {
                show(&entry, above)?;
            }
        }
        Ok(())
    }

    /// Reads an entry's attributes, but for those behind a name that is another.
    fn read_if(
        &self,
        sought: &Sought<'_>,
        raw: &mut EntriesRaw<'_, Slice<'d>>,
        kind: &Abbreviation,
        entry: &mut Entry<'d>,
    ) -> Option<bool> {
        entry.attributes.clear();
        for (at, &specification) in kind.attributes().iter().enumerate() {
            let attribute = raw.read_attribute(specification).ok()?;
            if attribute.name() == dw::DW_AT_name && !sought.is(self, entry.die, attribute.value())
            {
                raw.skip_attributes(&kind.attributes()[at + 1..]).ok()?;
                return Some(false);
            }
            entry.attributes.push(attribute);
        }
        Some(true)
    }

    /// The places of the entries above one, found by reading its unit up to there.
    pub(super) fn above(&self, die: Die) -> Result<Vec<usize>, VariableError> {
        let Some(abbreviations) = self.abbreviations(die.file, die.unit) else {
            return Ok(Vec::new());
        };
        let Some(mut cursor) = self.cursor((die.file, die.unit), &abbreviations) else {
            return Ok(Vec::new());
        };
        while let Some((offset, kind)) = cursor.next() {
            if offset >= die.offset {
                break;
            }
            self.spend(1 + kind.attributes().len())?;
            if cursor.raw.skip_attributes(kind.attributes()).is_err() {
                break;
            }
        }
        Ok(cursor
            .above(die.offset)
            .map(<[usize]>::to_vec)
            .unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_where_strings_end() {
        let strings = b"x\0ab\0cab\0abc\0ab";
        for size in 1..=strings.len() {
            let mut ends = Ends::of(b"ab");
            strings.chunks(size).for_each(|part| ends.pass(part));
            assert_eq!(ends.finish(), [2, 6, 13], "in parts of {size}");
        }
        assert_eq!(places(&Section::default(), b"ab"), []);
    }
}
