//! Patches without trap bytes: in one aligned word, or while all threads are stopped.
#![cfg(not(any(tiptoe_loom, miri)))]

mod simulator;

use simulator::{Cores, Guard, INT3, Memory, Shape, Step};
use tiptoe_uprobe::patcher::{self, BATCH, OtherThreads, Outcome};
use tiptoe_wire::Site;

fn arm(memory: &Memory, sites: &[Site]) -> [Outcome; BATCH] {
    patcher::arm(memory, sites, OtherThreads::Running)
}

fn disarm(memory: &Memory, sites: &[Site]) -> [Outcome; BATCH] {
    patcher::disarm(memory, sites, OtherThreads::Running)
}

fn holds(memory: &Memory, site: &Site, bytes: &[u8; 8]) -> bool {
    memory.get(site.address, site.len) == bytes[..usize::from(site.len)]
}

fn in_a_word() -> impl Iterator<Item = Shape> {
    let all = (0..8).flat_map(|offset| Shape::all(0x1000 + offset));
    all.filter(|shape| shape.site.fits_word())
}

#[test]
fn a_patch_within_a_word_needs_no_trap_byte() {
    assert_eq!(
        in_a_word().filter(|shape| shape.site.len == 5).count() % 4,
        0
    );
    for shape in in_a_word() {
        let memory = Memory::of(&[shape]);
        let mut cores = Cores::of(&memory);
        for act in [arm, disarm, arm] {
            assert_eq!(act(&memory, &[shape.site])[0], Outcome::Done);
            let steps = memory.take_steps();
            for end in 1..=steps.len() {
                let mut cores = cores.clone();
                cores.run(&[shape], &steps[..end]).expect("no mix");
                assert!(!cores.may_trap(&shape), "{shape:?}");
            }
            cores.run(&[shape], &steps).expect("no mix");
        }
    }
}

#[test]
fn mutants_of_words_run_a_mix() {
    // Bytes of the window after its last instruction do not matter.
    let whole = |shape: &Shape| shape.end >= 5 && shape.guard == Guard::None;
    let five = in_a_word().filter(|shape| shape.site.len == 5 && whole(shape));
    for shape in five {
        let (at, patch) = (shape.site.address, shape.site.patched[..5].to_vec());
        let part = |range: std::ops::Range<usize>| {
            Step::Write(at + range.start as u64, patch[range].to_vec())
        };
        let (first, tail) = (part(0..1), part(1..5));
        let mutants = [
            vec![first.clone(), tail.clone()],
            vec![tail.clone(), first.clone()],
            vec![tail, Step::Sync, first],
            vec![part(0..5)],
        ];
        for steps in mutants {
            let cores = Cores::of(&Memory::of(&[shape]));
            assert!(cores.clone().run(&[shape], &steps).is_err(), "{steps:?}");
        }
    }
}

#[test]
fn bytes_beside_a_patch_stay() {
    for shape in in_a_word().filter(|shape| shape.site.len == 2) {
        let memory = Memory::of(&[shape]);
        let word = shape.site.address & !7;
        let beside: Vec<u64> = (word..word + 8)
            .filter(|at| !(shape.site.address..shape.site.address + 2).contains(at))
            .collect();
        let look = || Vec::from_iter(beside.iter().map(|at| memory.get(*at, 1)));
        let before = look();
        arm(&memory, &[shape.site]);
        assert_eq!(look(), before);
        disarm(&memory, &[shape.site]);
        assert_eq!(look(), before);
    }
}

#[test]
fn sites_of_stopped_threads_have_no_phases() {
    for shape in (0..8).flat_map(|offset| Shape::all(0x1000 + offset)) {
        let site = [shape.site];
        let memory = Memory::of(&[shape]);
        for (act, bytes) in [
            (
                patcher::arm as fn(&Memory, &[Site], OtherThreads) -> _,
                &shape.site.patched,
            ),
            (patcher::disarm, &shape.site.original),
        ] {
            assert_eq!(act(&memory, &site, OtherThreads::Stopped)[0], Outcome::Done);
            assert!(holds(&memory, &shape.site, bytes), "{shape:?}");
            let at = |step: &&Step| matches!(step, Step::Write(at, _) if *at == shape.site.address);
            assert_eq!(memory.take_steps().iter().filter(at).count(), 1);
        }
        if shape.site.len > 1 {
            arm(&memory, &site);
            memory.put(shape.site.address, &[INT3]);
            let outcome = patcher::disarm(&memory, &site, OtherThreads::Stopped)[0];
            assert_eq!(outcome, Outcome::ForeignOnTop);
            assert_eq!(memory.get(shape.site.address, 1), [INT3]);
        }
    }
}
