//! An unmapped file must never be found, whether the thread that unmaps it or a reader of the kernel's mappings has the
//! lock.

use loom::sync::atomic::AtomicU64 as KernelWord;
use loom::thread::spawn;
use tiptoe_sync::mutant::{Edge, lose};

use super::{leak, leak_many};
use crate::feed::call::Call;
use crate::feed::{Answer, Feed};
use crate::lookup::Shape;
use crate::primitive::{AtomicU64, Ordering::*};

const SHAPE: Shape = Shape {
    tables: 7,
    probes: 1,
};
const FILES: usize = 2;
const START: u64 = 0x1000;
const LINE: &[u8] = b"1000-2000 r-xp 0 1:1 7\n";

/// Returns a space with one mapping, and a word that is 1 while the kernel has it.
fn world() -> (&'static Feed<'static>, &'static KernelWord) {
    let words = leak_many(Feed::words(SHAPE, FILES), || AtomicU64::new(0));
    let feed = leak(Feed::new(words, SHAPE, FILES).expect("long enough"));
    let kernel = leak(KernelWord::new(1));
    read(feed, kernel);
    assert!(feed.add_probes(1, [(START, 0)].into_iter(), |_, _| true));
    (feed, kernel)
}

fn read(feed: &Feed, kernel: &KernelWord) {
    let mut left = None;
    feed.read_again(1, |buffer| {
        let left = left.get_or_insert_with(|| match kernel.load(Relaxed) {
            0 => 0,
            _ => LINE.len(),
        });
        buffer[..*left].copy_from_slice(&LINE[..*left]);
        Some(core::mem::take(left))
    });
}

fn unmap(feed: &Feed, kernel: &KernelWord) {
    let call = Call::Unmap(START..2 * START);
    let make = || {
        kernel.store(0, Relaxed); // Relaxed: the code under test must order it
        0
    };
    feed.perform(&call, || None, make);
}

fn is_found(feed: &Feed) -> bool {
    let answer = feed.find(START, 1, |_| true);
    matches!(answer, Answer::Speculative(_) | Answer::Locked(_))
}

fn unmapped_beside_a_reading([mapper, agent]: [Option<Edge>; 2]) {
    loom::model(move || {
        let (feed, kernel) = world();
        let thread = spawn(move || {
            lose(mapper);
            unmap(feed, kernel);
            assert!(!is_found(feed), "an unmapped file is not found");
        });
        lose(agent);
        read(feed, kernel);
        thread.join().expect("a call");
        assert!(!is_found(feed), "an unmapped file is not found");
    });
}

/// No hook sees the unmapping, so the space may hold a removed mapping.
fn lookup_beside_a_reading([asker, agent]: [Option<Edge>; 2]) {
    loom::model(move || {
        let (feed, kernel) = world();
        feed.begin_unseen();
        kernel.store(0, Relaxed);
        feed.end_unseen();
        let thread = spawn(move || {
            lose(asker);
            assert!(!is_found(feed), "an unmapped file is not found");
        });
        lose(agent);
        read(feed, kernel);
        thread.join().expect("an answer");
    });
}

#[test]
fn a_mapping_removed_during_a_reading_is_not_found() {
    unmapped_beside_a_reading([None, None]);
}

#[test]
fn a_mapping_in_doubt_is_not_found_before_the_reading() {
    lookup_beside_a_reading([None, None]);
}

#[test]
#[should_panic(expected = "an unmapped file is not found")]
fn mutant_end_without_release() {
    unmapped_beside_a_reading([Some(Edge::Access(Release)), None]);
}

#[test]
#[should_panic(expected = "an unmapped file is not found")]
fn mutant_reading_without_acquire() {
    unmapped_beside_a_reading([None, Some(Edge::Access(Acquire))]);
}

#[test]
#[should_panic(expected = "an unmapped file is not found")]
fn mutant_settle_without_release() {
    lookup_beside_a_reading([None, Some(Edge::Access(Release))]);
}

#[test]
#[should_panic(expected = "an unmapped file is not found")]
fn mutant_question_without_acquire() {
    lookup_beside_a_reading([Some(Edge::Access(Acquire)), None]);
}
