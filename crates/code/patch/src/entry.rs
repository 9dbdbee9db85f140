//! Chooses the instruction at which a function's entry is patched: the first, or a later one.
//!
//! The site (where the patch begins) moves past an `endbr64` and a five-byte no-operation, which a uprobe may replace.
//! It also moves past instructions at which no jump can be guarded against other tools' breakpoints (`guard`). Each
//! call must execute the skipped instructions once; otherwise calls would be lost or counted twice. If a skipped
//! instruction overwrites an argument that a filter needs, the site is the entry itself.
//!
//! If a skipped instruction sets flags, stores through the stack pointer or copies it, the patch must preserve the
//! flags and the red zone. Compares directly before the site are an exception, because the patch repeats them
//! (`twice`).

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, Register,
    UsedMemory,
};

use crate::Refusal;
use crate::call_numbers::{sets, writes};
use crate::code::Code;
use crate::decode::{FunctionCode, check_boundary, falls_through};
use crate::flags;
use crate::relocate::relocate;
use crate::shape::{Kind, Shape, shape_in, signal_return};
use crate::strategy::Strategy;
use crate::survey::Survey;
use crate::twice;

pub(crate) const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
const PAD: usize = 5;
const MOST: usize = 4;
const ARGUMENTS: [Register; 6] = [
    Register::RDI,
    Register::RSI,
    Register::RDX,
    Register::RCX,
    Register::R8,
    Register::R9,
];

/// Returns what can be patched at an instruction. The site of an entry (`offset` 0) may be a later instruction.
pub fn shape(function: &FunctionCode, offset: usize) -> Result<Shape, Refusal> {
    check_boundary(function, offset, 64)?;
    if signal_return(function).is_some() {
        return Err(Refusal::SignalReturn);
    }
    let survey = Survey::new(function);
    match offset {
        0 => entry_shape(function, &survey),
        _ => shape_in(function, &survey, offset, Kind::Inside),
    }
}

fn entry_shape(function: &FunctionCode, survey: &Survey) -> Result<Shape, Refusal> {
    let start = after_mark(function, survey);
    let kind = if reads_flags(function, start) {
        Kind::Inside
    } else {
        Kind::Entry
    };
    let first = shape_in(function, survey, start, kind)?;
    if rank(&first) == 0 {
        return Ok(first);
    }
    let further = further(function, survey, start, kind);
    match further.into_iter().min_by_key(rank) {
        Some(mut moved) if rank(&moved) < rank(&first) => {
            moved.unmoved = Some(Box::new(first));
            Ok(moved)
        }
        _ => Ok(first),
    }
}

fn rank(shape: &Shape) -> u8 {
    let best = &shape.windows[0];
    match best.strategy {
        Strategy::Jump => u8::from(best.guard.is_tight()),
        Strategy::Short => 2,
        Strategy::Trap => 3,
    }
}

fn further(function: &FunctionCode, survey: &Survey, start: usize, kind: Kind) -> Vec<Shape> {
    let mut factory = InstructionInfoFactory::new();
    let mut decoder = function.decoder(start);
    let (mut kind, mut overwritten) = (kind, 0);
    let (mut shapes, mut repeats) = (Vec::new(), Code::default());
    for _ in 0..MOST {
        let instruction = decoder.decode();
        let next = start + decoder.position();
        let once = !survey.is_target(instruction.next_ip()) && next < function.body().len();
        if !once || !goes_on(&mut factory, &instruction) {
            break;
        }
        overwritten |= overwrites(&mut factory, &instruction);
        let bytes = &function.body()[next - instruction.len()..next];
        let constants = decoder.get_constant_offsets(&instruction);
        let compare = twice::may_be_repeated(&instruction)
            .then(|| relocate(&instruction, bytes, &constants).ok())
            .flatten();
        match compare {
            Some(copy) => {
                repeats.append(&copy);
            }
            // The instruction may change an earlier compare's operand.
            None if leaves_something(&mut factory, &instruction) || repeats.len() > 0 => {
                kind = Kind::Inside;
            }
            None => {}
        }
        let Ok(mut shape) = shape_in(function, survey, next, kind) else {
            break;
        };
        shape.overwritten = overwritten;
        if kind == Kind::Entry {
            shape.repeats.clone_from(&repeats);
        }
        shapes.push(shape);
    }
    shapes
}

fn goes_on(factory: &mut InstructionInfoFactory, instruction: &Instruction) -> bool {
    let straight = !instruction.is_invalid() && instruction.flow_control() == FlowControl::Next;
    straight && !sets(factory, instruction, &[Register::RSP])
}

fn overwrites(factory: &mut InstructionInfoFactory, instruction: &Instruction) -> u8 {
    let set = |at: &usize| sets(factory, instruction, &[ARGUMENTS[*at]]);
    (0..ARGUMENTS.len())
        .filter(set)
        .fold(0, |bits, at| bits | 1 << at)
}

