//! Finds what can be patched at a *site* (a place in the code).
//!
//! A site's *window* is the run of whole instructions that a patch displaces (overwrites, and runs as a copy). A
//! strategy is refused if nothing guards the site against other tools' breakpoints (`guard`). It is also refused if a
//! branch or a displaced call's return leads to an inner *head* (an instruction's first byte) and would trap.

use iced_x86::Instruction;

use crate::Refusal;
use crate::code::Code;
use crate::decode::{FunctionCode, direct_target, falls_through};
use crate::displacement::{ByteSet, Displacement, SECOND, needs_second};
use crate::guard::Guard;
use crate::relocate::relocate;
use crate::strategy::{CALL, JUMP, Strategy};
use crate::survey::Survey;

#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) offset: usize,
    pub(crate) copy: Code,
    pub(crate) falls_through: bool,
    pub(crate) target: Option<u64>,
    len: usize,
    is_call: bool,
}

impl Step {
    fn new(instruction: &Instruction, offset: usize, copy: Code) -> Step {
        let is_call = instruction.is_call_near() || instruction.is_call_near_indirect();
        // A copied call returns to the original code.
        let falls_through = falls_through(instruction) && !is_call;
        Step {
            offset,
            copy,
            falls_through,
            target: direct_target(instruction),
            len: instruction.len(),
            is_call,
        }
    }

