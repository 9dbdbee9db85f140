//! Compiles `.eh_frame` to a table of unwind rules.
//!
//! The bytes are hostile. No number in them may determine the work or the memory; otherwise a few bytes could take
//! hours or gigabytes.

extern crate std;

use std::collections::HashMap;
use std::ops::Range;
use std::vec::Vec;

use gimli::{
    BaseAddresses, CfaRule, CieOrFde, CommonInformationEntry, EhFrame, EhFrameOffset, EndianSlice,
    FrameDescriptionEntry, LittleEndian, Register, RegisterRule, UnwindContext, UnwindExpression,
    UnwindSection, UnwindTableRow, X86_64,
};

use crate::{Base, Rule, encode_row, find};

/// The longest common information entry (CIE) to accept. A CIE's instructions are executed again for each function that
/// uses it, so a long CIE would make the work quadratic.
pub const MAX_CIE: usize = 256;
const MAX_SPANS: usize = 8_000_000;
/// Alignment of functions and linkage table entries. A shorter gap between functions is padding.
const ALIGNED: u32 = 16;

/// An image's unwind section.
pub struct Section<'d> {
    /// Its bytes.
    pub bytes: &'d [u8],
    /// Its link-time address.
    pub address: u64,
    /// The size of an address in bytes: 4 or 8.
    pub word: u8,
    /// Whether the image's code is for x86-64.
    pub x86_64: bool,
}

/// gimli's reader of a section.
pub type Reader<'d> = EndianSlice<'d, LittleEndian>;

/// Rules, sorted by the link-time addresses from which they hold.
#[derive(Clone, Debug, Default)]
pub struct Table(Vec<u64>);

/// Calls `show` for each undamaged frame description (FDE).
pub fn each_description<'d>(
    section: &Section<'d>,
    mut show: impl FnMut(&FrameDescriptionEntry<Reader<'d>>, &EhFrame<Reader<'d>>, &BaseAddresses),
) {
    let mut eh_frame = EhFrame::new(section.bytes, LittleEndian);
    eh_frame.set_address_size(section.word);
    let bases = BaseAddresses::default().set_eh_frame(section.address);
    type Cie<'d> = CommonInformationEntry<Reader<'d>>;
    let mut cies: HashMap<usize, gimli::Result<Cie<'_>>> = HashMap::new();
    let mut entries = eh_frame.entries(&bases);
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else {
            continue;
        };
        let fde = partial.parse(|section, bases, EhFrameOffset(at)| {
            let parse = || section.cie_from_offset(bases, EhFrameOffset(at));
            cies.entry(at).or_insert_with(parse).clone()
        });
        if let Ok(fde) = fde {
            show(&fde, &eh_frame, &bases);
        }
    }
}

impl Table {
    /// Compiles a section; the table is empty unless the section is for x86-64.
    pub fn compile(section: &Section<'_>) -> Table {
        let mut spans = Spans::default();
        if !section.x86_64 {
            return Table::default();
        }
        let mut context = UnwindContext::new();
        each_description(section, |fde, eh_frame, bases| {
            if fde.cie().entry_len() > MAX_CIE {
                return;
            }
            let Ok(mut rows) = fde.rows(eh_frame, bases, &mut context) else {
                return;
            };
            while let Ok(Some(row)) = rows.next_row() {
                spans.add(row, eh_frame, section.bytes.len().min(MAX_SPANS));
            }
        });
        Table(spans.rows())
    }

    /// Returns the rule at a link-time address.
    pub fn rule(&self, address: u64) -> Rule {
        let row = |index| self.0.get(index as usize).copied().unwrap_or(u64::MAX);
        let find = |at| find(self.0.len() as u32, row, at);
        u32::try_from(address).map_or(Rule::UNKNOWN, find)
    }

    /// Returns the sorted rows.
    pub fn rows(&self) -> &[u64] {
        &self.0
    }

    /// Returns the rows within ascending, disjoint `ranges`; code outside them is [`Rule::UNKNOWN`].
    pub fn rows_within(&self, ranges: impl IntoIterator<Item = Range<u64>>) -> Vec<u64> {
        let mut rows: Vec<u64> = Vec::new();
        for range in ranges {
            let [Ok(start), Ok(end)] = [range.start, range.end].map(u32::try_from) else {
                break;
            };
            let goes_on = |last: &mut u64| *last == encode_row(start, Rule::UNKNOWN);
            rows.pop_if(goes_on);
            rows.push(encode_row(start, self.rule(range.start)));
            let first = self.0.partition_point(|row| row >> 32 <= range.start);
            let inside = self.0[first..].iter();
            rows.extend(inside.take_while(|row| **row >> 32 < range.end));
            rows.push(encode_row(end, Rule::UNKNOWN));
        }
        rows
    }
}

#[derive(Default)]
struct Spans(Vec<(u32, u32, Rule)>);

