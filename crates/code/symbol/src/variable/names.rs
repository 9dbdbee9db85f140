//! Finds the variables with a name.
//!
//! A variable's path has the namespaces, classes and functions around the variable, then its name. A name fits
//! exactly if it is the whole path, optional namespaces aside, and loosely if the path ends with the name: `counter`
//! finds `main::counter` if no variable is `counter` alone.

use gimli::DwTag;
use gimli::constants as dw;

use super::expression::{ANONYMOUS, Name};
use super::location::{Location, location};
use super::scan::EntryQuery;
use super::units::{Die, UnitEntry, Units};
use crate::demangle::{squeeze, without_arguments};
use crate::error::variable_error::VariableError;

const MAX_FOUND: usize = 4096;
const MAX_OTHERS: usize = 64;
/// The longest chain of references, which may form a cycle.
const MAX_CHAIN: usize = 8;

pub(super) struct NamedVariable<'d> {
    pub(super) entry: UnitEntry<'d>,
    pub(super) location: Location,
    pub(super) path: Vec<PathPart>,
    pub(super) fit: NameMatch,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum NameMatch {
    Suffix,
    Exact,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PathPart {
    pub(super) text: String,
    /// Whether it is a nameless or inline namespace.
    is_optional: bool,
}

pub(super) fn find<'d>(
    units: &Units<'d>,
    name: &Name,
) -> Result<Vec<NamedVariable<'d>>, VariableError> {
    let mut found = Vec::new();
    let mut others = 0;
    let wanted = name.last();
    let tags = [
        dw::DW_TAG_variable,
        dw::DW_TAG_member,
        dw::DW_TAG_formal_parameter,
    ];
    let query = EntryQuery::called(units, &tags, wanted);
    for unit in units.all() {
        if !is_of(units, unit, name.file.as_deref()) {
            continue;
        }
        units.scan(unit, &query, |entry, above| {
            if !is_called(units, entry, wanted)? {
                return Ok(());
            }
            // A parameter has no fixed address, whatever its entry says.
            let location = match entry.tag {
                dw::DW_TAG_formal_parameter => Location::Local,
                _ => location(units, entry),
            };
            others += usize::from(!location.is_fixed());
            let full = match location.is_fixed() {
                true => found.len() >= MAX_FOUND,
                false => others > MAX_OTHERS,
            };
            if full {
                return Ok(());
            }
            let path = path(units, entry, above, 0)?;
            found.extend(fit(&path, name).map(|fit| NamedVariable {
                entry: entry.clone(),
                location,
                path,
                fit,
            }));
            Ok(())
        })?;
    }
    Ok(found)
}

/// A unit without a name belongs to no source file.
fn is_of(units: &Units<'_>, unit: Die, wanted: Option<&str>) -> bool {
    let Some(wanted) = wanted else { return true };
    let source = units.source_file(unit);
    source.is_some_and(|source| {
        let end = source.strip_suffix(wanted);
        end.is_some_and(|before| before.is_empty() || before.ends_with('/'))
    })
}

/// An entry without a name may have its declaration's name.
fn is_called<'d>(
    units: &Units<'d>,
    entry: &UnitEntry<'d>,
    wanted: &str,
) -> Result<bool, VariableError> {
    if let Some(name) = entry.attribute(dw::DW_AT_name) {
        let is_static = entry.tag != dw::DW_TAG_member || entry.has(dw::DW_AT_declaration);
        return Ok(is_static && units.is(entry.die, name, wanted));
    }
    if !location(units, entry).is_fixed() {
        return Ok(false);
    }
    let mut names = origins(units, entry)?.into_iter();
    let name = names.find_map(|origin| Some((origin.die, origin.attribute(dw::DW_AT_name)?)));
    Ok(name.is_some_and(|(die, name)| units.is(die, name, wanted)))
}

/// Returns the entries that may have an entry's missing attributes: the entry's declaration, or the function that the
/// entry copies.
pub(super) fn origins<'d>(
    units: &Units<'d>,
    entry: &UnitEntry<'d>,
) -> Result<Vec<UnitEntry<'d>>, VariableError> {
    let mut origins: Vec<UnitEntry<'d>> = Vec::new();
    while origins.len() < MAX_CHAIN {
        let last = origins.last().unwrap_or(entry);
        let Some(origin) = origin(units, last) else {
            break;
        };
        let origin = units.entry(origin)?;
        origins.push(origin);
    }
    Ok(origins)
}

fn origin<'d>(units: &Units<'d>, entry: &UnitEntry<'d>) -> Option<Die> {
    let reference = entry.attribute(dw::DW_AT_specification);
    let reference = reference.or_else(|| entry.attribute(dw::DW_AT_abstract_origin));
    units.follow(entry.die, reference?)
}

fn path<'d>(
    units: &Units<'d>,
    entry: &UnitEntry<'d>,
    above: &[usize],
    depth: usize,
) -> Result<Vec<PathPart>, VariableError> {
    // A definition may be outside the scope that declares it, so the path is that of the declaration.
    if let Some(origin) = origin(units, entry).filter(|_| depth < MAX_CHAIN) {
        let origin = units.entry(origin)?;
        let above = units.above(origin.die)?;
        return path(units, &origin, &above, depth + 1);
    }
    let mut parts = match above.split_last() {
        None => Vec::new(),
        Some((&parent, above)) => {
            let parent = units.entry(Die {
                offset: parent,
                ..entry.die
            })?;
            path(units, &parent, above, depth)?
        }
    };
    parts.extend(part(units, entry));
    Ok(parts)
}