/// Returns whether the instruction may write flags or the red zone, which a trampoline overwrites.
fn leaves_something(factory: &mut InstructionInfoFactory, instruction: &Instruction) -> bool {
    let on_stack = |used: &UsedMemory| {
        let registers = [used.base(), used.index()];
        writes(used.access()) && registers.iter().any(|r| r.full_register() == Register::RSP)
    };
    let sets_flags = flags::changed(instruction) != 0 || flags::sets_direction(instruction);
    let info = factory.info(instruction);
    sets_flags || copies_stack_pointer(instruction) || info.used_memory().iter().any(on_stack)
}

fn copies_stack_pointer(instruction: &Instruction) -> bool {
    let is_stack_pointer = |register: Register| register.full_register() == Register::RSP;
    let computes = instruction.mnemonic() == Mnemonic::Lea;
    let copied =
        (0..instruction.op_count()).any(|op| is_stack_pointer(instruction.op_register(op)));
    copied || computes && is_stack_pointer(instruction.memory_base())
}

/// Returns the offset after the marks (`endbr64`, five-byte no-operations) at the beginning. A mark is not skipped if a
/// loop jumps to its end; otherwise each iteration would count as a call.
fn after_mark(function: &FunctionCode, survey: &Survey) -> usize {
    let body = function.body();
    let mut start = 0;
    while let Some(len) = mark(body.get(start..).unwrap_or_default())
        && start + len < body.len()
        && !survey.is_target(function.address + (start + len) as u64)
    {
        start += len;
    }
    start
}

fn mark(code: &[u8]) -> Option<usize> {
    if code.starts_with(&ENDBR64) {
        return Some(ENDBR64.len());
    }
    let first = Decoder::new(64, code, DecoderOptions::NONE).decode();
    let pad = first.mnemonic() == Mnemonic::Nop && first.len() == PAD;
    pad.then_some(PAD)
}

