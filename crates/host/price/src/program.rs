//! The generated program and its patches. The program's versions take turns at the same addresses, because the same
//! code may be slower elsewhere. The program must not run while its version changes, so only the thread that changes
//! the version runs the program.

use std::io;
use std::ops::Range;
use std::sync::atomic::AtomicU64;

use tiptoe_event::{Comparison, Filter, Join, Operator, Width};
use tiptoe_patch::{
    ARENA_LEN, Abi, Body, FunctionCode, Hits, Planner, Space, Strategy, UsedArena, shape,
};

use tiptoe_wire::AgentAddresses;
use tiptoe_wire::arena::prologue;

use super::code::{Code, Draft};
use super::functions::{LOOPS, Surrounding, function, run};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    Plain,
    /// Function N counts its calls in counter N.
    Count,
    Filtered,
}

/// All versions; an index is the version's value.
pub(super) const VERSIONS: [Version; 3] = [Version::Plain, Version::Count, Version::Filtered];

const PAGE: u64 = 4096;
const ALIGN: usize = 16;
const FILLER: u8 = 0xcc;

pub(super) struct Program {
    code: Code,
    entries: [u64; LOOPS.len()],
    part: Range<u64>,
    edits: [Vec<Edit>; VERSIONS.len()],
}

struct Edit {
    at: u64,
    bytes: [u8; 5],
}

type FunctionBytes = (u64, Vec<u8>);

impl Program {
    /// Writes `count` functions and all trampolines (code that counts). The trampolines read the word at `tls` bytes
    /// from the thread pointer.
    pub(super) fn new(
        surrounding: Surrounding,
        layout: u8,
        count: usize,
        tls: i32,
    ) -> io::Result<Program> {
        let mut draft = Draft::reserve(layout)?;
        let part = draft.functions();
        draft.open(part.clone())?;
        // `ret $8` replaces entry points of tiptoe's agent, which trampolines call only for a thread without
        // counters, or at a system call.
        draft.write(part.start, &[0xc2, 8, 0]);
        let abi = Abi {
            tls,
            agent: AgentAddresses {
                cold_entry: part.start,
                hook_entry: part.start,
                ..AgentAddresses::default()
            },
            ..Abi::default()
        };
        let functions = write_functions(&mut draft, part.start + PAGE, surrounding, count);
        let entries = write_entries(&mut draft, &functions);
        let mut patcher = Patcher {
            draft,
            abi,
            taken: Vec::new(),
        };
        let count = patcher.patch_all(&functions, None)?;
        let filtered = patcher.patch_all(&functions, Some(reject_all()))?;
        let plain = count
            .iter()
            .zip(&functions)
            .map(|(edit, placed)| edit.undone(placed));
        let edits = [plain.collect(), count, filtered];
        Ok(Program {
            code: patcher.draft.into_executable()?,
            entries,
            part,
            edits,
        })
    }

    pub(super) fn become_version(&mut self, version: Version) -> io::Result<()> {
        let edits = &self.edits[version as usize];
        self.code.rewrite(&self.part, |draft| {
            edits
                .iter()
                .for_each(|edit| draft.write(edit.at, &edit.bytes));
        })
    }

    /// Calls each function of a loop `laps` times.
    ///
    /// # Safety
    /// `memory` must point to `MEMORY_WORDS` atomic words. This thread's word at `tls` must point to a descriptor whose
    /// first word points to a counter for each function.
    pub(super) unsafe fn run(&self, index: usize, laps: u64, memory: *const AtomicU64) {
        // SAFETY: `functions::run` made the entry, a C function of this type, which lives as long as this value. The
        // caller vouches for the memory.
        unsafe {
            let run: extern "C" fn(u64, *const AtomicU64) =
                std::mem::transmute(self.entries[index]);
            run(laps, memory);
        }
    }
}

impl Edit {
    fn undone(&self, (address, code): &FunctionBytes) -> Edit {
        let start = (self.at - address) as usize;
        let mut bytes = [0; 5];
        bytes.copy_from_slice(&code[start..start + 5]);
        Edit { at: self.at, bytes }
    }
}

/// Returns the filter `arg1 == 0`, which never passes, because `arg1` is the memory's address.
fn reject_all() -> Filter {
    let never = Comparison {
        arg: 1,
        width: Width::S64,
        operator: Operator::Eq,
        value: 0,
    };
    Filter::new(Join::All, &[never]).expect("one comparison")
}

fn write_functions(
    draft: &mut Draft,
    mut at: u64,
    surrounding: Surrounding,
    count: usize,
) -> Vec<FunctionBytes> {
    let place = |index| {
        let mut code = function(index, surrounding);
        code.resize(code.len().next_multiple_of(ALIGN), FILLER);
        draft.write(at, &code);
        let address = at;
        at += code.len() as u64;
        (address, code)
    };
    (0..count).map(place).collect()
}

fn write_entries(draft: &mut Draft, functions: &[FunctionBytes]) -> [u64; LOOPS.len()] {
    let addresses: Vec<u64> = functions.iter().map(|(address, _)| *address).collect();
    let mut end = functions
        .last()
        .map_or(0, |(address, code)| address + code.len() as u64);
    LOOPS.map(|some| {
        let at = end.next_multiple_of(ALIGN as u64);
        let code = run(at, &addresses[..some.min(addresses.len())]);
        draft.write(at, &code);
        end = at + code.len() as u64;
        at
    })
}

struct Patcher {
    draft: Draft,
    abi: Abi,
    taken: Vec<UsedArena>,
}

impl Patcher {
    /// Writes counting trampolines as in a target. Returns the jumps for the functions.
    fn patch_all(
        &mut self,
        functions: &[FunctionBytes],
        filter: Option<Filter>,
    ) -> io::Result<Vec<Edit>> {
        let space = Space {
            preferred: vec![self.draft.trampolines()],
            arenas: self.taken.clone(),
            ..Space::default()
        };
        let mut planner = Planner::new(self.abi, space);
        let sites = functions.iter().zip(0..);
        let body = |slot| Body::Count {
            slot,
            hits: Hits::filtered(filter),
        };
        sites
            .map(|(placed, slot)| self.patch(&mut planner, placed, &body(slot)))
            .collect()
    }

    fn patch(
        &mut self,
        planner: &mut Planner,
        (address, bytes): &FunctionBytes,
        body: &Body,
    ) -> io::Result<Edit> {
        let size = bytes
            .iter()
            .rposition(|&b| b != FILLER)
            .map_or(0, |last| last + 1);
        let function = FunctionCode {
            address: *address,
            bytes,
            size,
        };
        let shape = shape(&function, 0).map_err(io::Error::other)?;
        let patch = planner
            .plan(&shape, body, Vec::new)
            .map_err(io::Error::other)?;
        if patch.strategy != Strategy::Jump {
            return Err(io::Error::other("no room for a jump"));
        }
        for arena in planner.new_arenas() {
            self.draft.open(arena.base..arena.base + ARENA_LEN)?;
            self.draft.write(prologue(arena.base), &arena.prologue);
            self.taken.push(UsedArena {
                base: arena.base,
                used: std::iter::once(arena.base..arena.base + ARENA_LEN).collect(),
            });
        }
        self.draft.write(patch.trampoline, &patch.code);
        let [a, b, c, d, e, ..] = patch.patched;
        Ok(Edit {
            at: patch.site,
            bytes: [a, b, c, d, e],
        })
    }
}