fn part<'d>(units: &Units<'d>, entry: &UnitEntry<'d>) -> Option<PathPart> {
    let name = units.name(entry);
    match entry.tag {
        dw::DW_TAG_namespace => Some(PathPart {
            is_optional: name.is_none() || entry.has(dw::DW_AT_export_symbols),
            text: name.unwrap_or_else(|| ANONYMOUS.to_owned()),
        }),
        dw::DW_TAG_lexical_block | dw::DW_TAG_inlined_subroutine => None,
        _ => Some(PathPart {
            text: name?,
            is_optional: false,
        }),
    }
}

fn fit(path: &[PathPart], name: &Name) -> Option<NameMatch> {
    let mut left = path;
    for wanted in name.parts.iter().rev() {
        loop {
            let (part, before) = left.split_last()?;
            left = before;
            if is(&part.text, wanted) {
                break;
            }
            if !part.is_optional {
                return None;
            }
        }
    }
    match left.iter().all(|part| part.is_optional) {
        true => Some(NameMatch::Exact),
        false if name.is_global => None,
        false => Some(NameMatch::Suffix),
    }
}

/// Returns whether the user's text names a part of a path, where parameters and template arguments may be left out.
fn is(part: &str, wanted: &str) -> bool {
    let same = |part: &str| squeeze(part) == squeeze(wanted);
    let function = wanted.split('(').next().unwrap_or_default();
    same(part)
        || !function.is_empty() && function.len() < wanted.len() && function == part
        || without_arguments(part).is_some_and(same)
}

pub(super) fn joined(path: &[PathPart]) -> String {
    let texts: Vec<&str> = path.iter().map(|part| &*part.text).collect();
    texts.join("::")
}

pub(super) fn function_of(path: &[PathPart]) -> String {
    joined(path.split_last().map_or(&[], |(_, above)| above))
}

pub(super) fn each_name(
    units: &Units<'_>,
    mut show: impl FnMut(String),
) -> Result<(), VariableError> {
    let query = EntryQuery::all(&[dw::DW_TAG_variable]);
    for unit in units.all() {
        units.scan(unit, &query, |entry, _| {
            let is_fixed = location(units, entry).is_fixed();
            if is_fixed && entry.attribute(dw::DW_AT_name).is_some() {
                units.name(entry).into_iter().for_each(&mut show);
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// Returns the definition of a declared structure, by its signature, or else by its name and path.
pub(super) fn definition<'d>(
    units: &Units<'d>,
    declared: &UnitEntry<'d>,
) -> Result<Option<UnitEntry<'d>>, VariableError> {
    if let Some(signature) = declared.attribute(dw::DW_AT_signature) {
        let defined = units.follow(declared.die, signature);
        return defined.map(|die| units.entry(die)).transpose();
    }
    let Some(name) = units.name(declared) else {
        // Fails if the name is missing because the budget is exceeded.
        units.budget.pay(1)?;
        return Ok(None);
    };
    let wanted = path(units, declared, &units.above(declared.die)?, 0)?;
    let query = EntryQuery::called(units, same_kind(declared.tag), &name);
    let mut found = None;
    for unit in units.all() {
        units.scan(unit, &query, |entry, above| {
            let is_definition = !entry.has(dw::DW_AT_declaration);
            if found.is_none() && is_definition && path(units, entry, above, 0)? == wanted {
                found = Some(entry.clone());
            }
            Ok(())
        })?;
        if found.is_some() {
            break;
        }
    }
    Ok(found)
}

/// Returns equivalent tags: `class` in one file may be `struct` in another.
fn same_kind(tag: DwTag) -> &'static [DwTag] {
    match tag {
        dw::DW_TAG_union_type => &[dw::DW_TAG_union_type],
        dw::DW_TAG_enumeration_type => &[dw::DW_TAG_enumeration_type],
        _ => &[dw::DW_TAG_structure_type, dw::DW_TAG_class_type],
    }
}

#[cfg(test)]
mod tests {
    use super::super::expression::{Expression, Root};
    use super::*;

    #[test]
    fn names_fit_the_ends_of_paths() {
        let part = |text: &&str| PathPart {
            text: text.trim_start_matches('?').into(),
            is_optional: text.starts_with('?'),
        };
        let check = |path: &[&str], text: &str, wanted| {
            let path: Vec<PathPart> = path.iter().map(part).collect();
            let Root::Name(name) = Expression::parse(text).unwrap().root else {
                panic!("{text}")
            };
            assert_eq!(fit(&path, &name), wanted, "{text} in {}", joined(&path));
        };
        check(&["x"], "x", Some(NameMatch::Exact));
        check(&["ns", "x"], "ns::x", Some(NameMatch::Exact));
        check(&["ns", "x"], "x", Some(NameMatch::Suffix));
        check(&["ns", "x"], "::x", None);
        check(&["ns", "x"], "other::x", None);
        check(&["x"], "ns::x", None);
        check(
            &["?(anonymous namespace)", "x"],
            "x",
            Some(NameMatch::Exact),
        );
        check(&["ns", "?__1", "x"], "ns::x", Some(NameMatch::Exact));
        check(&["ns", "?__1", "x"], "ns::__1::x", Some(NameMatch::Exact));
        check(&["f", "n"], "'f(int)::n'", Some(NameMatch::Exact));
        check(&["Box<int>", "n"], "Box<int>::n", Some(NameMatch::Exact));
        check(&["Box<int>", "n"], "Box::n", Some(NameMatch::Exact));
        check(&["Box<int>", "n"], "Box<long>::n", None);
    }
}
