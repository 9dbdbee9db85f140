//! Memory for trampolines (generated code that counts), after the plan in the plan's segment. tiptoe writes this
//! memory, and the agent (tiptoe's library) maps it.
//!
//! The program cannot write this memory. Forked children share it, so otherwise a child with fewer rights could
//! change what its parent executes. No byte is written twice, because children still run the code that their parent
//! had at the fork.

use std::ops::Range;
use std::sync::{MutexGuard, PoisonError};

use tiptoe_wire::calls::{MAX_THUNKS, THUNK, THUNK_BYTES, THUNK_CODE};
use tiptoe_wire::{Map, MapContent, Plan, Request, arena};

use super::Link;
use crate::error::AttachError;

/// The fewest thunks (stubs through which traced calls return) that [`Link::make_thunks`] makes at once.
const THUNKS: usize = 8192;

pub(super) struct CodeUse {
    /// Mapped address ranges of the target, each with its offset in the code.
    mapped: Vec<(Range<u64>, u64)>,
    next: u64,
    thunks: usize,
}

impl CodeUse {
    pub(super) fn new() -> CodeUse {
        CodeUse {
            mapped: Vec::new(),
            next: Plan::THUNKS + (THUNK_CODE as u64).next_multiple_of(arena::LEN),
            thunks: 0,
        }
    }
}

impl Link {
    fn code(&self) -> MutexGuard<'_, CodeUse> {
        self.code.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Maps code at these ranges, which must be whole arenas ([`arena`]: blocks of fixed size). Returns for each
    /// range whether it was mapped; `false` if the segment is full or the address is in use.
    pub fn map_code(&self, ranges: &[Range<u64>]) -> Result<Vec<bool>, AttachError> {
        let mut next = self.code().next;
        let mut planned = Vec::new();
        for range in ranges {
            let len = range.end - range.start;
            let fits = len <= Plan::CODE_BYTES.saturating_sub(next);
            planned.push(fits.then_some((range, next)));
            next += if fits { len } else { 0 };
        }
        let maps = planned.iter().flatten().map(|(range, offset)| Map {
            base: range.start,
            len: range.end - range.start,
            content: MapContent::Code { offset: *offset },
        });
        let mut results = self.map(&maps.collect::<Vec<_>>())?.into_iter();
        let mut map = |planned: Option<(&Range<u64>, u64)>| {
            let mapped = planned.filter(|_| results.next() == Some(0));
            if let Some((range, offset)) = mapped {
                let mut code = self.code();
                code.mapped.push((range.clone(), offset));
                code.next = offset + (range.end - range.start);
            }
            mapped.is_some()
        };
        Ok(planned.into_iter().map(&mut map).collect())
    }

    /// Maps arenas in which trampolines record return addresses ([`MapContent::Words`]). Returns for each arena
    /// whether it was mapped.
    pub fn map_callers(&self, bases: &[u64]) -> Result<Vec<bool>, AttachError> {
        let maps = bases.iter().map(|base| Map {
            base: *base,
            len: arena::LEN,
            content: MapContent::Words,
        });
        let results = self.map(&maps.collect::<Vec<_>>())?;
        Ok(results.into_iter().map(|result| result == 0).collect())
    }

    fn map(&self, maps: &[Map]) -> Result<Vec<u64>, AttachError> {
        self.ask_in_parts(Request::Map, maps, |index, map| {
            self.plan().put_map(index, *map)
        })
    }

    /// Returns where this session's code is mapped.
    pub fn code_ranges(&self) -> Vec<Range<u64>> {
        let code = self.code();
        code.mapped.iter().map(|(range, _)| range.clone()).collect()
    }

    /// Writes code inside [`Link::code_ranges`]. No thread may execute that code yet.
    pub fn write_code(&self, codes: &[(u64, &[u8])]) -> Result<(), AttachError> {
        let code = self.code();
        for (address, bytes) in codes {
            let mut mapped = code.mapped.iter();
            let (range, offset) = mapped
                .find(|(range, _)| range.contains(address))
                .filter(|(range, _)| bytes.len() as u64 <= range.end - address)
                .ok_or(AttachError::Unwritten)?;
            let at = Plan::BYTES + offset + (address - range.start);
            // SAFETY: no thread executes this code yet, and only this thread writes it.
            unsafe { self.plan.write(at as usize, bytes) };
        }
        Ok(())
    }

    /// Gives the agent at least `count` unused thunks, up to [`MAX_THUNKS`] in all.
    pub fn make_thunks(&self, count: usize) -> Result<(), AttachError> {
        if count == 0 {
            return Ok(());
        }
        self.ask(Request::Thunks, 0)?;
        let [used, made] = [0, 1].map(|index| self.data().result(index) as usize);
        let count = used.saturating_add(count.max(THUNKS));
        let count = count.next_multiple_of(THUNKS).min(MAX_THUNKS);
        if count <= made {
            return Ok(());
        }
        let written = std::mem::replace(&mut self.code().thunks, count);
        let thunks = THUNK.repeat(count - written.min(count));
        let at = Plan::BYTES + Plan::THUNKS + (written * THUNK_BYTES) as u64;
        // SAFETY: the agent uses these thunks only after the request below, and only this thread writes them.
        unsafe { self.plan.write(at as usize, &thunks) };
        self.ask(Request::Thunks, count)
    }
}
