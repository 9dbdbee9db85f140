//! The ring of hits (accesses to watched variables) must return written hits in order, and skip abandoned cells. A
//! full ring must refuse a cell. After the target has overwritten words, a reading must end, and return no more
//! hits than a ring holds. Each four bytes are a step: the action and its arguments.
#![no_main]

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use libfuzzer_sys::fuzz_target;
use tiptoe_wire::Words;
use tiptoe_wire::hits::{CELLS, Cell, Hit, HitReader, Hits, Meeting, STACK, WORDS};

const FRONT: usize = 16;
/// In words: the index of a cell's value, the index of its count of readable bytes, and a cell's length.
const VALUE: usize = 26;
const BYTES: usize = 25;
const CELL: usize = VALUE + 1 + STACK;

thread_local! {
    /// The shared memory is large, so each run clears only what it wrote.
    static SEGMENT: Vec<AtomicU64> = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
}

fuzz_target!(|input: &[u8]| SEGMENT.with(|segment| run(segment, input)));

fn run(segment: &[AtomicU64], input: &[u8]) {
    let hits = Hits::new(Words::new(segment)).expect("long enough");
    let mut ring = Ring {
        segment,
        hits,
        reader: HitReader::default(),
        cells: Vec::new(),
        open: VecDeque::new(),
        lied: None,
        number: 0,
    };
    for step in input.as_chunks().0 {
        ring.step(*step);
    }
    ring.read(true);
    ring.clean();
}

struct Ring<'a> {
    segment: &'a [AtomicU64],
    hits: Hits<'a>,
    reader: HitReader,
    cells: Vec<usize>,
    /// For each reserved, unread cell, its hit and count of readable bytes; `None` if the cell was abandoned.
    open: VecDeque<Option<(Hit, u64)>>,
    lied: Option<Vec<usize>>,
    number: u64,
}

impl Ring<'_> {
    fn step(&mut self, [what, first, second, third]: [u8; 4]) {
        let bytes = u64::from(second) << 8 | u64::from(third);
        match what % 8 {
            0 | 1 => self.write(Some(bytes)),
            2 => self.write(None),
            3 => self.read(false),
            4 if first == 7 => self.read(true),
            5 if first == 7 => (0..usize::from(second) * 64).for_each(|_| self.write(Some(8))),
            6 => self.lie(first, second, third),
            _ => self.others(first, third),
        }
    }

    fn write(&mut self, bytes: Option<u64>) {
        let Some(cell) = self.hits.reserve() else {
            assert!(
                self.lied.is_some() || self.open.len() == CELLS,
                "there is room"
            );
            return;
        };
        assert!(self.lied.is_some() || self.open.len() < CELLS);
        self.cells.push(self.at(&cell));
        self.number += 1;
        let hit = Hit {
            address: self.number,
            tid: self.number as u32,
            is_late: self.number.is_multiple_of(3),
            ip: !self.number,
            registers: [self.number; 16],
            epoch: self.hits.epoch(),
            ..Hit::default()
        };
        if let Some(bytes) = bytes {
            cell.write(&hit);
            cell.complete(bytes);
        }
        self.open.push_back(bytes.map(|bytes| (hit, bytes)));
    }

    fn at(&self, cell: &Cell<'_>) -> usize {
        let (value, room) = cell.room();
        assert_eq!(room, 8 * STACK);
        let at = (value - self.segment.as_ptr() as u64) as usize / 8 - VALUE;
        assert!(at >= FRONT && at + CELL <= self.segment.len());
        at
    }

    fn read(&mut self, is_end: bool) {
        let (open, has_lied) = (&mut self.open, self.lied.is_some());
        let (mut reported, mut stepped) = (0, 0);
        let left = self.reader.read(&self.hits, is_end, |read| {
            reported += 1;
            let (hit, stack) = (read.hit(), read.stack(8).count());
            assert!(stack <= STACK);
            if has_lied {
                return;
            }
            while let Some(None) = open.front() {
                open.pop_front();
                stepped += 1;
            }
            let (written, bytes) = open.pop_front().flatten().expect("it was written");
            assert_eq!(hit, written);
            assert_eq!(read.value(8).is_some(), bytes >= 8);
            assert_eq!(
                stack,
                (bytes.saturating_sub(8) / 8).min(STACK as u64) as usize
            );
        });
        assert!(reported + left <= CELLS as u64);
        if has_lied {
            return;
        }
        if is_end {
            stepped += open.drain(..).filter(Option::is_none).count() as u64;
        }
        assert_eq!(left, stepped, "abandoned cells are skipped only at the end");
        assert!(
            open.front().is_none_or(Option::is_none),
            "complete cells were read"
        );
    }

    fn lie(&mut self, first: u8, second: u8, third: u8) {
        let small = u64::from(third);
        let at = match (first & 0x80, self.cells.len()) {
            (0, _) | (_, 0) => usize::from(first) % FRONT,
            (_, cells) => {
                let cell = self.cells[usize::from(second) % cells];
                cell + if first & 1 == 0 { 0 } else { BYTES }
            }
        };
        let now = self.segment[at].load(Relaxed);
        let word = match first >> 4 & 7 {
            0 => small,
            1 => u64::MAX - small,
            2 => now.wrapping_add(small),
            3 => now.wrapping_sub(small),
            4 => small << 56,
            5 => CELLS as u64 + small,
            6 => small << 32,
            _ => now ^ small,
        };
        self.segment[at].store(word, Relaxed);
        self.lied.get_or_insert_default().push(at);
    }

    fn others(&mut self, first: u8, third: u8) {
        let hits = &self.hits;
        match first % 8 {
            0 => hits.allow(third.into()),
            1 => drop((hits.uses_up(), hits.in_window())),
            2 => hits.begin_window(),
            3 => {
                hits.set_waking(third & 2 == 2);
                let rest = third & 1 == 1;
                hits.set_resting(rest);
                assert!(!rest || hits.is_resting() && hits.epoch().is_gap);
            }
            4 => hits.lose(),
            5 => drop((hits.lost(), hits.gaps(), hits.execs())),
            6 => {
                let tid = u32::from(third);
                let is_new = || matches!(hits.meet(tid), Meeting::New(_));
                let (first, second) = (is_new(), is_new());
                assert!(tid == 0 || !second || first, "known after it was met");
                hits.part(0b1111, |other, _| other == tid);
            }
            _ => drop(hits.wait().zip(hits.waited_for())),
        }
    }

    fn clean(&self) {
        let lied = self.lied.iter().flatten().copied();
        let cells = self.cells.iter().flat_map(|cell| [*cell, cell + BYTES]);
        for at in (0..FRONT).chain(lied).chain(cells) {
            self.segment[at].store(0, Relaxed);
        }
    }
}