impl Spans {
    fn add(&mut self, row: &UnwindTableRow<usize>, eh_frame: &EhFrame<Reader<'_>>, most: usize) {
        let addresses = [row.start_address(), row.end_address()].map(u32::try_from);
        let [Ok(start), Ok(end)] = addresses else {
            return;
        };
        let CfaRule::Expression(expression) = row.cfa() else {
            return self.push(start, end, supported_rule(row).unwrap_or(Rule::UNKNOWN));
        };
        let Some(turn) = linkage(expression, eh_frame) else {
            return self.push(start, end, Rule::UNKNOWN);
        };
        let mut at = start;
        while at < end && self.0.len() < most {
            let entry = at & !(ALIGNED - 1);
            let (pushed, next) = match at < entry + turn {
                true => (8, entry + turn),
                false => (16, entry.saturating_add(ALIGNED)),
            };
            let rule = Rule::new(Base::Sp, pushed, None).unwrap_or(Rule::UNKNOWN);
            self.push(at, next.min(end), rule);
            at = next;
        }
    }

    fn push(&mut self, start: u32, end: u32, rule: Rule) {
        let is_full = self.0.len() == MAX_SPANS;
        match self.0.last_mut() {
            // Hostile bytes may end a span before its start.
            _ if start >= end || is_full => {}
            Some(last) if last.1 == start && last.2 == rule => last.1 = end,
            _ => self.0.push((start, end, rule)),
        }
    }

    /// Where spans overlap, the span with the later start wins.
    fn rows(mut self) -> Vec<u64> {
        self.0.sort_by_key(|(start, ..)| *start);
        let mut rows: Vec<(u32, Rule)> = Vec::new();
        let mut add = |start, rule| match rows.last_mut() {
            Some(last) if last.0 == start => last.1 = rule,
            Some(last) if last.1 == rule => {}
            _ => rows.push((start, rule)),
        };
        for (index, (start, end, rule)) in self.0.iter().enumerate() {
            add(*start, *rule);
            let next = self.0.get(index + 1).map(|(next, ..)| *next);
            if next.is_none_or(|next| next > end.saturating_add(ALIGNED - 1)) {
                add(*end, Rule::UNKNOWN);
            }
        }
        rows.into_iter()
            .map(|(start, rule)| encode_row(start, rule))
            .collect()
    }
}

fn supported_rule(row: &UnwindTableRow<usize>) -> Option<Rule> {
    match row.register(X86_64::RA)? {
        RegisterRule::Offset(-8) => {}
        RegisterRule::Undefined => return Some(Rule::OUTERMOST),
        _ => return None,
    }
    let CfaRule::RegisterAndOffset { register, offset } = row.cfa() else {
        return None;
    };
    let base = match *register {
        X86_64::RSP => Base::Sp,
        X86_64::RBP => Base::Bp,
        _ => return None,
    };
    let saved = match row.register(X86_64::RBP) {
        None | Some(RegisterRule::SameValue | RegisterRule::Undefined) => None,
        Some(RegisterRule::Offset(at)) => Some(u32::try_from(at.checked_neg()?).ok()?),
        Some(_) => return None,
    };
    Rule::new(base, u32::try_from(*offset).ok()?, saved)
}

