//! Finds where functions were inlined, because a probe misses these calls.

use std::collections::HashMap;

use gimli::constants as dw;
use gimli::{AttributeValue, Reader as _, Unit};

use crate::content::Content;
use crate::debug::DebugSource;
use crate::demangle::demangle;
use crate::entries::{Entries, Unread, each_unit};
use crate::error::BudgetExceeded;
use crate::image::Image;
use crate::reader::SectionPart;

const MOST_NAMED: usize = 8;

/// Where the compiler inlined a function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InlinedPlaces {
    /// The number of places.
    pub count: u32,
    /// The link-time addresses of the first functions that contain such places.
    pub within: Vec<u64>,
}

/// The entry to which a function's copies refer: whether the shared file has the entry, and its offset.
type AbstractOrigin = (bool, usize);

impl Image {
    /// Returns where functions were inlined, by the functions' link-time addresses. Fails if there is too much
    /// debug information, because the numbers would be too low.
    pub fn inlined_places(
        &self,
        bytes: &Content,
        source: &dyn DebugSource,
    ) -> Result<HashMap<u64, InlinedPlaces>, BudgetExceeded> {
        Ok(InlineSearch::run(bytes, source, None)?.of_functions())
    }

    /// Returns where functions of this name were inlined, if they have no code of their own. Fails if there is too much
    /// debug information.
    pub fn inlined_everywhere(
        &self,
        name: &str,
        bytes: &Content,
        source: &dyn DebugSource,
    ) -> Result<Option<InlinedPlaces>, BudgetExceeded> {
        Ok(InlineSearch::run(bytes, source, Some(name))?.of_named())
    }
}

#[derive(Default)]
struct InlineSearch<'n> {
    own: HashMap<AbstractOrigin, u64>,
    inlined: HashMap<AbstractOrigin, InlinedPlaces>,
    name: Option<&'n str>,
    named: Vec<AbstractOrigin>,
}

impl InlineSearch<'_> {
    fn run<'n>(
        bytes: &Content,
        source: &dyn DebugSource,
        name: Option<&'n str>,
    ) -> Result<InlineSearch<'n>, BudgetExceeded> {
        let mut search = InlineSearch {
            name,
            ..InlineSearch::default()
        };
        each_unit(bytes, source, |entries| search.look_through(entries))?;
        Ok(search)
    }

    fn look_through(&mut self, entries: &mut Entries<'_, '_>) -> Result<(), Unread> {
        let mut enclosing = None;
        while let Some(entry) = entries.next()? {
            let is_copy = entry.tag == dw::DW_TAG_inlined_subroutine;
            if !is_copy && entry.tag != dw::DW_TAG_subprogram {
                continue;
            }
            entries.read()?;
            let origin = entries.value(dw::DW_AT_abstract_origin);
            let origin = origin.and_then(|at| referred(entries.unit, &at));
            if is_copy {
                if let Some(origin) = origin {
                    self.inlined.entry(origin).or_default().add(1, enclosing);
                }
                continue;
            }
            let itself = || {
                let at = entry.offset.to_debug_info_offset(&entries.unit.header)?;
                Some((false, at.0))
            };
            enclosing = entries.start()?;
            let Some(origin) = origin.or_else(itself) else {
                continue;
            };
            match enclosing {
                Some(start) => drop(self.own.insert(origin, start)),
                None if self.is_named(entries) => self.named.push(origin),
                None => {}
            }
        }
        Ok(())
    }

    fn is_named(&self, entries: &Entries<'_, '_>) -> bool {
        let Some(wanted) = self.name else {
            return false;
        };
        let names = [dw::DW_AT_name, dw::DW_AT_linkage_name].into_iter();
        let mut names = names.filter_map(|name| {
            let text = entries.value(name)?;
            let text = entries.dwarf.attr_string(entries.unit, text).ok()?;
            entries.budget.pay_bytes(text.len()).ok()?;
            Some(text.to_string_lossy().ok()?.into_owned())
        });
        names.any(|name| name == wanted || demangle(&name).is_some_and(|it| it.bare == wanted))
    }

    fn of_functions(mut self) -> HashMap<u64, InlinedPlaces> {
        let places = |(origin, start)| Some((start, self.inlined.remove(&origin)?));
        self.own.into_iter().filter_map(places).collect()
    }

    fn of_named(mut self) -> Option<InlinedPlaces> {
        let named = self.named.iter();
        let without_code = named.filter(|origin| !self.own.contains_key(origin));
        let places = without_code.filter_map(|origin| self.inlined.remove(origin));
        places.reduce(|mut all, more| {
            all.add(more.count, more.within);
            all
        })
    }
}

impl InlinedPlaces {
    fn add(&mut self, count: u32, within: impl IntoIterator<Item = u64>) {
        self.count = self.count.saturating_add(count);
        for start in within {
            if self.within.len() < MOST_NAMED && !self.within.contains(&start) {
                self.within.push(start);
            }
        }
    }
}

fn referred<'d>(
    unit: &Unit<SectionPart<'d>>,
    value: &AttributeValue<SectionPart<'d>>,
) -> Option<AbstractOrigin> {
    match value {
        AttributeValue::UnitRef(at) => Some((false, at.to_debug_info_offset(&unit.header)?.0)),
        AttributeValue::DebugInfoRef(at) => Some((false, at.0)),
        AttributeValue::DebugInfoRefSup(at) => Some((true, at.0)),
        _ => None,
    }
}
