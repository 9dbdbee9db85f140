use loom::sync::Arc;
use loom::thread::spawn;

use crate::mutant::{AtomicU64, Edge, Ordering::*, lose};
use crate::{RwLock, SeqCount};

#[derive(Default)]
struct Pair {
    sequence: SeqCount,
    lock: RwLock,
    words: [AtomicU64; 2],
}

impl Pair {
    fn raise(&self) {
        for word in &self.words {
            word.store(word.load(Relaxed) + 1, Relaxed);
        }
    }

    fn read(&self) -> [u64; 2] {
        [self.words[0].load(Relaxed), self.words[1].load(Relaxed)]
    }
}

fn speculate(writer: Option<Edge>, reader: Option<Edge>) {
    loom::model(move || {
        let pair = Arc::new(Pair::default());
        let thread = spawn({
            let pair = Arc::clone(&pair);
            move || {
                lose(reader);
                let Some(begun) = pair.sequence.try_begin() else {
                    return;
                };
                let [one, two] = pair.read();
                if !pair.sequence.retry(begun) {
                    assert_eq!([one, two], [begun / 2; 2], "an accepted read is whole");
                }
            }
        });
        lose(writer);
        for _ in 0..2 {
            pair.sequence.write_begin();
            pair.raise();
            pair.sequence.write_end();
        }
        thread.join().expect("read or not");
    });
}

#[test]
fn an_accepted_read_is_whole() {
    speculate(None, None);
}

#[test]
#[should_panic(expected = "an accepted read is whole")]
fn mutant_begin_without_fence() {
    speculate(Some(Edge::Fence(Release)), None);
}

#[test]
#[should_panic(expected = "an accepted read is whole")]
fn mutant_end_without_release() {
    speculate(Some(Edge::Access(Release)), None);
}

#[test]
#[should_panic(expected = "an accepted read is whole")]
fn mutant_retry_without_fence() {
    speculate(None, Some(Edge::Fence(Acquire)));
}

#[test]
#[should_panic(expected = "an accepted read is whole")]
fn mutant_try_begin_without_acquire() {
    speculate(None, Some(Edge::Access(Acquire)));
}

fn locked(writer: Option<Edge>, reader: Option<Edge>) {
    loom::model(move || {
        let pair = Arc::new(Pair::default());
        let write = |pair: &Pair| pair.lock.try_write(2).map(|_guard| pair.raise());
        let thread = spawn({
            let pair = Arc::clone(&pair);
            move || {
                lose(writer);
                write(&pair).is_some()
            }
        });
        lose(reader);
        if let Some(_guard) = pair.lock.try_read(2) {
            let [one, two] = pair.read();
            assert_eq!(one, two, "a writer excludes all others");
        }
        lose(None);
        let mine = write(&pair).is_some();
        let theirs = thread.join().expect("wrote or not");
        let count = u64::from(mine) + u64::from(theirs);
        assert_eq!(pair.read(), [count; 2], "a writer excludes all others");
        assert!(pair.lock.try_write(1).is_some(), "the lock is free again");
    });
}

#[test]
fn a_writer_is_alone() {
    locked(None, None);
}

#[test]
#[should_panic(expected = "a writer excludes all others")]
fn mutant_read_without_acquire() {
    locked(None, Some(Edge::Access(Acquire)));
}

#[test]
#[should_panic(expected = "a writer excludes all others")]
fn mutant_write_guard_without_release() {
    locked(Some(Edge::Access(Release)), None);
}

#[test]
#[should_panic(expected = "the lock is free again")]
fn mutant_read_in_two_steps() {
    locked(None, Some(Edge::Exchange));
}

#[test]
#[should_panic(expected = "the lock is free again")]
fn mutant_write_in_two_steps() {
    locked(Some(Edge::Exchange), None);
}
