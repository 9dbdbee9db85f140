//! Runs the patcher over every shape of window (the patched bytes). No thread may run a mix of old and new bytes, at
//! whatever head (instruction's first byte) it is and however stale its core's view is. Mutants leave out or swap a
//! step.
#![cfg(not(any(tiptoe_loom, miri)))]

mod simulator;

use std::cell::Cell;
use std::sync::atomic::AtomicU64;

use simulator::{Cores, Guard, INT3, Memory, Mix, Shape, Step};
use tiptoe_uprobe::patcher::{self, BATCH, OtherThreads, Outcome, Text, rearm};
use tiptoe_uprobe::table::Table;
use tiptoe_wire::{SLOT_WORDS, Site};

/// Five bytes here cross an aligned word, so patches of five bytes have phases.
const AT: u64 = 0x1004;

fn arm(memory: &Memory, sites: &[Site]) -> [Outcome; BATCH] {
    patcher::arm(memory, sites, OtherThreads::Running)
}

fn disarm(memory: &Memory, sites: &[Site]) -> [Outcome; BATCH] {
    patcher::disarm(memory, sites, OtherThreads::Running)
}

fn fresh(shapes: &[Shape]) -> (Memory, Cores) {
    let memory = Memory::of(shapes);
    let cores = Cores::of(&memory);
    (memory, cores)
}

fn armed(shape: Shape) -> (Memory, Cores) {
    let (memory, mut cores) = fresh(&[shape]);
    assert_eq!(arm(&memory, &[shape.site])[0], Outcome::Done);
    cores.run(&[shape], &memory.take_steps()).expect("armed");
    (memory, cores)
}

fn holds(memory: &Memory, site: &Site, bytes: &[u8; 8]) -> bool {
    memory.get(site.address, site.len) == bytes[..usize::from(site.len)]
}

#[test]
fn no_thread_ever_runs_a_mix() {
    for shape in (0..8).flat_map(|offset| Shape::all(0x1000 + offset)) {
        let (memory, mut cores) = fresh(&[shape]);
        for _ in 0..2 {
            assert_eq!(arm(&memory, &[shape.site])[0], Outcome::Done);
            assert!(holds(&memory, &shape.site, &shape.site.patched));
            cores.run(&[shape], &memory.take_steps()).expect("arming");
            assert!(shape.site.len == 1 || !cores.may_trap(&shape), "armed");
            assert_eq!(disarm(&memory, &[shape.site])[0], Outcome::Done);
            assert!(holds(&memory, &shape.site, &shape.site.original));
            cores
                .run(&[shape], &memory.take_steps())
                .expect("disarming");
        }
    }
}

#[test]
fn sites_of_one_batch_do_not_disturb_each_other() {
    let others = Shape::all(AT + 32);
    for (index, shape) in Shape::all(AT).into_iter().enumerate() {
        let pair = [shape, others[index * 7 % others.len()]];
        let sites = pair.map(|shape| shape.site);
        let (memory, mut cores) = fresh(&pair);
        assert_eq!(arm(&memory, &sites)[..2], [Outcome::Done; 2]);
        cores.run(&pair, &memory.take_steps()).expect("arming");
        assert_eq!(disarm(&memory, &sites)[..2], [Outcome::Done; 2]);
        cores.run(&pair, &memory.take_steps()).expect("disarming");
    }
}

#[test]
fn unreadable_memory_is_not_foreign() {
    for shape in Shape::all(AT) {
        for gone in [shape.site.address, shape.site.island.max(AT)] {
            let (mut memory, _) = fresh(&[shape]);
            memory.unmapped_from = gone;
            *memory.accesses_left.borrow_mut() = Some(0);
            assert_eq!(arm(&memory, &[shape.site])[0], Outcome::Unmapped);
        }
    }
}

