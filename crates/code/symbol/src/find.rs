//! Finds functions by name, pattern or address, and names by address.

use std::borrow::Cow;
use std::collections::BTreeSet;

use tiptoe_event::number;

use crate::demangle::{
    DemangledName, demangle, is_mangled, shown, squeeze, without_arguments, without_tags,
};
use crate::error::Error;
use crate::function::{Function, Source, is_whole};
use crate::glob;
use crate::image::Image;

pub(crate) const SUGGESTIONS: usize = 3;
const MAX_ALIKE: usize = 256;
/// The least likeness of a suggestion; equal names have 1.
const MIN_LIKENESS: f64 = 0.8;
/// How many functions before an address are searched for the function that covers the address. An outer function may
/// begin before many inner functions.
const MAX_NESTING: usize = 16;

/// Identifiers that mangled C++ names may abbreviate.
const ABBREVIATED: [&str; 9] = [
    "std",
    "allocator",
    "string",
    "basic_string",
    "istream",
    "ostream",
    "iostream",
    "basic_istream",
    "basic_ostream",
];

impl Image {
    /// Returns the functions that a specification (the user's words) names, ascending by address:
    ///
    /// - `0xADDRESS`: the function at this link-time address, even if no table has a function there;
    /// - with `*` or `?`: all functions with a matching name, mangled or demangled, with or without parameters,
    ///   qualifiers (`const`), and ABI tags. `*` matches `::`; nameless functions match by address; cold parts are
    ///   excluded;
    /// - otherwise all functions with this symbol, else all compilers' copies of it (`f.isra.0` of `f`), else all
    ///   functions with this demangled name, with or without parameters, qualifiers, ABI tags and template arguments.
    ///   Local functions and overloads may share a name.
    pub fn find(&self, spec: &str) -> Result<Vec<Cow<'_, Function>>, Error> {
        if spec.starts_with("0x") {
            return Ok(vec![self.at_address(spec)?]);
        }
        // `operator*` and `f(char*)` are names too.
        let pattern = glob::is_glob(spec);
        let may_be_name = !pattern || spec.contains('(') || spec.contains("operator");
        let named = if may_be_name {
            self.named(spec)
        } else {
            Vec::new()
        };
        let found = if named.is_empty() && pattern {
            self.globbed(spec)
        } else {
            named
        };
        match found.is_empty() {
            true => Err(self.nothing(spec, pattern)),
            false => Ok(found.into_iter().map(Cow::Borrowed).collect()),
        }
    }

    /// Returns the function that covers a link-time address. A function of unknown size extends to the next function.
    pub fn function_containing(&self, address: u64) -> Option<&Function> {
        let after = self.functions.partition_point(|f| f.address <= address);
        let before = self.functions[..after].iter().rev().take(MAX_NESTING);
        let mut before = before.enumerate();
        let covers = |(at, f): (usize, &&Function)| match f.size {
            0 => at == 0 && self.in_same_range(f.address, address),
            _ => address < f.end(),
        };
        before
            .find(|(at, f)| covers((*at, f)))
            .map(|(_, function)| function)
    }

    /// Returns the first function after a link-time address.
    pub fn next_function_after(&self, address: u64) -> Option<&Function> {
        self.functions
            .get(self.functions.partition_point(|f| f.address <= address))
    }

    /// Returns up to `count` similar names, best first.
    pub fn nearest(&self, name: &str, count: usize) -> Vec<String> {
        let entries = self.functions.iter().filter(|f| !f.is_cold);
        let names = entries.flat_map(|f| f.names.iter());
        alike(name, names.map(|name| shown(name).into_owned()), count)
    }

    fn named(&self, name: &str) -> Vec<&Function> {
        for found in [self.with_symbol(name), self.copies(name)] {
            if !found.is_empty() {
                return found;
            }
        }
        let wanted = squeeze(name);
        let tagless = without_tags(name);
        let part = required_part(&tagless);
        let fits = |symbol: &str| {
            is_mangled(symbol)
                && is_whole(symbol)
                && part.is_none_or(|part| symbol.contains(part))
                && demangle(symbol).is_some_and(|form| is_called(&form, &wanted))
        };
        let any_fits = |f: &&Function| f.names.iter().any(|symbol| fits(symbol));
        self.functions.iter().filter(any_fits).collect()
    }

    /// Returns the functions with this symbol.
    pub fn with_symbol(&self, name: &str) -> Vec<&Function> {
        let same = self
            .symbols_from(name)
            .take_while(|(_, symbol)| *symbol == name);
        same.map(|(at, _)| &self.functions[at]).collect()
    }

    fn copies(&self, name: &str) -> Vec<&Function> {
        let prefix = format!("{name}.");
        let copies = self
            .symbols_from(&prefix)
            .take_while(|(_, symbol)| symbol.starts_with(&prefix));
        let whole = copies.filter(|(_, symbol)| is_whole(symbol));
        let found: BTreeSet<usize> = whole.map(|(at, _)| at).collect();
        found.into_iter().map(|at| &self.functions[at]).collect()
    }

    /// Returns the symbols from `name` on, sorted, each with its function's index.
    fn symbols_from(&self, name: &str) -> impl Iterator<Item = (usize, &str)> {
        let symbol = |&(at, name): &(u32, u32)| &*self.functions[at as usize].names[name as usize];
        let start = self.by_name.partition_point(|entry| symbol(entry) < name);
        self.by_name[start..]
            .iter()
            .map(move |entry| (entry.0 as usize, symbol(entry)))
    }

    fn globbed(&self, pattern: &str) -> Vec<&Function> {
        let squeezed = squeeze(pattern);
        let fits = |symbol: &str| {
            glob::matches(pattern, symbol)
                || is_mangled(symbol)
                    && demangle(symbol).is_some_and(|form| {
                        let mut forms = form.forms().into_iter();
                        forms.any(|text| glob::matches(&squeezed, text.as_bytes()))
                    })
        };
        let any_fits = |f: &&Function| match f.names.is_empty() {
            true => glob::matches(pattern, f.hex()),
            false => f.names.iter().any(|symbol| fits(symbol)),
        };
        self.functions
            .iter()
            .filter(|f| !f.is_cold)
            .filter(any_fits)
            .collect()
    }

    fn at_address(&self, text: &str) -> Result<Cow<'_, Function>, Error> {
        let bad = || Error::BadAddress {
            text: text.to_owned(),
        };
        let address = number(text).ok_or_else(bad)?;
        if let Ok(at) = self.functions.binary_search_by_key(&address, |f| f.address) {
            return Ok(Cow::Borrowed(&self.functions[at]));
        }
        let function = self.layout().function(address, Source::Address);
        Ok(Cow::Owned(function.ok_or_else(bad)?))
    }

    fn nothing(&self, spec: &str, pattern: bool) -> Error {
        let is_data = self.data_with_symbol(spec).next().is_some();
        match (pattern, is_data) {
            (_, true) => Error::IsData {
                name: spec.to_owned(),
            },
            (true, _) => Error::NoMatch {
                pattern: spec.to_owned(),
            },
            (false, _) => Error::NoSuchFunction {
                name: spec.to_owned(),
                nearest: self.nearest(spec, SUGGESTIONS),
            },
        }
    }

    fn in_same_range(&self, one: u64, other: u64) -> bool {
        self.layout()
            .executable
            .iter()
            .any(|range| range.contains(&one) && range.contains(&other))
    }
}

