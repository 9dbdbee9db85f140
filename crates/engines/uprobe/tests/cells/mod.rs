//! A slow model of an address space: file and offset at each address. Shared with the fuzz target.

use std::ops::Range;

#[derive(Clone, Debug)]
pub enum Change {
    /// A range, a file, the first offset.
    Map(Range<u64>, u64, u64),
    Unmap(Range<u64>),
    Move(Range<u64>, Range<u64>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cells(pub Vec<Option<(u64, u64)>>);

impl Cells {
    pub fn new(addresses: u64) -> Cells {
        Cells(vec![None; addresses as usize])
    }

    pub fn get(&self, address: u64) -> Option<(u64, u64)> {
        *self.0.get(address as usize)?
    }

    pub fn apply(&mut self, change: &Change) {
        match change {
            Change::Map(range, file, offset) => {
                for (step, address) in range.clone().enumerate() {
                    self.set(address, Some((*file, offset + step as u64)));
                }
            }
            Change::Unmap(range) => range.clone().for_each(|address| self.set(address, None)),
            Change::Move(from, to) => self.relocate(from, to),
        }
    }

    fn relocate(&mut self, from: &Range<u64>, to: &Range<u64>) {
        let len = (from.end - from.start).min(to.end - to.start);
        let mut moved: Vec<_> = (from.start..from.start + len)
            .map(|at| self.get(at))
            .collect();
        // A longer new range grows the last mapping. An empty old range copies the mapping at its start.
        let source = self.get(from.start);
        while (moved.len() as u64) < to.end - to.start {
            let next = match moved.last() {
                Some(last) => last.map(|(file, offset)| (file, offset + 1)),
                None => source,
            };
            moved.push(next);
        }
        from.clone().for_each(|address| self.set(address, None));
        to.clone()
            .zip(moved)
            .for_each(|(address, cell)| self.set(address, cell));
    }

    fn set(&mut self, address: u64, cell: Option<(u64, u64)>) {
        self.0[address as usize] = cell;
    }

    /// Returns the longest runs `(start, end, file, offset)`.
    pub fn runs(&self) -> Vec<(u64, u64, u64, u64)> {
        let mut runs: Vec<(u64, u64, u64, u64)> = Vec::new();
        for (address, cell) in self.0.iter().enumerate() {
            let Some((file, offset)) = *cell else {
                continue;
            };
            let address = address as u64;
            match runs.last_mut() {
                Some((start, end, of, from))
                    if *end == address && *of == file && *from + (address - *start) == offset =>
                {
                    *end += 1;
                }
                _ => runs.push((address, address + 1, file, offset)),
            }
        }
        runs
    }
}
