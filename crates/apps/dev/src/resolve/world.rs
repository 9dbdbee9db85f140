//! A simulated address space, and threads that look up addresses there. Every address has a probe, and every result is
//! checked.

use std::sync::atomic::AtomicU64;
use std::thread::sleep;
use std::time::{Duration, Instant};

use tiptoe_uprobe::lookup::{FileOffset, Lookup, Mapping, Shape, Space, Writer};

use crate::error::Error;
use crate::together::together;

/// The first mapping's address, the distance between mappings, and their length. [`World::change`] maps in the gaps.
const BASE: u64 = 0x7f00_0000_0000;
const STRIDE: u64 = 0x10_000;
const LEN: u64 = 0x4000;
const FILES: u64 = 64;
pub(super) const PROBES: u64 = 16;
/// Each mapping's offset in its file, and the distance between probes.
const OFFSET: u64 = 0x1000;
const PROBE_DISTANCE: u64 = 0x3d0;

/// The lookups between two checks of the end flag.
const BATCH: u64 = 256;
/// The batches before the measurement, which fill the caches.
const WARM: u64 = 16;

/// Returns the size of the tree of mappings: a table for seven mappings (it has room for eight), and 64 for changes.
pub(super) fn shape(mappings: usize) -> Shape {
    Shape {
        tables: mappings / 7 + 64,
        probes: (FILES * PROBES) as usize,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum WorldCase {
    Speculative,
    Rwlock,
}

impl WorldCase {
    pub(super) const ALL: [WorldCase; 2] = [WorldCase::Speculative, WorldCase::Rwlock];

    pub(super) fn name(self) -> &'static str {
        match self {
            WorldCase::Speculative => "speculative",
            WorldCase::Rwlock => "rwlock",
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LookupCounts {
    pub per_s: f64,
    pub speculative: u64,
    pub locked: u64,
    pub unsure: u64,
    wrong: u64,
}

pub(super) struct World<'a> {
    space: Space<'a>,
    count: u64,
}

impl<'a> World<'a> {
    pub(super) fn new(words: &'a [AtomicU64], count: usize) -> Result<Self, Error> {
        let space = Space::new(words, shape(count));
        let world = World {
            space: space.ok_or_else(|| Error::Answer("too little storage".to_owned()))?,
            count: count as u64,
        };
        let writer = world.writer();
        let full = |error| Error::Answer(format!("{error:?}"));
        let all = (0..world.count).map(mapping);
        writer.replace(all).map_err(full)?;
        for (file, probe) in (0..FILES).flat_map(|file| (0..PROBES).map(move |probe| (file, probe)))
        {
            let file_offset = file_offset(file, OFFSET + probe * PROBE_DISTANCE);
            let id = (file * PROBES + probe) as u32;
            writer.add_probe(file_offset, id, |_| true).map_err(full)?;
        }
        drop(writer);
        Ok(world)
    }

    fn writer(&self) -> Writer<'_, 'a> {
        loop {
            match self.space.write(1_000) {
                Some(writer) => return writer,
                None => std::thread::yield_now(),
            }
        }
    }

    pub(super) fn measure(
        &self,
        case: WorldCase,
        threads: u32,
        changes_per_s: u32,
        ms: u32,
    ) -> Result<LookupCounts, Error> {
        let time = Duration::from_millis(ms.into());
        let (work, parts) = together(
            threads,
            || self.change(changes_per_s, Instant::now() + time),
            |thread, gate| {
                let mut state = u64::from(thread) + 1;
                let mut seen = LookupCounts::default();
                (0..WARM).for_each(|_| self.batch(case, &mut state, &mut LookupCounts::default()));
                let share = gate.repeat(|| {
                    let before = seen.answers();
                    self.batch(case, &mut state, &mut seen);
                    seen.answers() - before
                });
                (share, seen)
            },
        );
        let sum = parts
            .into_iter()
            .fold(LookupCounts::default(), LookupCounts::plus);
        if sum.wrong > 0 {
            return Err(Error::Answer(format!("{} wrong lookups", sum.wrong)));
        }
        Ok(LookupCounts {
            per_s: work.per_s(),
            ..sum
        })
    }

    #[inline(never)]
    fn batch(&self, case: WorldCase, state: &mut u64, seen: &mut LookupCounts) {
        let mut here = *state;
        for _ in 0..BATCH {
            let random = next(&mut here);
            let index = ((random >> 32) * self.count) >> 32;
            let probe = (random >> 28) % PROBES;
            let address = BASE + index * STRIDE + probe * PROBE_DISTANCE;
            let id = (index % FILES * PROBES + probe) as u32;
            match case {
                WorldCase::Speculative => seen.count(self.space.find(address, 1, |_| true), id),
                WorldCase::Rwlock => {
                    let mut answer = self.space.find_locked(address, 1, |_| true);
                    while answer == Lookup::Unsure {
                        seen.count(answer, id);
                        answer = self.space.find_locked(address, 1, |_| true);
                    }
                    seen.count(answer, id);
                }
            }
        }
        *state = here;
    }

    /// Repeats four changes: maps memory in a gap, unmaps this memory's middle, moves its first part, and unmaps the
    /// rest.
    fn change(&self, per_s: u32, end: Instant) {
        let start = Instant::now();
        let Some(pause) = Duration::from_secs(1).checked_div(per_s) else {
            return sleep(end - start);
        };
        let mut state = 1;
        let mut gap = 0;
        for turn in (0..).take_while(|turn| turn % 4 != 0 || Instant::now() < end) {
            sleep((pause * turn).saturating_sub(start.elapsed()));
            if turn % 4 == 0 {
                let index = ((next(&mut state) >> 32) * self.count) >> 32;
                gap = BASE + index * STRIDE + LEN + 0x1000;
            }
            let writer = self.writer();
            let done = match turn % 4 {
                0 => writer.insert(Mapping {
                    start: gap,
                    end: gap + 0x4000,
                    file_offset: file_offset(FILES, 0),
                }),
                1 => writer.remove(gap + 0x1000..gap + 0x2000),
                2 => writer.remap(gap..gap + 0x1000, gap + 0x5000..gap + 0x6000),
                _ => writer.remove(gap..gap + 0x6000),
            };
            debug_assert_eq!(done, Ok(()));
        }
    }
}

impl LookupCounts {
    #[inline]
    fn count(&mut self, answer: Lookup<u32>, id: u32) {
        match answer {
            Lookup::Speculative(found) if found == id => self.speculative += 1,
            Lookup::Locked(Some(found)) if found == id => self.locked += 1,
            Lookup::Unsure => self.unsure += 1,
            _ => self.wrong += 1,
        }
    }

    fn answers(&self) -> u64 {
        self.speculative + self.locked + self.wrong
    }

    pub(super) fn plus(self, other: LookupCounts) -> LookupCounts {
        LookupCounts {
            per_s: 0.0,
            speculative: self.speculative + other.speculative,
            locked: self.locked + other.locked,
            unsure: self.unsure + other.unsure,
            wrong: self.wrong + other.wrong,
        }
    }
}

fn mapping(index: u64) -> Mapping {
    let start = BASE + index * STRIDE;
    Mapping {
        start,
        end: start + LEN,
        file_offset: file_offset(index % FILES, OFFSET),
    }
}

fn file_offset(file: u64, offset: u64) -> FileOffset {
    FileOffset::new(file as u32, offset).expect("both are small")
}

/// Returns a random number, by Knuth's MMIX generator. Only the number's upper half is random enough.
#[inline]
fn next(state: &mut u64) -> u64 {
    let step = state.wrapping_mul(6_364_136_223_846_793_005);
    *state = step.wrapping_add(1_442_695_040_888_963_407);
    *state
}