/// Returns whether the code reads flags before it sets them. Such code is no function's entry, even with a symbol.
/// `syscall` does not count, because it only saves the flags.
fn reads_flags(function: &FunctionCode, offset: usize) -> bool {
    let mut unset = flags::STATUS;
    let mut decoder = function.decoder(offset);
    for _ in 0..8 {
        let instruction = decoder.decode();
        let hands_on = instruction.mnemonic() == Mnemonic::Syscall;
        if flags::read(&instruction) & unset != 0 && !hands_on {
            return true;
        }
        unset &= !flags::changed(&instruction);
        if instruction.is_invalid() || unset == 0 || !falls_through(&instruction) {
            break;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &[u8], site: u64, entry: bool, strategy: Strategy) {
        let function = FunctionCode {
            address: 0x1000,
            bytes,
            size: bytes.len(),
        };
        let shape = shape(&function, 0).expect("a shape");
        let found = (shape.site() - 0x1000, shape.is_entry());
        assert_eq!(found, (site, entry), "{bytes:x?}");
        assert_eq!(shape.strategies().next(), Some(strategy), "{bytes:x?}");
    }

    #[test]
    fn code_that_reads_flags_is_no_entry() {
        let sub = [0x48, 0x83, 0xec, 8];
        let entry = [&[0x31, 0xc0, 0x74, 0x10][..], &sub].concat();
        check(&entry, 0, true, Strategy::Jump);
        let inside = [&[0x74, 0x10, 0x31, 0xc0][..], &sub].concat();
        check(&inside, 0, false, Strategy::Jump);
        // mov $107,%eax; syscall; ret
        let call = [0xb8, 0x6b, 0, 0, 0, 0x0f, 0x05, 0xc3];
        check(&call, 5, true, Strategy::Short);
        // With a cmp $-4095,%rax after the call, a jump fits on the call itself.
        let compare = [0x48, 0x3d, 0x01, 0xf0, 0xff, 0xff, 0xc3];
        check(&[&call[..7], &compare].concat(), 5, true, Strategy::Jump);
        // clone must run at its own address.
        let stays = [0xb8, 0x38, 0, 0, 0, 0x0f, 0x05];
        check(&[&stays[..], &compare].concat(), 0, true, Strategy::Trap);
    }

    #[test]
    fn only_compares_of_what_a_hit_keeps_are_repeated() {
        let check = |first: &[u8], repeated: usize| {
            let bytes = [first, &[0x48, 0x83, 0xec, 8, 0xc3]].concat();
            let function = FunctionCode {
                address: 0x1000,
                bytes: &bytes,
                size: bytes.len(),
            };
            let shape = shape(&function, 0).expect("a shape");
            assert_eq!(shape.repeats.len(), repeated, "{first:x?}");
        };
        check(&[0x83, 0xff, 1], 3);
        check(&[0x83, 0x7c, 0x24, 8, 1], 5);
        check(&[0x83, 0x7c, 0x24, 0xf8, 1], 0);
        // cmpl $1,(%rsp) reads the return address, which trampolines may change.
        check(&[0x83, 0x3c, 0x24, 1], 0);
        check(&[0xdb, 0x6c, 0x24, 8], 0);
    }

    #[test]
    fn flags_and_stores_below_the_stack_pointer_are_found() {
        let check = |bytes: &[u8], left: bool| {
            let instruction = Decoder::new(64, bytes, DecoderOptions::NONE).decode();
            let mut factory = InstructionInfoFactory::new();
            let found = leaves_something(&mut factory, &instruction);
            assert_eq!(found, left, "{bytes:x?}");
        };
        // add; std; fcomi: flags that the agent does not preserve.
        check(&[0x05, 1, 0, 0, 0], true);
        check(&[0xfd], true);
        check(&[0xdb, 0xf1], true);
        // fld1; fcom; ldmxcsr (%rdi): state that the agent preserves.
        check(&[0xd9, 0xe8], false);
        check(&[0xd8, 0xd1], false);
        check(&[0x0f, 0xae, 0x17], false);
        // fstpt -24(%rsp); mov %rsp,%rax; lea -8(%rsp),%rax; mov 8(%rsp),%rax
        check(&[0xdb, 0x7c, 0x24, 0xe8], true);
        check(&[0x48, 0x89, 0xe0], true);
        check(&[0x48, 0x8d, 0x44, 0x24, 0xf8], true);
        check(&[0x48, 0x8b, 0x44, 0x24, 8], false);
    }

    #[test]
    fn the_site_moves_past_instructions_without_a_guard() {
        use Strategy::{Jump, Trap};
        let sub = [0x48, 0x83, 0xec, 8, 0xc3, 0xcc];
        let after_sub = |first: &[u8]| [first, &sub].concat();
        check(&after_sub(&[0xb8, 1, 0, 0, 0]), 5, true, Jump);
        check(&after_sub(&[0x8b, 0x47, 0x10]), 3, true, Jump);
        // A five-byte no-operation, alone and after a mark; five one-byte no-operations.
        let pad = [0x0f, 0x1f, 0x44, 0, 0];
        check(&after_sub(&pad), 5, true, Jump);
        check(&after_sub(&[&ENDBR64[..], &pad].concat()), 9, true, Jump);
        check(&after_sub(&[0x90; 5]), 0, true, Jump);
        // A compare is repeated if the site follows it directly; an add is not.
        check(&after_sub(&[0x83, 0xff, 1]), 3, true, Jump);
        check(&after_sub(&[0x83, 0xff, 1, 0x74, 0x10]), 3, true, Jump);
        // cmp $1,%edi; mov $1,%eax; mov $2,%edx
        let between = [0x83, 0xff, 1, 0xb8, 1, 0, 0, 0, 0xba, 2, 0, 0, 0];
        check(&after_sub(&between), 13, false, Jump);
        check(&after_sub(&[0x05, 1, 0, 0, 0]), 5, false, Jump);
        // mov %eax,-8(%rsp)
        check(&after_sub(&[0x89, 0x44, 0x24, 0xf8]), 4, false, Jump);
        // cmpl $1,8(%rsp), an argument; cmpl $1,-8(%rsp), which the hit overwrites.
        check(&after_sub(&[0x83, 0x7c, 0x24, 8, 1]), 5, true, Jump);
        check(&after_sub(&[0x83, 0x7c, 0x24, 0xf8, 1]), 5, false, Jump);
        // fldt 8(%rsp)
        check(&after_sub(&[0xdb, 0x6c, 0x24, 8]), 4, true, Jump);
        // A call at the entry is the site, and no site may follow `loop`.
        check(&after_sub(&[0xe8, 1, 0, 0, 0]), 0, true, Jump);
        check(&after_sub(&[0xe2, 0x10]), 0, true, Jump);
        // enter $8,$0 moves the stack pointer.
        check(&after_sub(&[0xc8, 8, 0, 0]), 0, true, Jump);
        // Two `mov`s, without and with a loop to the second.
        let two = [0xb8, 1, 0, 0, 0, 0xba, 2, 0, 0, 0];
        check(
            &after_sub(&[0xb8, 1, 0, 0, 0, 0xb8, 2, 0, 0, 0]),
            10,
            true,
            Jump,
        );
        check(&after_sub(&two), 10, true, Jump);
        let looped = [&two[..], &[0xff, 0xc8, 0x75, 0xf7], &sub].concat();
        check(&looped, 0, true, Trap);
    }
}
