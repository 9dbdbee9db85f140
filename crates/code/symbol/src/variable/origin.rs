//! Finds the variable that a name means, by DWARF, symbol, or both.

use gimli::constants as dw;

use super::expression::Name;
use super::location::Location;
use super::names::{self, NameMatch, NamedVariable};
use super::plan::Start;
use super::symbols;
use super::types::{self, TypeRef};
use super::variables::{MAX_LISTED, Variables};
use crate::error::variable_error::VariableError;
use crate::find::{SUGGESTIONS, alike};
use crate::image::Variable;

pub(super) struct VariableOrigin {
    pub(super) start: Start,
    pub(super) type_of: Option<TypeRef>,
    pub(super) symbol_size: Option<u64>,
}

impl<'d> Variables<'d> {
    pub(super) fn origin(&self, name: &Name) -> Result<VariableOrigin, VariableError> {
        let mut found = names::find(&self.units, name)?;
        let dropped = |found: &NamedVariable<'d>| match found.location {
            // The linker removed a variable whose address is outside the program, or 0.
            Location::Address(address) => address == 0 || !self.image.layout().has_memory(address),
            _ => false,
        };
        for found in found.iter_mut().filter(|found| dropped(found)) {
            found.location = Location::Nowhere(None);
        }
        for fit in [NameMatch::Exact, NameMatch::Suffix] {
            let fitting: Vec<&NamedVariable<'d>> = found.iter().filter(|f| f.fit == fit).collect();
            if let Some(fixed) = self.choose(name, &fitting)? {
                return self.of_entry(fixed, fixed.location, None);
            }
            let symbols = symbols::named(self.image, name, fit);
            if let Some(origin) = self.of_symbol(name, &symbols, &fitting)? {
                return Ok(origin);
            }
            if let Some(error) = nowhere(name, fit, &fitting) {
                return Err(error);
            }
        }
        Err(self.unknown(name)?)
    }

    /// Prefers a global variable to static ones.
    fn choose<'f>(
        &self,
        name: &Name,
        fitting: &[&'f NamedVariable<'d>],
    ) -> Result<Option<&'f NamedVariable<'d>>, VariableError> {
        let fixed = fitting.iter().filter(|found| found.location.is_fixed());
        let mut places: Vec<&'f NamedVariable<'d>> = Vec::new();
        for found in fixed {
            if !places.iter().any(|known| known.location == found.location) {
                places.push(found);
            }
        }
        let global = places.iter().filter(|found| self.is_global(found));
        let mut global = global.copied();
        match (&places[..], global.next(), global.next()) {
            ([], ..) => Ok(None),
            (&[one], ..) | ([_, ..], Some(one), None) => Ok(Some(one)),
            _ => Err(VariableError::Ambiguous {
                name: name.path(),
                choices: self.choices(&places),
            }),
        }
    }

    fn is_global(&self, found: &NamedVariable<'d>) -> bool {
        let origins = names::origins(&self.units, &found.entry).unwrap_or_default();
        let mut entries = std::iter::once(&found.entry).chain(&origins);
        entries.any(|entry| entry.has(dw::DW_AT_external))
    }

    fn choices(&self, places: &[&NamedVariable<'d>]) -> Vec<String> {
        let paths: Vec<String> = places
            .iter()
            .map(|found| names::joined(&found.path))
            .collect();
        let named = places
            .iter()
            .zip(&paths)
            .take(MAX_LISTED)
            .map(|(found, path)| {
                let same = paths.iter().filter(|other| *other == path).count();
                let die = found.entry.die;
                let file = self.units.source_file(die.file, die.unit);
                match file.filter(|_| same > 1) {
                    Some(file) => format!("'{file}'::{path}"),
                    None => path.clone(),
                }
            });
        named.collect()
    }

    fn of_entry(
        &self,
        found: &NamedVariable<'d>,
        location: Location,
        symbol_size: Option<u64>,
    ) -> Result<VariableOrigin, VariableError> {
        let start = match location {
            Location::ThreadLocal(offset) => Start::ThreadLocal(offset),
            Location::Address(address) => Start::Module(address),
            _ => Start::Module(0),
        };
        Ok(VariableOrigin {
            start,
            type_of: Some(types::type_of(&self.units, &found.entry)?),
            symbol_size,
        })
    }

    fn of_symbol(
        &self,
        name: &Name,
        symbols: &[&Variable],
        fitting: &[&NamedVariable<'d>],
    ) -> Result<Option<VariableOrigin>, VariableError> {
        let [symbol] = symbols[..] else {
            let choices = symbols.iter().take(MAX_LISTED);
            let shown = |symbol: &&Variable| format!("{:#x}", symbol.start());
            return match symbols.is_empty() {
                true => Ok(None),
                false => Err(VariableError::Ambiguous {
                    name: name.path(),
                    choices: choices.map(shown).collect(),
                }),
            };
        };
        let location = match symbol.is_thread_local() {
            true => Location::ThreadLocal(symbol.start()),
            false => Location::Address(symbol.start()),
        };
        let size = Some(symbol.size()).filter(|&size| size > 0);
        let declared = fitting
            .iter()
            .find(|found| found.location == Location::Declared);
        if let Some(declared) = declared {
            return self.of_entry(declared, location, size).map(Some);
        }
        let start = match location {
            Location::ThreadLocal(offset) => Start::ThreadLocal(offset),
            _ => Start::Module(symbol.start()),
        };
        Ok(Some(VariableOrigin {
            start,
            type_of: None,
            symbol_size: size,
        }))
    }

    fn unknown(&self, name: &Name) -> Result<VariableError, VariableError> {
        let path = name.path();
        let functions = self.image.find(&path).unwrap_or_default();
        if functions.iter().any(|function| !function.names.is_empty()) {
            return Ok(VariableError::IsFunction { name: path });
        }
        let mut names: Vec<String> = symbols::names(self.image).collect();
        self.units.refill();
        names::each_name(&self.units, |name| names.push(name))?;
        Ok(VariableError::NoSuchVariable {
            nearest: alike(&path, names.into_iter(), SUGGESTIONS),
            missing: self.hint(),
            name: path,
        })
    }
}

fn nowhere(name: &Name, fit: NameMatch, fitting: &[&NamedVariable<'_>]) -> Option<VariableError> {
    let path = name.path();
    let is_local = |found: &&&NamedVariable<'_>| {
        matches!(found.location, Location::Local | Location::Register)
    };
    let gone = fitting.iter().find(|found| !is_local(found));
    let local = fitting.iter().find(is_local);
    // A loose fit also finds variables of functions, some without a location. The error must prefer local ones.
    let found = match fit {
        NameMatch::Exact => gone.or(local),
        NameMatch::Suffix => local.or(gone),
    }?;
    Some(match found.location {
        Location::Nowhere(value) => VariableError::OptimisedOut { name: path, value },
        Location::Register => VariableError::InRegister { name: path },
        Location::Other(what) => VariableError::NoSingleAddress { name: path, what },
        // A variable that is not external must be defined in its own file.
        Location::Declared if !found.entry.has(dw::DW_AT_external) => VariableError::OptimisedOut {
            name: path,
            value: None,
        },
        Location::Declared => VariableError::Elsewhere { name: path },
        _ => VariableError::Local {
            name: path,
            function: names::function_of(&found.path),
        },
    })
}
