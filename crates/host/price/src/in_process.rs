//! Times the versions of a generated program (plain, counting, filtering) in turns.

use std::arch::asm;
use std::cell::Cell;
use std::io;
use std::marker::PhantomData;
use std::ops::RangeInclusive;
use std::ptr;
use std::sync::atomic::AtomicU64;

use super::child::now_ns;
use super::curve;
use super::functions::{FUNCTIONS, LOOPS, MEMORY_WORDS, SURROUNDINGS, Surrounding};
use super::median;
use super::price::Price;
use super::program::{Program, VERSIONS, Version};

const REPEATS: usize = 3;
/// The number of layouts of the functions. Costs differed by a tenth between two layouts.
const LAYOUTS: u8 = 3;
const BLOCK_NS: f64 = 80_000.0;
const WARM_UP: u64 = 3 * FUNCTIONS as u64;

/// The index of the yardstick's loop, which has 64 functions.
const YARDSTICK: usize = 2;
const YARDSTICK_REPEATS: usize = 9;

/// The possible ns of an unpatched call.
const PLAIN: RangeInclusive<f64> = 0.01..=1e5;
/// What a patch may add; negative if other programs disturbed the measurements.
const ADDED: RangeInclusive<f64> = -1e3..=1e5;

/// Times in one loop, in ns: that of an unpatched call, then what each patched version adds to it.
pub(super) type LoopTimes = [f64; VERSIONS.len()];

pub(super) type InProcess = [[LoopTimes; SURROUNDINGS.len()]; LOOPS.len()];

pub(super) fn measure() -> io::Result<InProcess> {
    let mut all = InProcess::default();
    for surrounding in SURROUNDINGS {
        let mut layouts = Vec::new();
        for layout in 0..LAYOUTS {
            layouts.push(Bench::new(surrounding, layout, FUNCTIONS)?.compare()?);
        }
        for (index, of_loop) in all.iter_mut().enumerate() {
            let middle = |version: Version| {
                let times = layouts.iter().map(|layout| layout[index][version as usize]);
                median(times.collect())
            };
            of_loop[surrounding as usize] = VERSIONS.map(middle);
        }
    }
    Ok(all)
}

/// Returns the time of a counted call in one loop, to check prices of earlier runs. Takes 1 ms.
pub(super) fn yardstick() -> io::Result<f64> {
    let mut bench = Bench::new(Surrounding::Compute, 0, LOOPS[YARDSTICK])?;
    bench.program.become_version(Version::Count)?;
    let calls = bench.calls(YARDSTICK);
    let times = (0..YARDSTICK_REPEATS).map(|_| bench.time(YARDSTICK, calls));
    Ok(median(times.collect()))
}

impl Price for InProcess {
    const KIND: &'static str = "counts";

    fn numbers(&self) -> Vec<f64> {
        self.as_flattened().as_flattened().to_vec()
    }

    fn of_numbers(numbers: &[f64]) -> Option<InProcess> {
        let mut all = InProcess::default();
        let (times, []) = numbers.as_chunks() else {
            return None;
        };
        if all.as_flattened().len() != times.len() {
            return None;
        }
        all.as_flattened_mut().copy_from_slice(times);
        let is_sane = |[plain, added @ ..]: &LoopTimes| {
            PLAIN.contains(plain) && added.iter().all(|ns| ADDED.contains(ns))
        };
        let is_ordered = |version| curve(&all, version).is_ordered();
        let mut patched = [Version::Count, Version::Filtered].into_iter();
        let is_possible = times.iter().all(is_sane) && patched.all(is_ordered);
        is_possible.then_some(all)
    }
}

thread_local! {
    /// The word that trampolines (code that counts) read: it points to a descriptor, whose first word points to the
    /// counters.
    static DESCRIPTOR: Cell<*const *const AtomicU64> = const { Cell::new(ptr::null()) };
}

/// A program with its counters and memory. Must stay on one thread, because trampolines read that thread's
/// [`DESCRIPTOR`].
struct Bench {
    program: Program,
    counters: Box<[AtomicU64]>,
    memory: Box<[AtomicU64]>,
    _this_thread: PhantomData<*const ()>,
}

impl Bench {
    fn new(surrounding: Surrounding, layout: u8, count: usize) -> io::Result<Bench> {
        Ok(Bench {
            program: Program::new(surrounding, layout, count, tls_offset()?)?,
            counters: words(count),
            memory: words(MEMORY_WORDS),
            _this_thread: PhantomData,
        })
    }