#[test]
fn every_trap_has_a_resume_address() {
    for shape in Shape::all(AT) {
        let slots = [[const { AtomicU64::new(0) }; SLOT_WORDS]];
        let table = Table::new(&slots);
        table.insert(1, |_| Some(shape.site)).expect("room");
        for offset in 0..8 {
            let head = shape
                .site
                .heads()
                .iter()
                .find(|head| u64::from(head.offset) == offset);
            let found = table.find(AT + offset).map(|found| found.resume);
            assert_eq!(found, head.map(|head| 0x7000 + u64::from(head.resume)));
        }
    }
}

/// Returns the memory before the patcher ran, and the patcher's steps by phase. Each phase ends with a refetch.
fn phases(shape: Shape, disarms: bool) -> (Memory, Vec<Vec<Step>>) {
    let (memory, _) = match disarms {
        true => armed(shape),
        false => fresh(&[shape]),
    };
    let before = memory.clone();
    let act = if disarms { disarm } else { arm };
    act(&memory, &[shape.site]);
    let steps = memory.take_steps();
    let phases = steps
        .split_inclusive(|step| *step == Step::Sync)
        .map(<[Step]>::to_vec);
    (before, phases.collect())
}

/// Returns the jumps at which threads may run a mix if `change` is made to the phases.
fn mixes(len: u8, disarms: bool, change: impl Fn(&mut Vec<Vec<Step>>)) -> Vec<(Shape, Mix)> {
    let jumps = Shape::all(AT)
        .into_iter()
        .filter(|shape| shape.site.len == len);
    let mix = |shape| {
        let (memory, mut phases) = phases(shape, disarms);
        change(&mut phases);
        let ran = Cores::of(&memory).run(&[shape], &phases.concat());
        ran.err().map(|mix| (shape, mix))
    };
    jumps.filter_map(mix).collect()
}

#[test]
fn mutants_run_a_mix() {
    let unsynced = |phase: usize| move |phases: &mut Vec<Vec<Step>>| drop(phases[phase].pop());
    let swapped = |a: usize| move |phases: &mut Vec<Vec<Step>>| phases.swap(a, a + 1);
    let headless = |phases: &mut Vec<Vec<Step>>| {
        let heads = phases[0].len() - 2; // keeps the first byte's write and the refetch
        phases[0].drain(..heads);
    };
    assert!(mixes(5, false, |_| {}).is_empty() && mixes(5, true, |_| {}).is_empty());
    for (what, found) in [
        (
            "no refetch between heads and tail",
            mixes(5, false, unsynced(0)),
        ),
        (
            "no refetch between tail and first byte",
            mixes(5, false, unsynced(1)),
        ),
        ("tail before heads", mixes(5, false, swapped(0))),
        ("first byte before tail", mixes(5, false, swapped(1))),
        ("no traps on inner heads", mixes(5, false, headless)),
        (
            "no refetch between trap and tail",
            mixes(5, true, unsynced(0)),
        ),
        (
            "no refetch between tail and heads",
            mixes(5, true, unsynced(1)),
        ),
        ("tail restored before the trap", mixes(5, true, swapped(0))),
        ("heads restored before the tail", mixes(5, true, swapped(1))),
    ] {
        assert!(!found.is_empty(), "{what}: no mix was found");
    }
}

#[test]
fn mutants_of_pairs_run_a_mix() {
    for disarms in [false, true] {
        assert!(mixes(6, disarms, |_| {}).is_empty());
        for phase in 0..3 {
            let unsynced = |phases: &mut Vec<Vec<Step>>| drop(phases[phase].pop());
            let swapped = |phases: &mut Vec<Vec<Step>>| phases.swap(phase, phase + 1);
            let found = mixes(6, disarms, unsynced);
            assert!(!found.is_empty(), "no mix: no refetch, {phase}, {disarms}");
            let found = mixes(6, disarms, swapped);
            assert!(!found.is_empty(), "no mix: {phase} swapped, {disarms}");
        }
    }
}

#[test]
fn arming_an_armed_site_runs_no_mix() {
    for shape in jumps() {
        let (memory, mut cores) = armed(shape);
        assert_eq!(arm(&memory, &[shape.site])[0], Outcome::Done);
        cores
            .run(&[shape], &memory.take_steps())
            .expect("arming again");
        assert!(holds(&memory, &shape.site, &shape.site.patched));
    }
}

