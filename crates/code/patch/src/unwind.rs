//! Unwind information for trampolines (the code that counts). With it an unwinder that starts inside a trampoline (a
//! profiler's signal, an asynchronous cancellation) sees the untraced program.
//!
//! Each instruction of a trampoline represents an address of the program. A copied instruction represents its original,
//! the jump back the next instruction, and all others the patched address. Unwinders see a trampoline as a frame like a
//! signal handler's, which interrupted the program at that address. Decoding from each declared state
//! ([`Code::set_unwind_state`]) finds what the trampoline has pushed. If the trampoline calls the function itself
//! (`by_itself`), the code to which that call returns has no frame. Its return address is in the word `CALLER`.
//!
//! A trampoline's frame must not have the same canonical address as the program's frame, because libgcc identifies
//! frames by that address.

use std::collections::BTreeMap;
use std::ops::Range;

use iced_x86::{Code as Op, Decoder, DecoderOptions, FlowControl, Instruction, Register};
use tiptoe_wire::arena::{UNIT, unwind_info};

use crate::code::{Code, LinkTarget, UnwindState};

fn rows(code: &Code, first: UnwindState) -> Vec<(usize, UnwindState)> {
    let mut walk = Walk {
        code,
        stated: code.unwind_states().iter().copied().collect(),
        states: BTreeMap::new(),
        open: vec![(0, first)],
    };
    walk.open.extend(code.unwind_states());
    while let Some((at, stand)) = walk.open.pop() {
        walk.visit(at, stand);
    }
    let mut rows: Vec<_> = walk.states.into_iter().collect();
    rows.dedup_by_key(|(_, stand)| *stand);
    rows
}

struct Walk<'a> {
    code: &'a Code,
    stated: BTreeMap<usize, UnwindState>,
    states: BTreeMap<usize, UnwindState>,
    open: Vec<(usize, UnwindState)>,
}

impl Walk<'_> {
    fn visit(&mut self, at: usize, stand: UnwindState) {
        let stand = self.stated.get(&at).copied().unwrap_or(stand);
        let Some(bytes) = self.code.bytes().get(at..) else {
            return;
        };
        if let Some(before) = self.states.get(&at) {
            debug_assert_eq!(*before, stand, "two ways lead to {at}");
            return;
        }
        let instruction = Decoder::with_ip(64, bytes, at as u64, DecoderOptions::NONE).decode();
        if instruction.is_invalid() {
            return;
        }
        self.states.insert(at, stand);
        let next = at + instruction.len();
        let link = self.code.link_before(next);
        let depth = stand.depth - moves(&instruction, link);
        let after = UnwindState { depth, ..stand };
        if falls_through(&instruction) {
            self.open.push((next, after));
        }
        if link.is_none() && branches(&instruction) {
            let target = instruction.near_branch_target() as usize;
            self.open.push((target, after));
        }
    }
}

/// Returns the stack pointer's change by the instruction, and by the callee if it is a call.
fn moves(instruction: &Instruction, link: Option<LinkTarget>) -> i64 {
    match (instruction.code(), link) {
        (Op::Call_rel32_64, Some(LinkTarget::Time)) => 0,
        // The agent's other entries return by `ret $8`.
        (Op::Call_rel32_64, _) => 8,
        (Op::Lea_r64_m, _) if instruction.op0_register() == Register::RSP => {
            instruction.memory_displacement64() as i64
        }
        _ => instruction.stack_pointer_increment().into(),
    }
}

fn falls_through(instruction: &Instruction) -> bool {
    use FlowControl::{Call, ConditionalBranch, Next};
    matches!(instruction.flow_control(), Next | Call | ConditionalBranch)
}

fn branches(instruction: &Instruction) -> bool {
    use FlowControl::{ConditionalBranch, UnconditionalBranch};
    matches!(
        instruction.flow_control(),
        ConditionalBranch | UnconditionalBranch
    )
}

#[derive(Clone, Debug)]
pub(crate) struct UnwindInfo {
    parts: Vec<UnwindPart>,
    slot: Option<u32>,
}

#[derive(Clone, Debug)]
struct UnwindPart {
    form: &'static Form,
    program: Vec<u8>,
    /// After a followed call: the caller's index.
    way: Option<usize>,
    start: usize,
    count: usize,
}

