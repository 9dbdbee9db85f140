extern crate std;

use loom::sync::{Arc, Condvar, Mutex};
use loom::thread::spawn;
use std::vec::Vec;

use crate::mutant::{AtomicU64, Edge, Ordering::*, lose};
use crate::shards::{Shards, Wait};

/// A futex without timeouts. A lost wake is a deadlock, which loom reports.
struct Futex {
    /// Whether a wake wakes one thread, or all. Models whose threads park at several words must wake all, because the
    /// words share one queue.
    wakes_one: bool,
    queue: Mutex<()>,
    woken: Condvar,
}

impl Futex {
    fn new(wakes_one: bool) -> Self {
        Futex {
            wakes_one,
            queue: Mutex::new(()),
            woken: Condvar::new(),
        }
    }
}

impl Wait for Futex {
    const LOOKS: u32 = 1;

    fn park(&self, word: &AtomicU64, seen: u64) {
        let queue = self.queue.lock().expect("no panic");
        if word.load(Relaxed) == seen {
            drop(self.woken.wait(queue).expect("no panic"));
        }
    }

    fn unpark(&self, _: &AtomicU64) {
        let _queue = self.queue.lock().expect("no panic");
        match self.wakes_one {
            true => self.woken.notify_one(),
            false => self.woken.notify_all(),
        }
    }

    fn now_ns(&self) -> u64 {
        0
    }
}

struct Shared {
    words: Vec<AtomicU64>,
    futex: Futex,
}

impl Shared {
    fn new(wakes_one: bool) -> Arc<Shared> {
        Arc::new(Shared {
            words: (0..4).map(|_| AtomicU64::new(0)).collect(),
            futex: Futex::new(wakes_one),
        })
    }

    fn shards(&self) -> Shards<'_, Futex> {
        Shards::new(&self.words, 2, &self.futex)
    }

    fn add(&self, index: usize) {
        let counter = &self.words[index * 2 + 1];
        counter.store(counter.load(Relaxed) + 1, Relaxed);
    }

    fn add_one(&self, index: usize) {
        let _one = self.shards().one(index).expect("the shard exists");
        self.add(index);
    }

    fn add_all(&self) {
        let shards = self.shards();
        let _all = shards.all();
        self.add(0);
        self.add(1);
    }

    fn check(&self, expected: [u64; 2]) {
        let counts = [1, 3].map(|at| self.words[at].load(Relaxed));
        assert_eq!(counts, expected, "each hold was exclusive");
        let is_free = self.shards().try_all().is_some();
        assert!(is_free, "all shards are free at the end");
    }
}

fn one_and_one(first: Option<Edge>, second: Option<Edge>) {
    loom::model(move || {
        let shared = Shared::new(true);
        let thread = spawn({
            let shared = Arc::clone(&shared);
            move || {
                lose(first);
                shared.add_one(1);
            }
        });
        lose(second);
        shared.add_one(1);
        lose(None);
        thread.join().expect("added");
        shared.check([0, 2]);
    });
}

fn one_and_all(one: Option<Edge>, all: Option<Edge>) {
    loom::model(move || {
        let shared = Shared::new(false);
        let run = |lost, act: fn(&Shared)| {
            let shared = Arc::clone(&shared);
            spawn(move || {
                lose(lost);
                act(&shared);
            })
        };
        let threads = [run(all, Shared::add_all), run(None, |s| s.add_one(0))];
        lose(one);
        shared.add_one(1);
        lose(None);
        for thread in threads {
            thread.join().expect("added");
        }
        shared.check([2, 2]);
    });
}

fn all_and_all() {
    loom::model(|| {
        let shared = Shared::new(false);
        let thread = spawn({
            let shared = Arc::clone(&shared);
            move || shared.add_all()
        });
        let tried = {
            let shards = shared.shards();
            let all = shards.try_all();
            all.is_some_and(|_all| {
                shared.add(0);
                shared.add(1);
                true
            })
        };
        thread.join().expect("added");
        shared.check([1 + u64::from(tried); 2]);
    });
}

#[test]
fn a_shard_is_held_exclusively() {
    one_and_one(None, None);
}

#[test]
fn no_wake_is_lost() {
    loom::model(|| {
        let shared = Shared::new(true);
        let threads = [(); 2].map(|()| {
            let shared = Arc::clone(&shared);
            spawn(move || shared.add_one(1))
        });
        shared.add_one(1);
        for thread in threads {
            thread.join().expect("added");
        }
        shared.check([0, 3]);
    });
}

#[test]
fn all_shards_are_held_exclusively() {
    one_and_all(None, None);
}

#[test]
fn a_failed_try_all_releases_all() {
    all_and_all();
}

#[test]
#[should_panic(expected = "each hold was exclusive")]
fn mutant_one_without_acquire() {
    one_and_one(Some(Edge::Access(Acquire)), None);
}

#[test]
#[should_panic(expected = "each hold was exclusive")]
fn mutant_one_without_release() {
    one_and_one(Some(Edge::Access(Release)), None);
}

#[test]
#[should_panic]
fn mutant_one_in_two_steps() {
    one_and_one(Some(Edge::Exchange), None);
}

#[test]
#[should_panic(expected = "each hold was exclusive")]
fn mutant_all_without_acquire() {
    one_and_all(None, Some(Edge::Access(Acquire)));
}

#[test]
#[should_panic(expected = "each hold was exclusive")]
fn mutant_all_without_release() {
    one_and_all(None, Some(Edge::Access(Release)));
}