#[test]
fn bytes_that_are_not_the_files_are_left_alone() {
    for shape in Shape::all(AT) {
        for at in 0..u64::from(shape.site.len) {
            let (memory, _) = fresh(&[shape]);
            memory.put(AT + at, &[0xfe]);
            assert_eq!(arm(&memory, &[shape.site])[0], Outcome::Foreign);
            assert_eq!(disarm(&memory, &[shape.site])[0], Outcome::Foreign);
            let wrote = memory
                .take_steps()
                .into_iter()
                .any(|step| step != Step::Sync);
            assert!(!wrote, "{shape:?} at {at}");
        }
    }
    for shape in Shape::all(AT)
        .into_iter()
        .filter(|shape| shape.site.island != 0)
    {
        let (memory, _) = fresh(&[shape]);
        memory.put(shape.site.island, &[0xfe]);
        assert_eq!(arm(&memory, &[shape.site])[0], Outcome::Foreign);
    }
}

/// Arms a site, then puts the kernel's uprobe on it. The kernel runs the first instruction itself, so threads arrive at
/// the second head.
fn with_foreign_trap(shape: Shape) -> (Memory, Cores) {
    let (memory, mut cores) = armed(shape);
    let at = shape.site.address;
    let step = [Step::Write(at, vec![INT3]), Step::Sync];
    memory.put(at, &[INT3]);
    cores.run(&[shape], &step).expect("a foreign trap on top");
    (memory, cores)
}

fn jumps() -> impl Iterator<Item = Shape> {
    Shape::all(AT)
        .into_iter()
        .filter(|shape| shape.site.len > 1)
}

#[test]
fn a_foreign_trap_on_top_survives_disarming() {
    for shape in jumps() {
        let (memory, mut cores) = with_foreign_trap(shape);
        assert!(!rearm(&memory, &shape.site), "the foreign trap remains");
        assert_eq!(disarm(&memory, &[shape.site])[0], Outcome::ForeignOnTop);
        cores
            .run(&[shape], &memory.take_steps())
            .expect("disarming");
        assert_eq!(memory.get(AT, 1), [INT3]);
        memory.put(AT, &shape.site.original[..1]);
        let last = [Step::Write(AT, vec![shape.site.original[0]]), Step::Sync];
        cores
            .run(&[shape], &last)
            .expect("the foreign trap is removed");
        assert!(holds(&memory, &shape.site, &shape.site.original));
        assert_eq!(arm(&memory, &[shape.site])[0], Outcome::Done);
        cores
            .run(&[shape], &memory.take_steps())
            .expect("arming again");
    }
}

/// Returns the first mix that may run if the kernel removes its trap without a refetch while the first byte is a trap.
fn uncovered(shape: &Shape, before: &Cores, steps: &[Step], mut trapped: bool) -> Option<Mix> {
    let goes = [Step::Write(AT, vec![shape.site.original[0]])];
    for at in 0..=steps.len() {
        if let Some(Step::Write(AT, bytes)) = at.checked_sub(1).map(|last| &steps[last]) {
            trapped = bytes[0] == INT3;
        }
        let with = [&steps[..at], &goes, &steps[at..]].concat();
        let ran = before.clone().run(&[*shape], &with);
        if let (true, Err(mix)) = (trapped, ran) {
            return Some(mix);
        }
    }
    None
}

/// Windows that stay safe when a foreign trap is removed from the first byte.
fn guarded() -> impl Iterator<Item = Shape> {
    jumps().filter(|shape| shape.first_len() == 1 || shape.guard != Guard::None)
}

#[test]
fn a_foreign_trap_may_be_removed_at_any_moment() {
    for shape in guarded() {
        let (memory, cores) = with_foreign_trap(shape);
        disarm(&memory, &[shape.site]);
        let steps = memory.take_steps();
        assert_eq!(uncovered(&shape, &cores, &steps, true), None, "{shape:?}");
        for disarms in [false, true] {
            let (before, phases) = phases(shape, disarms);
            let mix = uncovered(&shape, &Cores::of(&before), &phases.concat(), false);
            assert_eq!(mix, None, "{shape:?} disarms: {disarms}");
        }
    }
}

