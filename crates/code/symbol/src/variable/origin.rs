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
use crate::tables::Variable;

pub(super) struct VariableOrigin {
    pub(super) start: Start,
    pub(super) type_of: Option<TypeRef>,
    pub(super) symbol_size: Option<u64>,
}

impl<'d> Variables<'d> {
    pub(super) fn origin(&self, name: &Name) -> Result<VariableOrigin, VariableError> {
        let mut found = names::find(&self.units, name)?;
        let dropped = |found: &NamedVariable<'d>| match found.location {
            // A variable at address 0, or outside the program, was removed by the linker.
            Location::Fixed(Start::Module(address)) => {
                address == 0 || !self.image.layout().has_memory(address)
            }
            _ => false,
        };
        for found in found.iter_mut().filter(|found| dropped(found)) {
            found.location = Location::Nowhere(None);
        }
        for fit in [NameMatch::Exact, NameMatch::Suffix] {
            let fitting: Vec<&NamedVariable<'d>> = found.iter().filter(|f| f.fit == fit).collect();
            if let Some(fixed) = self.choose(name, &fitting)?
                && let Location::Fixed(start) = fixed.location
            {
                return Ok(VariableOrigin {
                    start,
                    type_of: Some(types::type_of(&self.units, &fixed.entry)?),
                    symbol_size: None,
                });
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
                let file = self.units.source_file(found.entry.die);
                match file.filter(|_| same > 1) {
                    Some(file) => format!("'{file}'::{path}"),
                    None => path.clone(),
                }
            });
        named.collect()
    }

    fn of_symbol(
        &self,
        name: &Name,
        symbols: &[&Variable],
        fitting: &[&NamedVariable<'d>],
    ) -> Result<Option<VariableOrigin>, VariableError> {
        let [symbol] = symbols[..] else {
            let choices = symbols.iter().take(MAX_LISTED);
            let shown = |symbol: &&Variable| format!("{:#x}", symbol.address);
            return match symbols.is_empty() {
                true => Ok(None),
                false => Err(VariableError::Ambiguous {
                    name: name.path(),
                    choices: choices.map(shown).collect(),
                }),
            };
        };
        let mut fitting = fitting.iter();
        let declared = fitting.find(|found| found.location == Location::Declared);
        let type_of = declared.map(|found| types::type_of(&self.units, &found.entry));
        Ok(Some(VariableOrigin {
            start: match symbol.is_thread_local {
                true => Start::ThreadLocal(symbol.address),
                false => Start::Module(symbol.address),
            },
            type_of: type_of.transpose()?,
            symbol_size: Some(symbol.size).filter(|&size| size > 0),
        }))
    }

    fn unknown(&self, name: &Name) -> Result<VariableError, VariableError> {
        let path = name.path();
        let functions = self.image.find(&path).unwrap_or_default();
        if functions.iter().any(|function| !function.names.is_empty()) {
            return Ok(VariableError::IsFunction { name: path });
        }
        let mut names: Vec<String> = symbols::names(self.image).collect();
        self.units.budget.refill();
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
    // A loose fit also finds functions' variables, some without a location. The error should name one with a location.
    let found = match fit {
        NameMatch::Exact => gone.or(local),
        NameMatch::Suffix => local.or(gone),
    }?;
    Some(match found.location {
        Location::Nowhere(value) => VariableError::OptimisedOut { name: path, value },
        Location::Register => VariableError::InRegister { name: path },
        Location::Other(what) => VariableError::NoSingleAddress { name: path, what },
        // A variable that is not external has no definition in other files.
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