pub(crate) fn alike(name: &str, names: impl Iterator<Item = String>, count: usize) -> Vec<String> {
    if name.len() > MAX_ALIKE {
        return Vec::new();
    }
    let wanted = name.to_lowercase();
    let likeness = |text: &str| match text.len() <= MAX_ALIKE {
        true => strsim::jaro_winkler(&wanted, &text.to_lowercase()),
        false => 0.0,
    };
    let mut alike: Vec<(f64, String)> = names
        .map(|shown| {
            (
                likeness(&shown).max(likeness(last_part(&shown)) - 0.05),
                shown,
            )
        })
        .filter(|(likeness, _)| *likeness >= MIN_LIKENESS)
        .collect();
    alike.sort_by(|one, other| other.0.total_cmp(&one.0).then_with(|| one.1.cmp(&other.1)));
    alike.dedup_by(|one, other| one.1 == other.1);
    alike
        .into_iter()
        .take(count)
        .map(|(_, name)| name)
        .collect()
}

/// `wanted` must have no spaces.
fn is_called(form: &DemangledName, wanted: &str) -> bool {
    let is_wanted =
        |name: &str| without_arguments(name).is_some_and(|bare| squeeze(bare) == wanted);
    form.forms().iter().any(|text| text == wanted)
        || is_wanted(&form.bare)
        || is_wanted(&without_tags(&form.bare))
}

/// Returns what a mangled name must contain: the last identifier, unless C++ abbreviates it.
fn required_part(name: &str) -> Option<&str> {
    let part = last_part(name.split(['(', '<']).next()?);
    let plain = !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    (plain && !ABBREVIATED.contains(&part)).then_some(part)
}

fn last_part(name: &str) -> &str {
    name.rsplit("::").next().unwrap_or(name)
}