/// A core may run the first instruction with the jump's displacement.
#[test]
fn mutant_guard_restored_early_runs_a_mix() {
    let early = |shape: Shape| {
        let (memory, cores) = with_foreign_trap(shape);
        disarm(&memory, &[shape.site]);
        let mut steps = memory.take_steps();
        let is_guard = |step: &Step| matches!(step, Step::Write(at, _) if *at == AT + 1);
        let guard = steps
            .iter()
            .position(is_guard)
            .expect("the guard is restored");
        let guard = steps.remove(guard);
        steps.insert(1, guard); // after the refetch of the first phase
        uncovered(&shape, &cores, &steps, true)
    };
    let mut those =
        guarded().filter(|shape| shape.guard == Guard::Invalid && shape.first_len() > 2);
    assert!(those.any(|shape| early(shape).is_some()));
}

#[test]
fn mutant_call_with_any_target_runs_a_mix() {
    for mut shape in guarded().filter(|shape| shape.guard == Guard::Call) {
        shape.site.patched[1] ^= 0xff;
        let (memory, cores) = with_foreign_trap(shape);
        disarm(&memory, &[shape.site]);
        let mix = uncovered(&shape, &cores, &memory.take_steps(), true);
        assert!(mix.is_some());
    }
}

#[test]
fn a_foreign_trap_inside_is_left_where_it_is() {
    for shape in jumps() {
        for head in shape.site.heads().iter().skip(1) {
            let at = usize::from(head.offset);
            for byte in [INT3, shape.site.original[at]] {
                if byte == shape.site.patched[at] {
                    continue;
                }
                let (memory, _) = armed(shape);
                memory.put(AT + at as u64, &[byte]);
                assert_eq!(disarm(&memory, &[shape.site])[0], Outcome::ForeignInside);
                let mut wanted = shape.site.original;
                wanted[at] = byte;
                assert!(holds(&memory, &shape.site, &wanted), "{shape:?}");
            }
        }
    }
}

/// The kernel restores the file's first byte; the rest of our jump stays. Before [`rearm`], no thread may run a mix in
/// a [`guarded`] window.
#[test]
fn a_removed_foreign_trap_is_followed_by_rearming() {
    let disarms = |memory: &Memory, site: &Site| disarm(memory, &[*site])[0] == Outcome::Done;
    for shape in jumps() {
        if shape.site.original[0] != shape.site.patched[0] {
            made_whole(&shape, rearm, &shape.site.patched);
        }
        made_whole(&shape, disarms, &shape.site.original);
    }
}

/// Rearming takes two writes. A foreign trap that is set between them would be lost.
#[test]
fn a_patch_with_the_files_first_byte_is_not_rearmed() {
    for mut shape in jumps() {
        shape.site.patched[0] = shape.site.original[0];
        let memory = Memory::of(&[shape]);
        memory.put(AT, &shape.site.patched[..shape.site.len as usize]);
        assert!(!rearm(&memory, &shape.site));
        assert_eq!(memory.take_steps(), []);
    }
}

fn made_whole(shape: &Shape, act: impl Fn(&Memory, &Site) -> bool, bytes: &[u8; 8]) {
    let (memory, _) = with_foreign_trap(*shape);
    memory.put(AT, &shape.site.original[..1]);
    let safe = shape.first_len() == 1 || shape.guard != Guard::None;
    assert_eq!(Cores::of(&memory).fetch(shape).is_ok(), safe, "{shape:?}");
    assert!(act(&memory, &shape.site));
    assert!(holds(&memory, &shape.site, bytes));
    let steps = memory.take_steps();
    if shape.site.fits_word() {
        return assert!(matches!(&steps[..], [Step::Write(..), Step::Sync]));
    }
    assert_eq!(steps[..2], [Step::Write(AT, vec![INT3]), Step::Sync]);
    let mut cores = Cores::of(&trapped(shape));
    cores.run(&[*shape], &steps[2..]).expect("whole again");
}

