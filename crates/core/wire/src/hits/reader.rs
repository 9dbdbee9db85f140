use super::{CELLS, Epoch, Hit, Hits, STACK, cell, head};
use crate::words::Words;

/// The position of the reader, which trusts only its own memory.
#[derive(Clone, Debug, Default)]
pub struct HitReader {
    tail: u64,
}

/// A hit in the ring: what the target wrote.
#[derive(Clone, Copy)]
pub struct RecordedHit<'a>(Words<'a>);

impl HitReader {
    /// Passes complete hits to `take` in order, and frees their cells. With `is_end`, when no thread writes any more,
    /// skips incomplete cells and returns their number.
    pub fn read(&mut self, hits: &Hits, is_end: bool, mut take: impl FnMut(RecordedHit)) -> u64 {
        let head = hits.0.load(head::HEAD);
        let ahead = head.wrapping_sub(self.tail).min(CELLS as u64);
        let mut left = 0;
        for _ in 0..ahead {
            match hits.at(self.tail) {
                Some(words) => take(RecordedHit::new(words)),
                None if is_end => left += 1,
                None => break,
            }
            self.tail = self.tail.wrapping_add(1);
            hits.set_tail(self.tail);
        }
        left
    }
}

impl<'a> RecordedHit<'a> {
    pub(super) fn new(words: Words<'a>) -> RecordedHit<'a> {
        RecordedHit(words)
    }

    /// Returns the thread's state.
    pub fn hit(&self) -> Hit {
        let word = |at| self.0.load(at);
        let mut registers = [0; 16];
        for (at, register) in registers.iter_mut().enumerate() {
            *register = word(cell::REGISTERS + at);
        }
        Hit {
            address: word(cell::ADDRESS),
            tid: word(cell::TID) as u32,
            is_late: word(cell::TID) >> 32 != 0,
            time_ns: word(cell::TIME),
            ip: word(cell::IP),
            flags: word(cell::FLAGS),
            name: [word(cell::NAME), word(cell::NAME + 1)],
            registers,
            epoch: Epoch::of(word(cell::EPOCH)),
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.0.load(cell::BYTES)
    }

    /// Returns the value of `len` bytes, if readable.
    pub fn value(&self, len: u8) -> Option<u64> {
        (self.bytes() >= len.into()).then(|| self.0.load(cell::VALUE))
    }

    /// Returns the readable words of the stack. The hit's count of readable bytes includes the value's `len`.
    pub fn stack(&self, len: u8) -> impl Iterator<Item = u64> {
        let bytes = self.bytes().saturating_sub(len.into());
        let words = usize::try_from(bytes / 8).map_or(0, |words| words.min(STACK));
        (0..words).map(|at| self.0.load(cell::STACK + at))
    }
}
