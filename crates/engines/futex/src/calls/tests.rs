use super::*;
use crate::history::{HandOver, ring};
extern crate std;
use core::cell::RefCell;
use core::sync::atomic::AtomicU64;
use std::vec::Vec;
use tiptoe_wire::futex::WIDTH;

fn slab() -> Vec<AtomicU64> {
    (0..WIDTH).map(|_| AtomicU64::new(0)).collect()
}

fn call(operation: u32, site: u64) -> Call {
    Call {
        address: 0x1000,
        operation,
        sp: 0x7000,
        caller: Caller {
            site,
            via: 9,
            frame: 0x7100,
        },
        at: 0,
        is_timed: true,
    }
}

fn no_clock() -> u64 {
    panic!("only a wait is timed");
}

const WAIT: u32 = 0x80;
const WAKE: u32 = 0x81;

const MUTEX: fn() -> Option<OwnedLock> = || Some(OwnedLock::Mutex);

fn slab_of(id: u64) -> Vec<AtomicU64> {
    let slab = slab();
    Words::new(&slab).store(head::THREAD as usize, id);
    slab
}

/// Returns (holder, ns) for the waits at call site 5.
fn charges(slab: &[AtomicU64]) -> Vec<(u64, u64)> {
    let slots = (0..entry::HOLDER_COUNT).map(|i| entry::HOLDERS + i * entry::HOLDER_WORDS);
    let each = slots.map(|slot| words(slab, 5, &[slot, slot + 2]));
    let used = each
        .filter(|slot| slot[0] != 0)
        .map(|slot| (slot[0], slot[1]));
    let mut used: Vec<(u64, u64)> = used.collect();
    used.sort_unstable();
    used
}

const THREAD: u64 = tiptoe_wire::futex::holder::THREAD;
const UNSEEN: u64 = tiptoe_wire::futex::holder::UNSEEN;
const UNKNOWN: u64 = tiptoe_wire::futex::holder::UNKNOWN;