fn trapped(shape: &Shape) -> Memory {
    let memory = Memory::of(&[*shape]);
    arm(&memory, &[shape.site]);
    memory.put(AT, &[INT3]);
    memory
}

#[test]
fn unmapped_memory_fails_only_its_own_sites() {
    for last in Shape::all(AT + 256) {
        let first = Shape::all(AT)[last.site.head_count as usize];
        for accesses in 0..40 {
            let pair = [first, last];
            let sites = pair.map(|shape| shape.site);
            let (mut memory, mut cores) = fresh(&pair);
            memory.unmapped_from = last.site.address;
            *memory.accesses_left.borrow_mut() = Some(accesses);
            let outcomes = arm(&memory, &sites);
            cores.run(&pair, &memory.take_steps()).expect("arming");
            assert_eq!(outcomes[0], Outcome::Done);
            assert!(holds(&memory, &first.site, &first.site.patched));
            let whole = holds(&memory, &last.site, &last.site.patched);
            assert!(outcomes[1] != Outcome::Done || whole, "{last:?}");
            assert!(matches!(outcomes[1], Outcome::Done | Outcome::Unmapped));
            assert_eq!(disarm(&memory, &sites)[0], Outcome::Done);
            cores.run(&pair, &memory.take_steps()).expect("disarming");
        }
    }
}

struct MappedAnew<'a> {
    memory: &'a Memory,
    site: Site,
    syncs_left: Cell<u32>,
}

impl Text for MappedAnew<'_> {
    fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
        self.memory.read(address, bytes)
    }

    fn write(&self, address: u64, bytes: &[u8]) -> bool {
        self.memory.write(address, bytes)
    }

    fn sync(&self) {
        self.memory.sync();
        let left = self.syncs_left.get();
        self.syncs_left.set(left.wrapping_sub(1));
        if left == 1 {
            let len = usize::from(self.site.len);
            self.memory
                .write(self.site.address, &self.site.original[..len]);
        }
    }
}

/// Regression: a library mapped anew between two phases got only the jump's first byte.
#[test]
fn a_file_that_is_mapped_anew_between_phases_keeps_its_bytes() {
    for shape in Shape::all(AT) {
        let needs_phases = shape.site.len > 1 && !shape.site.fits_word();
        for syncs in (1..6).filter(|_| needs_phases) {
            let memory = fresh(&[shape]).0;
            let text = MappedAnew {
                memory: &memory,
                site: shape.site,
                syncs_left: Cell::new(syncs),
            };
            patcher::arm(&text, &[shape.site], OtherThreads::Running);
            let is_whole = |bytes| holds(&memory, &shape.site, bytes);
            assert!(
                is_whole(&shape.site.original) || is_whole(&shape.site.patched),
                "{syncs}: {shape:?}"
            );
        }
    }
}

#[test]
fn a_batch_has_at_most_its_length() {
    for (shape, syncs) in [(6, 4), (5, 3), (2, 1), (1, 1)].map(|(len, syncs)| {
        let mut all = Shape::all(AT).into_iter();
        (all.find(|shape| shape.site.len == len).expect("one"), syncs)
    }) {
        let shapes = Vec::from_iter((0..=BATCH as u64).map(|index| {
            let mut next = shape;
            next.site.address = AT + index * 8;
            next.site.island = 0;
            next
        }));
        let sites = Vec::from_iter(shapes.iter().map(|shape| shape.site));
        let memory = Memory::of(&shapes);
        assert_eq!(arm(&memory, &sites), [Outcome::Done; BATCH]);
        assert!(holds(&memory, &sites[BATCH - 1], &shape.site.patched));
        assert!(holds(&memory, &sites[BATCH], &shape.site.original));
        let steps = memory.take_steps();
        let done = steps.iter().filter(|step| **step == Step::Sync);
        assert_eq!(done.count(), syncs, "as many refetches for all of them");
    }
}
