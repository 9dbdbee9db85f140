//! Finds members by name, also in nameless members, base classes, and Rust's variants.

use std::ops::Range;

use gimli::constants as dw;

use super::types::{self, Shape, TypeRef, offset_of, shape, type_of};
use super::units::{UnitEntry, Units};
use crate::error::variable_error::{Damage, DebugGap, VariableError};
use crate::find::alike;

/// The deepest recursion, because a cycle would overflow the stack.
const MAX_DEPTH: usize = 16;
const MAX_SEEN: usize = 4096;
const NEAREST: usize = 5;

pub(super) struct Member {
    pub(super) offset: u64,
    pub(super) type_of: TypeRef,
    /// A bit field's bits, counted from the structure's start.
    pub(super) bits: Option<Range<u64>>,
}

struct Search<'s, 'd> {
    units: &'s Units<'d>,
    wanted: &'s str,
    seen: Vec<String>,
    is_virtual: bool,
}

pub(super) fn find<'d>(
    units: &Units<'d>,
    compound: &UnitEntry<'d>,
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
        return Err(VariableError::NoType {
            name: type_name,
            operator: format!(".{wanted}"),
            why: DebugGap::Definition,
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
        compound: &UnitEntry<'d>,
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
        // Inner members are searched last, because a structure's own members hide them.
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

    /// Rust's tuple members `0`, `1` are named `__0`, `__1`.
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

    fn member(&self, member: &UnitEntry<'d>, base: u64) -> Result<Option<Member>, VariableError> {
        let what = Damage::Member;
        let offset = offset_of(self.units, member).ok_or(VariableError::Damaged { what })?;
        let type_of = type_of(self.units, member)?;
        let bits = match member.unsigned(dw::DW_AT_bit_size) {
            None => None,
            Some(count) => {
                let first = match member.unsigned(dw::DW_AT_data_bit_offset) {
                    Some(first) => base.wrapping_mul(8).wrapping_add(first),
                    None => {
                        // Before DWARF 4 the offset counts from the containing word's most significant bit.
                        let holder = member.unsigned(dw::DW_AT_byte_size);
                        let holder = match holder {
                            Some(size) => size,
                            None => types::size(self.units, type_of)?.unwrap_or(4),
                        };
                        let bits_after = member.unsigned(dw::DW_AT_bit_offset).unwrap_or(0);
                        let start = base.wrapping_add(offset).wrapping_add(holder);
                        let end = start.wrapping_mul(8).wrapping_sub(bits_after);
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