    /// Makes at least `calls` calls, in whole laps. Returns their number.
    fn run(&self, index: usize, calls: u64) -> u64 {
        let laps = calls.div_ceil(LOOPS[index] as u64);
        let descriptor = self.counters.as_ptr();
        DESCRIPTOR.set(&raw const descriptor);
        // SAFETY: `memory` has the required length. The program reads this thread's word, which points to `descriptor`
        // until the call returns.
        unsafe { self.program.run(index, laps, self.memory.as_ptr()) };
        DESCRIPTOR.set(ptr::null());
        laps * LOOPS[index] as u64
    }

    fn time(&self, index: usize, calls: u64) -> f64 {
        self.run(index, WARM_UP);
        let start = now_ns();
        let calls = self.run(index, calls);
        (now_ns() - start) / calls as f64
    }

    fn calls(&self, index: usize) -> u64 {
        (BLOCK_NS / self.time(index, WARM_UP).max(0.1)) as u64
    }

    /// The versions take turns, in rotated order.
    fn compare(&mut self) -> io::Result<[LoopTimes; LOOPS.len()]> {
        self.program.become_version(Version::Plain)?;
        let calls: [u64; LOOPS.len()] = std::array::from_fn(|index| self.calls(index));
        let mut taken: [[Vec<f64>; VERSIONS.len()]; LOOPS.len()] = Default::default();
        for repeat in 0..REPEATS {
            for turn in 0..VERSIONS.len() {
                let version = (repeat + turn) % VERSIONS.len();
                self.program.become_version(VERSIONS[version])?;
                for (index, taken) in taken.iter_mut().enumerate() {
                    taken[version].push(self.time(index, calls[index]));
                }
            }
        }
        Ok(taken.map(shown))
    }
}

fn shown([plain, count, filtered]: [Vec<f64>; VERSIONS.len()]) -> LoopTimes {
    let added = |version: &[f64]| {
        let pairs = version.iter().zip(&plain);
        median(pairs.map(|(with, without)| with - without).collect())
    };
    let [count, filtered] = [added(&count), added(&filtered)];
    [median(plain), count, filtered]
}

fn words(len: usize) -> Box<[AtomicU64]> {
    (0..len).map(|_| AtomicU64::new(0)).collect()
}

fn tls_offset() -> io::Result<i32> {
    let thread: u64;
    // SAFETY: the word at the thread pointer holds the thread pointer (x86-64 ABI).
    unsafe { asm!("mov {}, fs:0", out(reg) thread, options(nostack, readonly, preserves_flags)) };
    let word = DESCRIPTOR.with(|word| word.as_ptr() as u64);
    i32::try_from(word.wrapping_sub(thread) as i64).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    fn loaded(words: &[AtomicU64]) -> Vec<u64> {
        words
            .iter()
            .map(|word| word.load(Ordering::Relaxed))
            .collect()
    }

    #[test]
    fn trampolines_count_every_call_and_only_what_passes() {
        for surrounding in SURROUNDINGS {
            let mut bench = Bench::new(surrounding, 0, FUNCTIONS).expect("executable memory");
            let mut counts_after = |version| {
                bench.program.become_version(version).expect("memory");
                bench.run(LOOPS.len() - 1, 100 * FUNCTIONS as u64);
                loaded(&bench.counters)
            };
            assert_eq!(counts_after(Version::Plain), [0; FUNCTIONS]);
            assert_eq!(counts_after(Version::Filtered), [0; FUNCTIONS]);
            assert_eq!(counts_after(Version::Count), [100; FUNCTIONS]);
            assert_eq!(counts_after(Version::Plain), [100; FUNCTIONS]);
        }
    }

    #[test]
    fn all_versions_compute_the_same() {
        let memory_after = |version| {
            let mut bench =
                Bench::new(Surrounding::Memory, 0, FUNCTIONS).expect("executable memory");
            bench.program.become_version(version).expect("memory");
            bench.run(LOOPS.len() - 1, 50 * FUNCTIONS as u64);
            loaded(&bench.memory)
        };
        let plain = memory_after(Version::Plain);
        assert_eq!(plain.iter().sum::<u64>(), 50 * FUNCTIONS as u64);
        assert!(plain == memory_after(Version::Count));
        assert!(plain == memory_after(Version::Filtered));
    }

    #[test]
    fn the_yardstick_takes_some_time() {
        let ns = yardstick().expect("executable memory");
        println!("yardstick: {ns:.4} ns");
        assert!(PLAIN.contains(&ns));
    }

    #[test]
    fn what_is_added_is_finite() {
        for all in measure().expect("executable memory") {
            println!("{all:.2?}");
            assert!(all.as_flattened().iter().all(|ns| ns.is_finite()));
        }
    }
}