/// Returns `turn` if the expression is `rsp + 8 + ((rip & 15) >= turn) * 8`, as for a procedure linkage table. From
/// offset `turn` on, an entry of the table has pushed its number.
fn linkage(expression: &UnwindExpression<usize>, eh_frame: &EhFrame<Reader<'_>>) -> Option<u32> {
    const RSP: Register = X86_64::RSP;
    const RIP: Register = X86_64::RA;
    const LITERAL: u8 = 0x30;
    const BREG: u8 = 0x70;
    let code = expression.get(eh_frame).ok()?;
    let [rsp, 8, rip, 0, 0x3f, 0x1a, turn, 0x2a, 0x33, 0x24, 0x22] = *code.0.slice() else {
        return None;
    };
    let registers = [rsp, rip] == [BREG + RSP.0 as u8, BREG + RIP.0 as u8];
    let turn = u32::from(turn.checked_sub(LITERAL)?);
    (registers && (1..ALIGNED).contains(&turn)).then_some(turn)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    const AT: u64 = 0x1000;

    /// Returns a CIE, and an FDE for each function: start, length, instructions.
    fn eh_frame(functions: &[(u32, u32, &[u8])]) -> Vec<u8> {
        let entry = |body: Vec<u8>| {
            let padded = body.len().next_multiple_of(8) + 4;
            let mut entry = [(padded as u32).to_le_bytes().to_vec(), body].concat();
            entry.resize(padded + 4, 0);
            entry
        };
        // Id, version, "zR", factors 1 and -8, return address's register, pcrel sdata4; def_cfa: rsp+8, offset: rip
        // at CFA-8.
        let cie = [
            0, 0, 0, 0, 1, b'z', b'R', 0, 1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1,
        ];
        let mut bytes = entry(cie.to_vec());
        for (start, len, own) in functions {
            let here = bytes.len() as u32;
            let words = [here + 4, start.wrapping_sub(AT as u32 + here + 8), *len];
            let words = words.map(u32::to_le_bytes).concat();
            bytes.extend(entry([&words, &[0][..], own].concat()));
        }
        [bytes, vec![0; 4]].concat()
    }

    fn compiled(bytes: &[u8]) -> Table {
        Table::compile(&Section {
            bytes,
            address: AT,
            word: 8,
            x86_64: true,
        })
    }

    fn sp(cfa: u32) -> Rule {
        Rule::new(Base::Sp, cfa, None).expect("it fits")
    }

    #[track_caller]
    fn check(functions: &[(u32, u32, &[u8])], rows: &[(u32, Rule)]) {
        let rows: Vec<u64> = rows
            .iter()
            .map(|(start, rule)| encode_row(*start, *rule))
            .collect();
        assert_eq!(compiled(&eh_frame(functions)).rows(), rows);
    }

    /// A framed function's instructions: advance_loc: 1; def_cfa_offset: 16; offset: %rbp at CFA-16; advance_loc: 3;
    /// def_cfa_register: %rbp; advance_loc: 20; def_cfa: rsp+8.
    const FRAMED: [u8; 13] = [0x41, 0x0e, 16, 0x86, 2, 0x43, 0x0d, 6, 0x54, 0x0c, 7, 8, 0];

    #[test]
    fn a_function_with_a_frame_pointer() {
        let saved = |base, cfa| Rule::new(base, cfa, Some(16)).expect("it fits");
        let rows = [
            (0x5000, sp(8)),
            (0x5001, saved(Base::Sp, 16)),
            (0x5004, saved(Base::Bp, 16)),
            (0x5018, saved(Base::Sp, 8)),
            (0x5020, Rule::UNKNOWN),
        ];
        // The epilogue's row still has %rbp's slot. `Rule::step` ignores it, because it is below the stack pointer.
        check(&[(0x5000, 0x20, &FRAMED)], &rows);
    }

    #[test]
    fn equal_neighbours_merge_and_gaps_are_unknown() {
        let unknown = Rule::UNKNOWN;
        // Padding up to a multiple of 16 is no gap.
        let all: [(u32, u32, &[u8]); 4] = [
            (0x5040, 0x08, &[]),
            (0x5000, 0x31, &[]),
            (0x5060, 0x10, &[0x07, 16]),   // undefined: rip
            (0x5100, 0x10, &[0x0c, 3, 8]), // def_cfa: rbx+8
        ];
        let rows = [
            (0x5000, sp(8)),
            (0x5048, unknown),
            (0x5060, Rule::OUTERMOST),
            (0x5070, unknown),
        ];
        check(&all, &rows);
        // The outer function's rule does not resume after a nested one.
        let nested: [(u32, u32, &[u8]); 2] = [(0x5000, 0x100, &[]), (0x5010, 0x10, &[0x0e, 32])];
        check(
            &nested,
            &[(0x5000, sp(8)), (0x5010, sp(32)), (0x5020, unknown)],
        );
    }

    #[test]
    fn linkage_tables_have_two_rules_an_entry() {
        // def_cfa_offset: 16; advance_loc: 16; def_cfa_expression: see `linkage`.
        let code = |turn| {
            [
                0x0e, 16, 0x50, 0x0f, 11, 0x77, 8, 0x80, 0, 0x3f, 0x1a, turn, 0x2a, 0x33, 0x24,
                0x22,
            ]
        };
        let rows = [
            (0x5000, sp(16)),
            (0x5010, sp(8)),
            (0x501b, sp(16)),
            (0x5020, sp(8)),
            (0x502b, sp(16)),
            (0x5030, Rule::UNKNOWN),
        ];
        check(&[(0x5000, 0x30, &code(0x3b))], &rows);
        check(
            &[(0x5000, 0x30, &code(0x29))],
            &[(0x5000, sp(16)), (0x5010, Rule::UNKNOWN)],
        );
        // The table's size must not depend on the claimed length.
        let bytes = eh_frame(&[(0x5000, 0x7fff_ffff, &code(0x3b))]);
        assert!(compiled(&bytes).rows().len() <= bytes.len() + 2);
    }

    #[test]
    fn sections_of_other_machines_give_no_rows() {
        let bytes = eh_frame(&[(0x5000, 16, &[])]);
        let section = Section {
            bytes: &bytes,
            address: AT,
            word: 8,
            x86_64: false,
        };
        assert!(Table::compile(&section).rows().is_empty());
        assert_eq!(Table::default().rule(0x5000), Rule::UNKNOWN);
        assert_eq!(compiled(&bytes).rule(0x1_0000_5000), Rule::UNKNOWN);
    }
}