    pub(crate) fn end(&self) -> usize {
        self.offset + self.len
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Window {
    pub(crate) strategy: Strategy,
    pub(crate) steps: usize,
    pub(crate) displaced: usize,
    /// Offsets of the inner heads.
    pub(crate) heads: Vec<u8>,
    pub(crate) guard: Guard,
}

impl Window {
    pub(crate) fn opcode(&self) -> u8 {
        match self.guard {
            Guard::Call { .. } => CALL,
            _ => JUMP,
        }
    }

    pub(crate) fn allowed(&self, traps: ByteSet) -> Displacement {
        let single = traps.and(ByteSet::TRAPS);
        let mut allowed = Displacement::over(&self.heads, single);
        if self.heads.contains(&4) && self.displaced > 5 {
            allowed.0[3] = traps;
        }
        self.guard.narrow(&mut allowed, single);
        allowed
    }

    pub(crate) fn completed(&self, bytes: [u8; 5]) -> Vec<u8> {
        let more = self.heads.contains(&4) && needs_second(bytes[4]);
        [&bytes[..], &[SECOND][..usize::from(more)]].concat()
    }
}

/// What can be patched at a site.
#[derive(Clone, Debug)]
pub struct Shape {
    pub(crate) site: u64,
    pub(crate) entry: bool,
    pub(crate) original: [u8; 8],
    pub(crate) run: Vec<Step>,
    pub(crate) windows: Vec<Window>,
    /// Copies of compares before the site, whose flags the displaced instructions may read.
    pub(crate) repeats: Code,
    pub(crate) after_syscall: Option<u64>,
    /// Arguments overwritten between entry and site, a bit each.
    pub(crate) overwritten: u8,
    /// The entry's own shape, if the site is later.
    pub(crate) unmoved: Option<Box<Shape>>,
}

impl Shape {
    /// Returns the first patched address, unless a filter needs the entry ([`crate::Patch::site`]).
    pub fn site(&self) -> u64 {
        self.site
    }

    /// Returns the bytes at the site.
    pub fn original(&self) -> [u8; 8] {
        self.original
    }

    /// Returns whether this is a function's entry, where flags and red zone are free.
    pub fn is_entry(&self) -> bool {
        self.entry
    }

    /// Returns the usable strategies, best first; never empty.
    pub fn strategies(&self) -> impl Iterator<Item = Strategy> + '_ {
        self.windows.iter().map(|w| w.strategy)
    }

    /// Makes hits preserve flags and red zone, for fragments into which other functions jump.
    pub fn preserving_everything(mut self) -> Shape {
        self.entry = false;
        self.unmoved = self
            .unmoved
            .map(|first| Box::new(first.preserving_everything()));
        self
    }

    pub(crate) fn displaced_end(&self, window: &Window) -> u64 {
        self.site + window.displaced as u64
    }

    pub(crate) fn unmoved_entry(&self) -> Result<&Shape, Refusal> {
        let first = self.unmoved.as_deref().filter(|first| first.entry);
        first.ok_or(Refusal::NotEntry)
    }

    fn window(&self, strategy: Strategy, context: &WindowContext) -> Option<Window> {
        let guard = match context.kind {
            Kind::SystemCall => Guard::Free,
            _ => Guard::of(&self.original, self.run[0].len, strategy)?,
        };
        let want = usize::from(strategy.patch_len());
        let enough = self.run.iter().position(|s| s.end() >= want);
        let steps = enough.map_or(self.run.len(), |last| last + 1);
        let displaced = self.run[steps - 1].end();
        let inner = |offset: &usize| (1..want).contains(offset);
        let heads = self.run[..steps].iter().map(|s| s.offset).filter(inner);
        let heads: Vec<u8> = heads.map(|offset| offset as u8).collect();
        let hot = |head: &u8| {
            let returns = |s: &Step| s.is_call && s.end() == usize::from(*head);
            context.survey.is_target(self.site + u64::from(*head)) || self.run.iter().any(returns)
        };
        let fine = displaced + context.room >= want && !heads.iter().any(hot);
        fine.then_some(Window {
            strategy,
            steps,
            displaced,
            heads,
            guard,
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Flags and red zone are free.
    Entry,
    Inside,
    /// The `mov` before a system call.
    SystemCall,
}

struct WindowContext<'a> {
    survey: &'a Survey,
    kind: Kind,
    /// How many bytes of padding after the run a patch may overwrite.
    room: usize,
}

pub(crate) fn shape_in(
    function: &FunctionCode,
    survey: &Survey,
    offset: usize,
    kind: Kind,
) -> Result<Shape, Refusal> {
    let want = usize::from(Strategy::Jump.patch_len());
    let run = run(function, survey, offset, want)?;
    let end = offset + run.last().map_or(0, Step::end);
    let context = WindowContext {
        survey,
        kind,
        room: match end == function.body().len() {
            true => survey.unreached_padding(function),
            false => 0,
        },
    };
    let mut original = [0; 8];
    let held = function.bytes.len().min(offset + 8) - offset;
    original[..held].copy_from_slice(&function.bytes[offset..offset + held]);
    let site = function.address + offset as u64;
    let mut shape = Shape {
        site,
        entry: kind == Kind::Entry,
        original,
        run,
        windows: Vec::new(),
        repeats: Code::default(),
        after_syscall: None,
        overwritten: 0,
        unmoved: None,
    };
    let all = [Strategy::Jump, Strategy::Short, Strategy::Trap];
    shape.windows = all
        .iter()
        .filter_map(|&s| shape.window(s, &context))
        .collect();
    Ok(shape)
}

/// Returns the instructions from `offset` on, up to `want` bytes, the function's end, or an instruction that cannot be
/// copied. Fails if that is the first.
pub(crate) fn run(
    function: &FunctionCode,
    survey: &Survey,
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
        } else if survey.is_movable(instruction.ip()) {
            let mut same = Code::default();
            same.put(bytes);
            Ok(same)
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

/// Returns the address of a function's `mov $15,%eax; syscall` (rt_sigreturn). The function may begin with padding.
pub fn signal_return(function: &FunctionCode) -> Option<u64> {
    const LONG: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];
    const SHORT: [u8; 7] = [0xb8, 0x0f, 0, 0, 0, 0x0f, 0x05];
    let body = function.body();
    let starts = |&from: &usize| {
        let rest = body.get(from..).unwrap_or_default();
        rest.starts_with(&LONG) || rest.starts_with(&SHORT)
    };
    let found = (0..8).find(starts)?;
    Some(function.address + found as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{self, shape};

    fn look(bytes: &[u8], offset: usize) -> Result<Shape, Refusal> {
        shape(
            &FunctionCode {
                address: 0x1000,
                bytes,
                size: bytes.len(),
            },
            offset,
        )
    }

    fn check(bytes: &[u8], offset: usize, site: u64, want: &[(Strategy, usize, &[u8])]) {
        let shape = look(bytes, offset).expect("a shape");
        assert_eq!(shape.site, 0x1000 + site, "{bytes:x?}");
        let found: Vec<(Strategy, usize, &[u8])> = shape
            .windows
            .iter()
            .map(|w| (w.strategy, w.displaced, &w.heads[..]))
            .collect();
        assert_eq!(found, want, "{bytes:x?}");
    }

    #[test]
    fn windows_follow_from_the_instructions() {
        use Strategy::{Jump, Short, Trap};
        // push %rbp; mov %rsp,%rbp; sub $16,%rsp
        let frame = [0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x10, 0xc3];
        check(
            &frame,
            0,
            0,
            &[(Jump, 8, &[1, 4]), (Short, 4, &[1]), (Trap, 1, &[])],
        );
        check(
            &frame,
            1,
            1,
            &[(Jump, 7, &[3]), (Short, 3, &[]), (Trap, 3, &[])],
        );
        let marked = [&entry::ENDBR64[..], &frame].concat();
        check(
            &marked,
            0,
            4,
            &[(Jump, 8, &[1, 4]), (Short, 4, &[1]), (Trap, 1, &[])],
        );
        // A jump to the end of `endbr64` is a loop, not a call.
        let looped = [&entry::ENDBR64[..], &[0xff, 0xcf, 0x75, 0xfc, 0xc3]].concat();
        check(&looped, 0, 0, &[(Short, 4, &[]), (Trap, 4, &[])]);
        check(&[0x90, 0xc3], 0, 0, &[(Short, 2, &[1]), (Trap, 1, &[])]);
        // A call that would return to a head: call *%rdi; xor %eax,%eax; pop %rdx; ret
        check(
            &[0xff, 0xd7, 0x31, 0xc0, 0x5a, 0xc3],
            0,
            0,
            &[(Short, 2, &[]), (Trap, 2, &[])],
        );
    }

    #[test]
    fn a_patch_may_extend_into_the_padding() {
        let bytes = [0xc3, 0xcc, 0xcc, 0xcc, 0xcc];
        let shape = shape(
            &FunctionCode {
                address: 0x1000,
                bytes: &bytes,
                size: 1,
            },
            0,
        );
        let strategies: Vec<_> = shape.expect("a shape").strategies().collect();
        assert_eq!(strategies[0], Strategy::Jump);
    }

    #[test]
    fn the_signal_return_is_refused() {
        let code = [0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];
        assert_eq!(look(&code, 0).err(), Some(Refusal::SignalReturn));
        // glibc's unwind information begins a byte early.
        assert_eq!(
            look(&[&[0][..], &code].concat(), 0).err(),
            Some(Refusal::SignalReturn)
        );
    }
}