#[derive(Debug, PartialEq, Eq)]
struct Form {
    augmentation: &'static [u8],
    data_factor: u8,
    program: &'static [u8],
}

const STACK_POINTER: u8 = 7;
const RETURN_ADDRESS: u8 = 16;
/// DW_EH_PE_pcrel, four bytes: relative to the field's own address.
const RELATIVE: u8 = 0x1b;
const CIE: u64 = 24;

/// A signal's frame, so that unwinders look up the caller's address unchanged. The CFA is -4(%rsp) (def_cfa_sf), which
/// no function's frame has; %rsp is the CFA plus 4 (val_offset_sf).
static TRAMPOLINE: Form = Form {
    augmentation: b"zRS\0",
    data_factor: 0x7c,
    program: &[0x12, STACK_POINTER, 1, 0x15, STACK_POINTER, 0x7f],
};

/// Called code that pushes nothing: def_cfa 8(%rsp).
static CALLED: Form = Form {
    augmentation: b"zR\0",
    data_factor: 0x78,
    program: &[0x0c, STACK_POINTER, 8, 0x80 | RETURN_ADDRESS, 1],
};

/// For the code to which the trampoline's own calls return. This code has no frame, so its CFA is -8(%rsp), which no
/// function's frame has (def_cfa_sf); %rsp is the CFA plus 8 (val_offset_sf).
static RETURNED: Form = Form {
    augmentation: b"zR\0",
    data_factor: 0x78,
    program: &[0x12, STACK_POINTER, 1, 0x15, STACK_POINTER, 0x7f],
};

const CALL: usize = 5;
const PUSH: usize = 6;

impl UnwindInfo {
    pub(crate) fn trampoline(code: &Code, site: u64, depth: i64) -> UnwindInfo {
        let rows = rows(code, UnwindState { offset: 0, depth });
        let part = |start: usize, end: usize| UnwindPart {
            form: &TRAMPOLINE,
            program: program(&rows, start..end, site),
            way: None,
            start,
            count: end - start,
        };
        let (mut parts, mut start) = (Vec::new(), 0);
        for (way, (call, _)) in code.followed().iter().enumerate() {
            // Unwinders look up a return address minus one.
            let (returning, pushed) = (call + 1, call + CALL + PUSH);
            parts.push(part(start, returning));
            parts.push(UnwindPart {
                form: &RETURNED,
                program: Vec::new(),
                way: Some(way),
                start: returning,
                count: pushed - returning,
            });
            start = pushed;
        }
        parts.push(part(start, code.len()));
        let slot = code.followed().first().map(|(_, slot)| *slot);
        UnwindInfo { parts, slot }
    }

    pub(crate) fn called(count: usize) -> UnwindInfo {
        UnwindInfo {
            parts: vec![UnwindPart {
                form: &CALLED,
                program: Vec::new(),
                way: None,
                start: 0,
                count,
            }],
            slot: None,
        }
    }

    pub(crate) fn len(&self) -> u64 {
        self.at(0, 0, 0).len() as u64
    }

    /// Returns the bytes at address `at`, for code at `code`: `.eh_frame_hdr` with an entry for each part, the slot and
    /// `callers`, CIEs, FDEs, the terminator.
    pub(crate) fn at(&self, at: u64, code: u64, callers: u64) -> Vec<u8> {
        let forms = self.forms();
        let cies = unwind_info::TABLE
            + unwind_info::ENTRY * self.parts.len() as u64
            + self.slot.map_or(0, |_| 12);
        let fdes = cies + CIE * forms.len() as u64;
        let mut descriptions = Vec::new();
        let mut table = Vec::new();
        for part in &self.parts {
            let (start, fde) = (code + part.start as u64, fdes + descriptions.len() as u64);
            table.extend(distance(start, at));
            table.extend(distance(at + fde, at));
            let form = forms.iter().position(|form| *form == part.form);
            let cie = cies + CIE * form.unwrap_or(0) as u64;
            descriptions.extend(part.fde(at + fde, at + cie, start, callers));
        }
        let mut bytes = Vec::new();
        // Version, encodings (pcrel, udata4, datarel), .eh_frame, the table.
        bytes.extend([1, RELATIVE, 0x03, 0x3b]);
        bytes.extend(distance(at + cies, at + 4));
        bytes.extend((self.parts.len() as u32).to_le_bytes());
        bytes.extend(table);
        if let Some(slot) = self.slot {
            bytes.extend(slot.to_le_bytes());
            bytes.extend(callers.to_le_bytes());
        }
        bytes.extend(forms.iter().flat_map(|form| form.cie()));
        bytes.extend(descriptions);
        bytes.extend([NOTHING; 4]);
        bytes.resize(bytes.len().next_multiple_of(UNIT as usize), NOTHING);
        bytes
    }

