//! What can stand at a site, wherever the trampoline will be.
//!
//! A site's *window* is the run of whole instructions that a patch displaces. In
//! the order in which they are tried:
//!
//! | strategy | patch | window | asks for |
//! | --- | --- | --- | --- |
//! | [`Strategy::Jump`] | `jmp rel32` | 5 bytes | trap bytes on the heads |
//! | [`Strategy::Short`] | `jmp rel8` to an island | 2 bytes | padding near by |
//! | [`Strategy::Trap`] | `int3` | 1 byte | nothing |
//!
//! A head inside a window traps each time it is reached. So a strategy is not
//! offered where the function's own branches, or the return of a displaced call,
//! go to such a head.

use iced_x86::{Instruction, Mnemonic, Register, RflagsBits};

use crate::Refusal;
use crate::code::Code;
use crate::decode::{FunctionCode, Survey, check_boundary, falls_through};
use crate::relocate::relocate;

/// How a site is patched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// A 5-byte jump to the trampoline.
    Jump,
    /// A 2-byte jump to an island in padding, which jumps to the trampoline.
    Short,
    /// A breakpoint; the handler goes to the trampoline.
    Trap,
}

impl Strategy {
    /// How many bytes are written at the site.
    pub const fn patch_len(self) -> u8 {
        match self {
            Strategy::Jump => 5,
            Strategy::Short => 2,
            Strategy::Trap => 1,
        }
    }
}

/// One displaced instruction.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    /// Where it begins in the window.
    pub(crate) offset: usize,
    /// Its copy.
    pub(crate) copy: Code,
    /// Whether control goes from the copy to what follows it.
    pub(crate) falls_through: bool,
    len: usize,
    is_call: bool,
}

impl Step {
    pub(crate) fn end(&self) -> usize {
        self.offset + self.len
    }
}

/// What one strategy does to the site.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    pub(crate) strategy: Strategy,
    /// How many instructions of the run are displaced.
    pub(crate) steps: usize,
    /// How many bytes they have.
    pub(crate) displaced: usize,
    /// Heads inside the patch, the first excepted.
    pub(crate) heads: Vec<u8>,
}

/// A site and everything about it that does not depend on where trampolines go.
#[derive(Clone, Debug)]
pub struct Shape {
    pub(crate) site: u64,
    pub(crate) entry: bool,
    pub(crate) original: [u8; 8],
    pub(crate) run: Vec<Step>,
    pub(crate) windows: Vec<Window>,
    /// The address behind the system call that the run leads to.
    pub(crate) behind_syscall: Option<u64>,
}

impl Shape {
    /// The address of the first patched byte.
    pub fn site(&self) -> u64 {
        self.site
    }

    /// Whether this is a function's entry, where the flags and the bytes below the
    /// stack pointer are nobody's.
    pub fn is_entry(&self) -> bool {
        self.entry
    }

    /// The strategies that could be used, best first; never empty.
    pub fn strategies(&self) -> impl Iterator<Item = Strategy> + '_ {
        self.windows.iter().map(|w| w.strategy)
    }

    /// How many bytes of instructions a strategy displaces.
    pub fn displaced_len(&self, strategy: Strategy) -> Option<usize> {
        self.windows
            .iter()
            .find(|w| w.strategy == strategy)
            .map(|w| w.displaced)
    }

    /// Treats the site as the middle of a function: flags and red zone are kept.
    /// For fragments that others jump into, such as gcc's `.cold` parts.
    pub fn preserving_everything(mut self) -> Shape {
        self.entry = false;
        self
    }

    fn window(&self, strategy: Strategy, scene: &Scene) -> Option<Window> {
        let want = usize::from(strategy.patch_len());
        let enough = self.run.iter().position(|s| s.end() >= want);
        let steps = enough.map_or(self.run.len(), |last| last + 1);
        let displaced = self.run[steps - 1].end();
        let room = if scene.run_ends_function {
            scene.padding
        } else {
            0
        };
        let inner = |offset: &usize| (1..want).contains(offset);
        let heads = self.run[..steps].iter().map(|s| s.offset).filter(inner);
        let heads: Vec<u8> = heads.map(|offset| offset as u8).collect();
        let hot = |head: &u8| {
            let returns = |s: &Step| s.is_call && s.end() == usize::from(*head);
            scene.survey.is_target(self.site + u64::from(*head)) || self.run.iter().any(returns)
        };
        let fine = displaced + room >= want && !heads.iter().any(hot);
        fine.then_some(Window {
            strategy,
            steps,
            displaced,
            heads,
        })
    }
}

/// What is around a site.
pub(crate) struct Scene<'a> {
    pub(crate) survey: &'a Survey,
    pub(crate) run_ends_function: bool,
    pub(crate) padding: usize,
}

const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];