/// Regression: the waker was blamed for the whole sleep, even while other threads held the lock.
#[test]
#[cfg_attr(miri, ignore = "takes minutes: whole slabs, word by word")]
fn a_wait_is_charged_to_each_holder_for_its_hold() {
    let (slow, first, second, shared) = (slab_of(1), slab_of(2), slab_of(3), slab());
    let thread = |own| Thread::new(Words::new(own), Words::new(&shared));
    let [slow, one, two] = [&slow, &first, &second].map(|slab| thread(slab));
    // `one` is woken first, and holds the lock from 1,010 to 1,050. `two` gets the lock at 1,080.
    one.begins(&call(WAIT, 5), MUTEX, || 100, |_| 1);
    two.begins(&call(WAIT, 5), MUTEX, || 200, |_| 1);
    slow.begins(&call(WAKE, 61), || None, no_clock, |_| 0);
    one.ends(0x7000, 0, || 1010, |ticks| ticks, |_| 0);
    one.begins(&call(WAKE, 62), || None, || 1050, |_| 0);
    two.ends(0x7000, 0, || 1080, |ticks| ticks, |_| 0);
    assert_eq!(charges(&first), [(61, 910)]);
    assert_eq!(charges(&second), [(61, 810), (62, 40), (UNSEEN, 30)]);
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes: whole slabs, word by word")]
fn a_thread_that_was_faster_is_charged() {
    let (slow, first, second, shared) = (slab_of(1), slab_of(2), slab_of(3), slab());
    let thread = |own| Thread::new(Words::new(own), Words::new(&shared));
    let [slow, one, two] = [&slow, &first, &second].map(|slab| thread(slab));
    one.begins(&call(WAIT, 5), MUTEX, || 100, |_| 1);
    two.begins(&call(WAIT, 5), MUTEX, || 100, |_| 1);
    slow.begins(&call(WAKE, 61), || None, no_clock, |_| 0);
    // Thread 9 holds the lock when `one` reads the holder, and when `two` times out.
    one.ends(0x7000, 0, || 200, |ticks| ticks, |_| 9);
    one.begins(&call(WAIT, 5), MUTEX, || 210, |_| 9);
    two.ends(0x7000, -110, || 300, |ticks| ticks, |_| 9);
    assert_eq!(charges(&first), [(61, 100)]);
    assert_eq!(charges(&second), [(61, 100), (THREAD | 9, 100)]);
    // `one` is woken and finds the lock free, but thread 9 takes the lock first.
    slow.begins(&call(WAKE, 61), || None, no_clock, |_| 0);
    one.ends(0x7000, 0, || 310, |ticks| ticks, |_| 0);
    one.begins(&call(WAIT, 5), MUTEX, || 320, |_| 9);
    one.ends(0x7000, -110, || 420, |ticks| ticks, |_| 9);
    assert_eq!(charges(&first), [(61, 100), (THREAD | 9, 200)]);
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes: whole slabs, word by word")]
fn a_late_hand_over_hid_the_earlier_ones() {
    let (own, shared) = (slab_of(2), slab());
    let thread = Thread::new(Words::new(&own), Words::new(&shared));
    let to = |holder: u32, at: u64| {
        let hand_over = HandOver {
            at,
            holder,
            ..HandOver::default()
        };
        thread.history().push(0x1000, &hand_over);
    };
    thread.begins(&call(WAIT, 5), MUTEX, || 100, |_| 1);
    to(3, 200);
    to(4, 300);
    [60, 70, 80, 90].iter().for_each(|at| to(8, *at));
    to(6, 500);
    to(5, 400);
    thread.ends(0x7000, 0, || 600, |ticks| ticks, |_| 0);
    let held = [1, 3, 4, 5, 6].map(|id| (THREAD | id, 100));
    assert_eq!(charges(&own), held);
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes: whole slabs, word by word")]
fn the_holder_was_read_long_after_the_clock() {
    let (own, shared) = (slab_of(2), slab());
    let thread = Thread::new(Words::new(&own), Words::new(&shared));
    let steps = RefCell::new(Vec::new());
    let step = |name| steps.borrow_mut().push(name);
    let clock = |now| {
        step("clock");
        now
    };
    let load = |_| {
        step("holder");
        7
    };
    thread.begins(&call(WAIT, 5), MUTEX, || clock(100), load);
    let ns = |ticks| {
        step("other");
        ticks
    };
    thread.ends(0x7000, 0, || clock(200), ns, load);
    let steps = steps.into_inner();
    assert_eq!(steps[..4], ["clock", "holder", "clock", "holder"]);
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes: whole slabs, word by word")]
fn hand_overs_of_another_lock_hid_the_holder() {
    use tiptoe_wire::futex::history::COUNT;
    let (own, shared) = (slab_of(2), slab());
    let thread = Thread::new(Words::new(&own), Words::new(&shared));
    let many = |lock: u64| {
        for at in 0..=u64::from(COUNT) {
            let hand_over = HandOver {
                at: 100 + at,
                ..HandOver::default()
            };
            thread.history().push(lock, &hand_over);
        }
    };
    // The lock's hand-overs fill a ring before the wait. During the wait, those of another lock fill it. `ring` returns a
    // lock's ring and its family; the other lock has the same ring, but is of another family.
    many(0x1000);
    thread.begins(&call(WAIT, 5), MUTEX, || 1000, |_| 1);
    let (of_ring, of_family) = ring(0x1000);
    let shares = |lock: &u64| ring(*lock).0 == of_ring && ring(*lock).1 != of_family;
    many((0x2000..).step_by(64).find(shares).expect("there are many"));
    thread.ends(0x7000, 0, || 1600, |ticks| ticks, |_| 0);
    assert_eq!(charges(&own), [(THREAD | 1, 600)]);
    // The lock's own hand-overs overwrite each other.
    thread.begins(&call(WAIT, 5), MUTEX, || 50, |_| 1);
    many(0x1000);
    thread.ends(0x7000, 0, || 100, |ticks| ticks, |_| 0);
    assert_eq!(charges(&own), [(UNKNOWN, 50), (THREAD | 1, 600)]);
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes: whole slabs, word by word")]
fn a_holder_that_was_not_seen_is_unknown() {
    let (own, shared) = (slab_of(2), slab());
    let thread = Thread::new(Words::new(&own), Words::new(&shared));
    // The lock was changing hands, and no wake was recorded.
    thread.begins(&call(WAIT, 5), MUTEX, || 100, |_| 0);
    thread.ends(0x7000, -110, || 200, |ticks| ticks, |_| 0);
    assert_eq!(charges(&own), [(UNKNOWN, 100)]);
    thread.begins(&call(WAIT, 5), || None, || 300, |_| 0);
    thread.ends(0x7000, 0, || 400, |ticks| ticks, |_| panic!("it has none"));
    assert_eq!(charges(&own), [(UNKNOWN, 100)]);
}

fn words(slab: &[AtomicU64], site: u64, wanted: &[u32]) -> Vec<u64> {
    let own = Words::new(slab);
    let blocks = 1..=tiptoe_wire::futex::ENTRIES;
    let first = |block: u32| block * tiptoe_wire::futex::ENTRY_WORDS;
    let at = |block, word| own.load((first(block) + word) as usize);
    let mut mine = blocks.filter(|block| at(*block, entry::SITE) == site);
    let block = mine.next().expect("an entry");
    assert_eq!(mine.next(), None);
    wanted.iter().map(|word| at(block, *word)).collect()
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes: whole slabs, word by word")]
fn a_wait_is_counted_timed_and_blamed() {
    let (waiter, waker, shared) = (slab(), slab(), slab());
    let thread = |own| Thread::new(Words::new(own), Words::new(&shared));
    let (waiting, waking) = (thread(&waiter), thread(&waker));
    waiting.begins(&call(WAIT, 5), || None, || 100, |_| 0);
    waking.begins(&call(WAKE, 6), || None, no_clock, |_| 0);
    waiting.ends(0x7000, 0, || 200, |ticks| ticks * 10, |_| 0);
    let of_wait = [entry::CALLS, entry::WOKEN, entry::SLEPT_NS, entry::WAKERS];
    assert_eq!(words(&waiter, 5, &of_wait), [1, 1, 1000, 6]);
    // This end has no beginning.
    waiting.ends(0x7000, 0, || 300, |ticks| ticks, |_| 0);
    assert_eq!(words(&waiter, 5, &of_wait), [1, 1, 1000, 6]);
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes: whole slabs, word by word")]
fn waits_of_one_call_are_one_episode() {
    let (own, shared) = (slab(), slab());
    let thread = Thread::new(Words::new(&own), Words::new(&shared));
    let wait = |result| {
        thread.begins(&call(WAIT, 5), || None, || 100, |_| 0);
        thread.ends(0x7000, result, || 200, |ticks| ticks, |_| 0);
    };
    wait(-11);
    wait(0);
    let counts = [entry::EPISODES, entry::AT_ONCE, entry::WOKEN];
    assert_eq!(words(&own, 5, &counts), [1, 1, 1]);
    thread.begins(&call(WAKE, 6), || None, no_clock, |_| 0);
    wait(-11);
    assert_eq!(words(&own, 5, &counts), [2, 2, 1]);
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes: whole slabs, word by word")]
fn waits_that_were_left_are_counted() {
    let (own, shared) = (slab(), slab());
    let thread = Thread::new(Words::new(&own), Words::new(&shared));
    // The second wait begins at the first wait's stack position, so the thread left the first without a return.
    thread.begins(&call(WAIT, 5), || None, || 100, |_| 0);
    thread.begins(&call(WAIT, 6), || None, || 300, |_| 0);
    let of_left = [entry::CALLS, entry::LEFT, entry::EPISODES, entry::SLEPT_NS];
    assert_eq!(words(&own, 5, &of_left), [1, 1, 1, 0]);
    thread.ends(0x7000, 0, || 400, |ticks| ticks, |_| 0);
    assert_eq!(words(&own, 6, &of_left), [1, 0, 1, 100]);
    thread.begins(&call(WAIT, 6), || None, || 500, |_| 0);
    thread.leaves_all();
    assert_eq!(words(&own, 6, &of_left), [2, 1, 1, 100]);
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes: whole slabs, word by word")]
fn waits_without_an_after_hook_are_counted() {
    let (own, shared) = (slab(), slab());
    let thread = Thread::new(Words::new(&own), Words::new(&shared));
    let untimed = Call {
        is_timed: false,
        ..call(WAIT, 5)
    };
    thread.begins(&untimed, || None, || 100, |_| 0);
    thread.begins(&call(8, 6), || None, no_clock, |_| 0);
    assert_eq!(words(&own, 5, &[entry::CALLS, entry::OTHER]), [1, 1]);
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes: whole slabs, word by word")]
fn skipped_waits_are_counted_and_weighted() {
    let (own, shared) = (slab(), slab());
    let words = Words::new(&own);
    let thread = Thread::new(words, Words::new(&shared));
    let counts = [entry::CALLS, entry::WOKEN, entry::AT_ONCE, entry::EPISODES];
    thread.begins(&call(WAKE, 6), || None, no_clock, |_| 0);
    words.store(head::NEXT as usize, 4);
    words.store(head::NEXT_WEIGHT as usize, 4);
    for result in [0, -11, 0] {
        thread.begins(&call(WAIT, 5), || None, no_clock, |_| 0);
        thread.ends(0x7000, result, no_clock, |ticks| ticks, |_| 0);
    }
    assert_eq!(words_of(&own, &counts), [3, 2, 1, 1]);
    assert_eq!(words_of(&own, &[entry::TIMED, entry::SLEPT_NS]), [0, 0]);
    thread.begins(&call(WAIT, 5), || None, || 100, |_| 0);
    thread.begins(&call(WAKE, 6), || None, no_clock, |_| 0);
    thread.ends(0x7000, 0, || 110, |ticks| ticks, |_| 0);
    let sums = [entry::TIMED, entry::SLEPT_NS, entry::LONGEST];
    assert_eq!(words_of(&own, &sums), [1, 40, 10]);
    let waker = [entry::WAKERS, entry::WAKERS + 1, entry::WAKERS + 2];
    assert_eq!(words_of(&own, &waker), [6, 4, 40]);
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes: whole slabs, word by word")]
fn a_wait_seen_twice_has_weight_one() {
    let (own, shared) = (slab(), slab());
    let words = Words::new(&own);
    let thread = Thread::new(words, Words::new(&shared));
    let waits = Activities::new(words);
    let beginning = || waits.beginnings()[0].expect("it is on");
    words.store(head::NEXT as usize, 2);
    words.store(head::NEXT_WEIGHT as usize, 9);
    thread.begins(&call(WAIT, 5), || None, no_clock, |_| 0);
    let first = beginning();
    waits.mark_seen(0, first, 150);
    thread.ends(0x7000, 0, || 200, |ticks| ticks, |_| 0);
    let sums = [entry::CALLS, entry::TIMED, entry::SLEPT_NS];
    assert_eq!(words_of(&own, &sums), [1, 0, 50]);
    thread.begins(&call(WAIT, 5), || None, || 300, |_| 0);
    waits.mark_seen(0, first, 1);
    waits.mark_seen(0, beginning(), beginning());
    waits.mark_seen(9, 0, 0);
    thread.ends(0x7000, 0, || 400, |ticks| ticks, |_| 0);
    assert_eq!(words_of(&own, &sums), [2, 1, 150]);
}

fn words_of(slab: &[AtomicU64], wanted: &[u32]) -> Vec<u64> {
    words(slab, 5, wanted)
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes: whole slabs, word by word")]
fn readers_are_summed_up() {
    let (own, shared) = (slab(), slab());
    let thread = Thread::new(Words::new(&own), Words::new(&shared));
    for readers in [3, 0, 5, 4] {
        let load = |at: u64| if at == 0x1000 { readers << 3 } else { 0 };
        let lock = || Some(OwnedLock::RwlockItself);
        thread.begins(&call(WAIT, 5), lock, || 100, load);
        thread.ends(0x7000, 0, || 200, |ticks| ticks, |_| 0);
    }
    let of_readers = [entry::CALLS, entry::READERS, entry::MOST_READERS];
    assert_eq!(words(&own, 5, &of_readers), [4, 12, 5]);
}
