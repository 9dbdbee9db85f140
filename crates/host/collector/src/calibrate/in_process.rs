//! The generated program's versions, run and timed in turns.

use std::arch::asm;
use std::cell::Cell;
use std::io;
use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::AtomicU64;

use super::child::now_ns;
use super::functions::{FUNCTIONS, MEMORY_WORDS, SURROUNDINGS, Surrounding};
use super::median;
use super::program::{Program, VERSIONS, Version};

/// How often each version is timed in each layout of each surrounding.
const REPEATS: usize = 3;
/// How many layouts there are: between two, costs differed by a tenth.
const LAYOUTS: u8 = 5;
/// How long one timing takes, in nanoseconds.
const BLOCK_NS: f64 = 300_000.0;
/// Laps after a change of version that are not timed.
const WARM_UP: u64 = 8;

/// Nanoseconds for each hit, by surrounding.
#[derive(Debug, Default)]
pub(super) struct InProcess {
    pub(super) count: [f64; SURROUNDINGS.len()],
    pub(super) filtered: [f64; SURROUNDINGS.len()],
}

/// Measures trampolines that count, and that reject, in all surroundings.
pub(super) fn measure() -> io::Result<InProcess> {
    let mut all = InProcess::default();
    for surrounding in SURROUNDINGS {
        let mut added = [Vec::new(), Vec::new()];
        for layout in 0..LAYOUTS {
            let [count, filtered] = Bench::new(surrounding, layout)?.compare()?;
            added[0].push(count);
            added[1].push(filtered);
        }
        [
            all.count[surrounding as usize],
            all.filtered[surrounding as usize],
        ] = added.map(median);
    }
    Ok(all)
}

thread_local! {
    /// The word of this thread that trampolines look at: it points to a descriptor,
    /// whose first word points to the counters.
    static DESCRIPTOR: Cell<*const *const AtomicU64> = const { Cell::new(ptr::null()) };
}

/// The program and all that it touches; belongs to the thread that made it.
struct Bench {
    program: Program,
    counters: Box<[AtomicU64]>,
    memory: Box<[AtomicU64]>,
    _this_thread: PhantomData<*const ()>,
}

impl Bench {
    fn new(surrounding: Surrounding, layout: u8) -> io::Result<Bench> {
        Ok(Bench {
            program: Program::new(surrounding, layout, tls_offset()?)?,
            counters: words(FUNCTIONS),
            memory: words(MEMORY_WORDS),
            _this_thread: PhantomData,
        })
    }

    fn run(&self, laps: u64) {
        let descriptor = self.counters.as_ptr();
        DESCRIPTOR.set(&raw const descriptor);
        // SAFETY: `memory` is as long as asked; the word, which this thread made its
        // program for, points to `descriptor` until the call is over.
        unsafe { self.program.run(laps, self.memory.as_ptr()) };
        DESCRIPTOR.set(ptr::null());
    }

    /// Nanoseconds that a version takes for each call.
    fn time(&mut self, version: Version, laps: u64) -> io::Result<f64> {
        self.program.become_version(version)?;
        self.run(WARM_UP);
        let start = now_ns();
        self.run(laps);
        Ok((now_ns() - start) / (laps * FUNCTIONS as u64) as f64)
    }

    /// What counting and rejecting add to each call: medians of differences to the
    /// plain version, timed in turns whose order rotates.
    fn compare(&mut self) -> io::Result<[f64; 2]> {
        let per_call = self.time(Version::Plain, 64)?.max(0.1);
        let laps = (BLOCK_NS / per_call / FUNCTIONS as f64).max(1.0) as u64;
        let mut added = [Vec::new(), Vec::new()];
        for repeat in 0..REPEATS {
            let mut taken = [0.0; VERSIONS.len()];
            for turn in 0..VERSIONS.len() {
                let version = (repeat + turn) % VERSIONS.len();
                taken[version] = self.time(VERSIONS[version], laps)?;
            }
            added[0].push(taken[1] - taken[0]);
            added[1].push(taken[2] - taken[0]);
        }
        Ok(added.map(median))
    }
}

fn words(len: usize) -> Box<[AtomicU64]> {
    (0..len).map(|_| AtomicU64::new(0)).collect()
}

/// Where this thread's word is, from its thread pointer.
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
            let mut bench = Bench::new(surrounding, 0).expect("executable memory");
            let mut counts_after = |version| {
                bench.program.become_version(version).expect("memory");
                bench.run(100);
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
            let mut bench = Bench::new(Surrounding::Memory, 0).expect("executable memory");
            bench.program.become_version(version).expect("memory");
            bench.run(50);
            loaded(&bench.memory)
        };
        let plain = memory_after(Version::Plain);
        assert_eq!(plain.iter().sum::<u64>(), 50 * FUNCTIONS as u64);
        assert!(plain == memory_after(Version::Count));
        assert!(plain == memory_after(Version::Filtered));
    }

    #[test]
    fn what_is_added_is_finite() {
        for surrounding in SURROUNDINGS {
            let mut bench = Bench::new(surrounding, 1).expect("executable memory");
            let plain = bench.time(Version::Plain, 500).expect("memory");
            let added = bench.compare().expect("memory");
            println!("{surrounding:?}: {plain:.2} ns a call; count, filtered add {added:.3?}");
            assert!(added.iter().all(|ns| ns.is_finite()));
        }
    }
}
