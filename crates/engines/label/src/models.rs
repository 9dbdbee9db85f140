extern crate std;

use std::sync::Arc;
use std::vec::Vec;

use tiptoe_sync::mutant::{AtomicU64, Edge, Ordering, interrupt, lose, was_missed};
use tiptoe_wire::scopes::{OTHERS, RECORDS, STAMP, WIDTH, node, record, spent};
use tiptoe_wire::{Geometry, Words};

use crate::nodes::Nodes;
use crate::switch::Thread;

const LABELS: [u64; 2] = [0x1000, 0x2000];

#[derive(Clone)]
struct Slab(Arc<Vec<AtomicU64>>);

impl Slab {
    fn new(len: u32) -> Slab {
        Slab(Arc::new((0..len).map(|_| AtomicU64::new(0)).collect()))
    }

    fn words(&self) -> Words<'_> {
        Words::new(&self.0)
    }

    fn number(&self, label: u64) -> u32 {
        let name = label.to_le_bytes();
        Nodes::new(self.words()).number(label, 0, || &name[..2])
    }

    fn name(&self, number: u32) -> u64 {
        self.words()
            .load((RECORDS + number * record::WORDS + record::NAME) as usize)
    }

    fn plain(&self) -> Vec<u64> {
        (0..self.words().len())
            .map(|at| self.words().load(at))
            .collect()
    }
}

fn numbers_are_of_one_label([first, second]: [&'static [u64]; 2], lost: [Option<Edge>; 2]) {
    loom::model(move || {
        let slab = Slab::new(WIDTH);
        let meets = |slab: &Slab, labels: &[u64], lost| {
            lose(lost);
            let each = labels.iter().map(|label| {
                let number = slab.number(*label);
                assert!(
                    number == OTHERS || slab.name(number) == *label,
                    "a number has one label"
                );
                (*label, number)
            });
            each.collect::<Vec<_>>()
        };
        let (own, [mine, theirs]) = (slab.clone(), lost);
        let thread = loom::thread::spawn(move || meets(&own, second, theirs));
        let found = meets(&slab, first, mine);
        let other = thread.join().expect("it ends");
        lose(None);
        for (label, number) in found.into_iter().chain(other) {
            if number != OTHERS {
                assert_eq!(slab.number(label), number, "a label has one number");
                assert!(node(&slab.plain(), number).is_some(), "a whole record");
            }
        }
    });
}

const BOTH: [&[u64]; 2] = [&LABELS, &LABELS];

#[test]
fn model_two_threads_enter_one_new_scope() {
    numbers_are_of_one_label([&LABELS[..1], &LABELS[..1]], [None, None]);
}

#[test]
fn model_two_threads_enter_two_new_scopes() {
    numbers_are_of_one_label([&LABELS[..1], &LABELS[1..]], [None, None]);
}

#[test]
#[should_panic(expected = "a number has one label")]
fn mutant_number_without_release() {
    numbers_are_of_one_label(BOTH, [Some(Edge::Access(Ordering::AcqRel)), None]);
}

#[test]
#[should_panic(expected = "a number has one label")]
fn mutant_number_without_acquire() {
    numbers_are_of_one_label(BOTH, [Some(Edge::Access(Ordering::Acquire)), None]);
}

#[test]
#[should_panic]
fn mutant_torn_count_and_key() {
    numbers_are_of_one_label(BOTH, [Some(Edge::Exchange), Some(Edge::Exchange)]);
}

#[test]
fn model_a_handler_switches_in_between() {
    for nth in 0.. {
        let over = Arc::new(core::sync::atomic::AtomicBool::new(false));
        let is_over = over.clone();
        loom::model(move || {
            let (slab, own, shared) = (
                Slab::new(Geometry::FIRST_SLOT),
                Slab::new(WIDTH),
                Slab::new(WIDTH),
            );
            shared.words().store(STAMP as usize, 1);
            let clock = Slab::new(1);
            let parts = [slab, own, shared];
            let switch = |[slab, own, shared]: &[Slab; 3], clock: &Slab, label: u64| {
                let thread = Thread::new(slab.words(), own.words(), shared.words());
                let tick = |word: &AtomicU64| word.fetch_add(10, Ordering::Relaxed) + 10;
                let now = || clock.words().at(0).map_or(0, tick);
                let token = thread.enters(label, false, now(), || b"x");
                thread.leaves(token, now());
                thread.node()
            };
            assert_eq!(switch(&parts, &clock, LABELS[0]), 0);
            let began = clock.words().load(0);
            let (inner, time) = (parts.clone(), clock.clone());
            interrupt(nth, move || {
                switch(&inner, &time, LABELS[1]);
            });
            assert_eq!(switch(&parts, &clock, LABELS[0]), 0);
            if was_missed() {
                is_over.store(true, core::sync::atomic::Ordering::SeqCst);
            }
            let charged: u64 = spent(&parts[1].plain()).map(|(_, spent)| spent.ticks).sum();
            let passed = clock.words().load(0) - 10;
            assert!(charged <= passed, "{charged} of {passed}, since {began}");
        });
        if over.load(core::sync::atomic::Ordering::SeqCst) {
            return;
        }
    }
}