    fn forms(&self) -> Vec<&'static Form> {
        let mut forms: Vec<&Form> = Vec::new();
        for part in &self.parts {
            if !forms.contains(&part.form) {
                forms.push(part.form);
            }
        }
        forms
    }
}

impl Form {
    fn cie(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend((CIE as u32 - 4).to_le_bytes());
        bytes.extend(0u32.to_le_bytes());
        bytes.push(1);
        bytes.extend(self.augmentation);
        bytes.extend([1, self.data_factor, RETURN_ADDRESS, 1, RELATIVE]);
        bytes.extend(self.program);
        bytes.resize(CIE as usize, NOTHING);
        bytes
    }
}

impl UnwindPart {
    fn fde(&self, at: u64, cie: u64, start: u64, callers: u64) -> Vec<u8> {
        let mut program = self.program.clone();
        if let Some(way) = self.way {
            // expression: const8u, the word's address
            program.extend([0x10, RETURN_ADDRESS, 9, 0x0e]);
            program.extend((callers + 8 * way as u64).to_le_bytes());
        }
        let padded = (program.len() + 1).next_multiple_of(4);
        let mut bytes = Vec::new();
        bytes.extend((padded as u32 + 12).to_le_bytes());
        bytes.extend(distance(at + 4, cie));
        bytes.extend(distance(start, at + 8));
        bytes.extend((self.count as u32).to_le_bytes());
        bytes.push(0);
        bytes.extend(program);
        bytes.resize(16 + padded, NOTHING);
        bytes
    }
}

fn program(rows: &[(usize, UnwindState)], range: Range<usize>, site: u64) -> Vec<u8> {
    let mut program = Vec::new();
    let (mut last, mut emitted) = (range.start, None::<UnwindState>);
    let before = rows.partition_point(|(at, _)| *at <= range.start);
    let first = before.saturating_sub(1);
    for &(at, stand) in rows[first..].iter().take_while(|(at, _)| *at < range.end) {
        let at = at.max(range.start);
        advance(&mut program, at - last);
        if emitted.is_none_or(|emitted| emitted.offset != stand.offset) {
            goes_on_at(&mut program, site + stand.offset as u64);
        }
        if emitted.map_or(0, |emitted| emitted.depth) != stand.depth {
            has_pushed(&mut program, stand.depth);
        }
        (last, emitted) = (at, Some(stand));
    }
    program
}

/// DW_CFA_nop; also the bytes of the terminator.
const NOTHING: u8 = 0;

fn distance(to: u64, from: u64) -> [u8; 4] {
    (to.wrapping_sub(from) as u32).to_le_bytes()
}

fn advance(program: &mut Vec<u8>, by: usize) {
    match by {
        0 => {}
        1..64 => program.push(0x40 | by as u8),
        64..256 => program.extend([0x02, by as u8]),
        _ => {
            program.push(0x03);
            program.extend((by as u16).to_le_bytes());
        }
    }
}

/// Appends val_expression: the return address is `address` (const8u).
fn goes_on_at(program: &mut Vec<u8>, address: u64) {
    program.extend([0x16, RETURN_ADDRESS, 9, 0x0e]);
    program.extend(address.to_le_bytes());
}

/// Appends def_cfa_offset_sf: `depth` - 4 in units of -4, as a signed LEB128 of two bytes.
fn has_pushed(program: &mut Vec<u8>, depth: i64) {
    let units = 1 - depth / 4;
    program.extend([0x13, units as u8 | 0x80, (units >> 7) as u8 & 0x7f]);
}

#[cfg(test)]
mod tests;
