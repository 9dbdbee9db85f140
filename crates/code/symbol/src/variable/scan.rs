//! Searches a unit for a variable by reading all its entries in order. Most entries do not match, so their attributes
//! are read only up to the name. The wanted text's offsets in `.debug_str` are found first, so that names are compared
//! by offsets.

use gimli::constants as dw;
use gimli::{
    Abbreviation, Abbreviations, AttributeSpecification, AttributeValue, DwTag, EntriesRaw,
};

use super::file::{Slice, Value};
use super::units::{Die, UnitEntry, Units};
use crate::error::variable_error::VariableError;
use crate::reader::Section;

const MAX_DEPTH: usize = 64;

pub(super) struct EntryQuery<'s> {
    tags: &'s [DwTag],
    name: Option<&'s str>,
    /// The name's offsets in each file's `.debug_str`, ascending.
    places: Vec<Vec<usize>>,
}

impl<'s> EntryQuery<'s> {
    pub(super) fn all(tags: &'s [DwTag]) -> EntryQuery<'s> {
        EntryQuery {
            tags,
            name: None,
            places: Vec::new(),
        }
    }

    /// Matches entries with this name, and nameless variables with a location.
    pub(super) fn called(units: &Units<'_>, tags: &'s [DwTag], name: &'s str) -> EntryQuery<'s> {
        let places = units
            .strings()
            .map(|strings| places(strings, name.as_bytes()));
        EntryQuery {
            tags,
            name: Some(name),
            places: places.collect(),
        }
    }

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

/// Returns the offset of `text` in each string that ends with it.
fn places(strings: &Section<'_>, text: &[u8]) -> Vec<usize> {
    let mut ends = Ends {
        text,
        ..Ends::default()
    };
    strings.each_part(|part| ends.pass(part));
    ends.finish()
}

#[derive(Default)]
struct Ends<'t> {
    text: &'t [u8],
    at: usize,
    /// The current string's last bytes, at most as many as the text has.
    tail: Vec<u8>,
    offsets: Vec<usize>,
}

impl Ends<'_> {
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

    fn extend(&mut self, more: &[u8]) {
        let most = self.text.len();
        self.at += more.len();
        self.tail
            .extend_from_slice(&more[more.len().saturating_sub(most)..]);
        self.tail.drain(..self.tail.len().saturating_sub(most));
    }

    fn end(&mut self) {
        let is_one = self.tail == self.text;
        self.offsets
            .extend(is_one.then(|| self.at - self.text.len()));
        self.tail.clear();
    }

    fn finish(mut self) -> Vec<usize> {
        self.end();
        self.offsets
    }
}

struct Cursor<'u, 'd> {
    raw: EntriesRaw<'u, Slice<'d>>,
    path: Vec<usize>,
}

impl<'u> Cursor<'u, '_> {
    /// Returns the next entry, whose attributes the caller must read or skip.
    fn next(&mut self) -> Option<(usize, &'u Abbreviation)> {
        while !self.raw.is_empty() {
            let depth = usize::try_from(self.raw.next_depth()).unwrap_or(0);
            let offset = self.raw.next_offset().0;
            // After a damaged entry nothing can be decoded.
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

    /// Returns the ancestors' offsets, without the root; `None` if there are too many.
    fn above(&self, offset: usize) -> Option<&[usize]> {
        let (&last, above) = self.path.split_last()?;
        (last == offset).then_some(above)
    }
}

impl<'d> Units<'d> {
    fn cursor<'u>(&self, die: Die, abbreviations: &'u Abbreviations) -> Option<Cursor<'u, 'd>> {
        let header = &self.unit(die)?.header;
        let raw = header.entries_raw(abbreviations, None).ok()?;
        let path = Vec::new();
        Some(Cursor { raw, path })
    }

    /// Passes to `show` the entries of a unit that fit a query, with their ancestors' offsets.
    pub(super) fn scan(
        &self,
        unit: Die,
        query: &EntryQuery<'_>,
        mut show: impl FnMut(&UnitEntry<'d>, &[usize]) -> Result<(), VariableError>,
    ) -> Result<(), VariableError> {
        let Some(abbreviations) = self.abbreviations(unit)? else {
            return Ok(());
        };
        let Some(mut cursor) = self.cursor(unit, &abbreviations) else {
            return Ok(());
        };
        let end = self
            .unit(unit)
            .map(|unit| unit.header.length_including_self());
        self.budget.pay_bytes(end.unwrap_or(0))?;
        let mut entry = UnitEntry::at(unit);
        while let Some((offset, kind)) = cursor.next() {
            self.budget.pay_entry(kind.attributes().len())?;
            if !query.may_be(kind) || cursor.above(offset).is_none() {
                if cursor.raw.skip_attributes(kind.attributes()).is_err() {
                    break;
                }
                continue;
            }
            (entry.die.offset, entry.tag) = (offset, kind.tag());
            let Some(found) = self.read_if(query, &mut cursor.raw, kind, &mut entry) else {
                break;
            };
            if let Some(above) = cursor.above(offset).filter(|_| found) {
                show(&entry, above)?;
            }
        }
        Ok(())
    }

    /// Reads an entry's attributes. Returns `false` at a name that is not the wanted name.
    fn read_if(
        &self,
        query: &EntryQuery<'_>,
        raw: &mut EntriesRaw<'_, Slice<'d>>,
        kind: &Abbreviation,
        entry: &mut UnitEntry<'d>,
    ) -> Option<bool> {
        entry.attributes.clear();
        for (at, &specification) in kind.attributes().iter().enumerate() {
            let attribute = raw.read_attribute(specification).ok()?;
            if attribute.name() == dw::DW_AT_name && !query.is(self, entry.die, attribute.value()) {
                raw.skip_attributes(&kind.attributes()[at + 1..]).ok()?;
                return Some(false);
            }
            entry.attributes.push(attribute);
        }
        Some(true)
    }

    /// Returns an entry's ancestors' offsets, by reading the unit up to the entry.
    pub(super) fn above(&self, die: Die) -> Result<Vec<usize>, VariableError> {
        let Some(abbreviations) = self.abbreviations(die)? else {
            return Ok(Vec::new());
        };
        self.budget.pay_bytes(die.offset)?;
        let Some(mut cursor) = self.cursor(die, &abbreviations) else {
            return Ok(Vec::new());
        };
        while let Some((offset, kind)) = cursor.next() {
            if offset >= die.offset {
                break;
            }
            self.budget.pay_entry(kind.attributes().len())?;
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
            let mut ends = Ends {
                text: b"ab",
                ..Ends::default()
            };
            strings.chunks(size).for_each(|part| ends.pass(part));
            assert_eq!(ends.finish(), [2, 6, 13], "in parts of {size}");
        }
        assert_eq!(places(&Section::default(), b"ab"), []);
    }
}
