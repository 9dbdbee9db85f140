//! Members of structures, by name: also those of nameless ones within, of base classes and of
//! the variants of Rust's enumerations.

use std::ops::Range;

use gimli::constants as dw;

use super::error::VariableError;
use super::types::{self, Shape, TypeRef, offset_of, shape, type_of};
use super::units::{Entry, Units};
use crate::find::alike;

/// How deeply nameless structures and base classes may nest.
const MAX_DEPTH: usize = 16;
/// How many names are kept for an error, and of those how many that are near it tells.
const MAX_SEEN: usize = 4096;
const NEAREST: usize = 5;

/// A member.
pub(super) struct Member {
    /// Where it begins.
    pub(super) offset: u64,
    /// What it is.
    pub(super) type_of: TypeRef,
    /// Its bits, counted from the structure's first, if it is a bit field.
    pub(super) bits: Option<Range<u64>>,
}

/// What is looked for, and what was seen on the way.
struct Search<'s, 'd> {
    units: &'s Units<'d>,
    wanted: &'s str,
    seen: Vec<String>,
    /// It was there, but in a virtual base class.
    is_virtual: bool,
}

/// Finds a member.
pub(super) fn find<'d>(
    units: &Units<'d>,
    compound: &Entry<'d>,
    wanted: &str,
) -> Result<Member, VariableError> {
    let mut search = Search {
        units,
        wanted,
        seen: Vec::new(),
        is_virtual: false,
    };
    if let Some(member) = search.within(compound, 0, 0)? {
        return Ok(member);
    }
    let type_name = types::name(units, TypeRef::of(Some(compound.die)))?;
    let member = wanted.to_owned();
    if search.is_virtual {
        return Err(VariableError::VirtualBase { type_name, member });
    }
    if search.seen.is_empty() {
        let why = "it is only declared: its definition is in no file with debug information";
        return Err(VariableError::NoType {
            name: type_name,
            operator: format!(".{wanted}"),
            why: why.to_owned(),
        });
    }
    Err(VariableError::NoSuchMember {
        type_name,
        nearest: alike(wanted, search.seen.iter().cloned(), NEAREST),
        member,
        members: search.seen,
    })
}

impl<'d> Search<'_, 'd> {
    fn within(
        &mut self,
        compound: &Entry<'d>,
        base: u64,
        depth: usize,
    ) -> Result<Option<Member>, VariableError> {
        let units = self.units;
        let mut below = Vec::new();
        for child in units.children(compound.die)? {
            match child.tag {
                dw::DW_TAG_member if child.has(dw::DW_AT_declaration) => {}
                dw::DW_TAG_member => match units.name(&child) {
                    Some(name) if self.is_wanted(&name) => {
                        return self.member(&child, base);
                    }
                    Some(name) => self.see(name),
                    None => below.push(child),
                },
                dw::DW_TAG_inheritance => below.push(child),
                dw::DW_TAG_variant_part | dw::DW_TAG_variant if depth < MAX_DEPTH => {
                    let found = self.within(&child, base, depth + 1)?;
                    if found.is_some() {
                        return Ok(found);
                    }
                }
                _ => {}
            }
        }
        // Its own members hide those of what it is made of.
        for child in below.into_iter().filter(|_| depth < MAX_DEPTH) {
            let Shape::Compound(inner) = shape(units, type_of(units, &child)?)? else {
                continue;
            };
            let is_virtual = child.has(dw::DW_AT_virtuality);
            let offset = offset_of(units, &child).filter(|_| !is_virtual);
            let at = base.wrapping_add(offset.unwrap_or(0));
            let found = self.within(&inner, at, depth + 1)?;
            if found.is_some() && offset.is_none() {
                self.is_virtual = true;
                return Ok(None);
            }
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// Rust's tuples have members `0`, `1`, which are called `__0`, `__1`.
    fn is_wanted(&self, name: &str) -> bool {
        let number = name.strip_prefix("__").unwrap_or_default();
        name == self.wanted
            || number == self.wanted && number.bytes().all(|byte| byte.is_ascii_digit())
    }

    fn see(&mut self, name: String) {
        if self.seen.len() < MAX_SEEN {
            self.seen.push(name);
        }
    }

    fn member(&self, member: &Entry<'d>, base: u64) -> Result<Option<Member>, VariableError> {
        let what = "a member without a place";
        let offset = offset_of(self.units, member).ok_or(VariableError::Damaged { what })?;
        let type_of = type_of(self.units, member)?;
        let bits = match member.unsigned(dw::DW_AT_bit_size) {
            None => None,
            Some(count) => {
                let first = match member.unsigned(dw::DW_AT_data_bit_offset) {
                    Some(first) => base.wrapping_mul(8).wrapping_add(first),
                    None => {
                        // Before DWARF 4: from the most significant bit of what holds it.
                        let holder = member.unsigned(dw::DW_AT_byte_size);
                        let holder = match holder {
                            Some(size) => size,
                            None => types::size(self.units, type_of)?.unwrap_or(4),
                        };
                        let behind = member.unsigned(dw::DW_AT_bit_offset).unwrap_or(0);
                        let start = base.wrapping_add(offset).wrapping_add(holder);
                        let end = start.wrapping_mul(8).wrapping_sub(behind);
                        end.wrapping_sub(count)
                    }
                };
                Some(first..first.wrapping_add(count))
            }
        };
        Ok(Some(Member {
            offset: base.wrapping_add(offset),
            type_of,
            bits,
        }))
    }
}