/// Looks at the instruction at `offset` of a function: 0 for its entry, whose site
/// lies behind an `endbr64` where there is one.
pub fn shape(function: &FunctionCode, offset: usize) -> Result<Shape, Refusal> {
    check_boundary(function, offset)?;
    if returns_from_signal(function.body()) {
        return Err(Refusal::SignalReturn);
    }
    let survey = Survey::new(function);
    let entry = offset == 0;
    let offset = if entry {
        entry_offset(function, &survey)
    } else {
        offset
    };
    shape_in(function, &survey, offset, entry)
}

/// Behind `endbr64`, unless a loop goes back there, which is no call.
fn entry_offset(function: &FunctionCode, survey: &Survey) -> usize {
    let body = function.body();
    let marked = body.starts_with(&ENDBR64) && body.len() > ENDBR64.len();
    let looped = survey.is_target(function.address + ENDBR64.len() as u64);
    if marked && !looped { ENDBR64.len() } else { 0 }
}

/// The shape of a site on a known boundary of a surveyed function.
pub(crate) fn shape_in(
    function: &FunctionCode,
    survey: &Survey,
    offset: usize,
    entry: bool,
) -> Result<Shape, Refusal> {
    let want = usize::from(Strategy::Jump.patch_len());
    let run = run(function, offset, want)?;
    let end = offset + run.last().map_or(0, Step::end);
    let scene = Scene {
        survey,
        run_ends_function: end == function.body().len(),
        padding: survey.unreached_padding(function),
    };
    let mut original = [0; 8];
    let held = function.bytes.len().min(offset + 8) - offset;
    original[..held].copy_from_slice(&function.bytes[offset..offset + held]);
    let entry = entry && !reads_flags(function, offset);
    let site = function.address + offset as u64;
    let mut shape = Shape {
        site,
        entry,
        original,
        run,
        windows: Vec::new(),
        behind_syscall: None,
    };
    let all = [Strategy::Jump, Strategy::Short, Strategy::Trap];
    shape.windows = all
        .iter()
        .filter_map(|&s| shape.window(s, &scene))
        .collect();
    Ok(shape)
}

/// The instructions from `offset` on, until `want` bytes, the function's end, or
/// one that has to stay; the first may not be such a one.
pub(crate) fn run(
    function: &FunctionCode,
    offset: usize,
    want: usize,
) -> Result<Vec<Step>, Refusal> {
    let mut decoder = function.decoder(offset);
    let mut steps = Vec::new();
    while decoder.can_decode() && decoder.position() < want {
        let start = decoder.position();
        let instruction = decoder.decode();
        let constants = decoder.get_constant_offsets(&instruction);
        let bytes = &function.body()[offset + start..offset + decoder.position()];
        let copy = if instruction.is_invalid() {
            Err(Refusal::Undecodable {
                address: instruction.ip(),
            })
        } else {
            relocate(&instruction, bytes, &constants)
        };
        match copy {
            Ok(copy) => steps.push(Step::new(&instruction, start, copy)),
            Err(refusal) if steps.is_empty() => return Err(refusal),
            Err(_) => break,
        }
    }
    Ok(steps)
}

impl Step {
    fn new(instruction: &Instruction, offset: usize, copy: Code) -> Step {
        let is_call = instruction.is_call_near() || instruction.is_call_near_indirect();
        // A copied call returns to the original, not to what follows the copy.
        let falls_through = falls_through(instruction) && !is_call;
        Step {
            offset,
            copy,
            falls_through,
            len: instruction.len(),
            is_call,
        }
    }
}

/// Whether the code reads flags that it has not set: then it was jumped into, and
/// is no function's entry, whatever the symbol says.
fn reads_flags(function: &FunctionCode, offset: usize) -> bool {
    let status = RflagsBits::OF
        | RflagsBits::SF
        | RflagsBits::ZF
        | RflagsBits::AF
        | RflagsBits::CF
        | RflagsBits::PF;
    let mut unset = status;
    let mut decoder = function.decoder(offset);
    for _ in 0..8 {
        let instruction = decoder.decode();
        if instruction.rflags_read() & unset != 0 {
            return true;
        }
        unset &= !instruction.rflags_modified();
        if instruction.is_invalid() || unset == 0 || !falls_through(&instruction) {
            break;
        }
    }
    false
}

/// `mov $15,%eax; syscall`, perhaps behind a no-operation.
fn returns_from_signal(body: &[u8]) -> bool {
    const SIGRETURN: u64 = 15;
    let mut decoder = iced_x86::Decoder::new(64, body, iced_x86::DecoderOptions::NONE);
    let mut instruction = decoder.decode();
    while instruction.mnemonic() == Mnemonic::Nop {
        instruction = decoder.decode();
    }
    let number = instruction.mnemonic() == Mnemonic::Mov
        && instruction.op0_register().full_register() == Register::RAX
        && instruction.op_count() == 2
        && instruction.try_immediate(1).is_ok_and(|nr| nr == SIGRETURN);
    number && decoder.decode().mnemonic() == Mnemonic::Syscall
}
