//! Loom models of the board (the last wakes), of walks, and of a thread that a signal handler interrupts before each
//! memory access in turn. A *mutant*, a model with an error, must fail.

extern crate std;

use loom::thread;
use std::boxed::Box;
use std::sync::Arc;
use std::vec::Vec;

use tiptoe_stack::{Base, Frame, Rule, encode_row};
use tiptoe_sync::mutant::{AtomicU64, Edge, interrupt, lose, was_missed};
use tiptoe_wire::Words;
use tiptoe_wire::futex::board::{ADDRESS, SITE, SUM};
use tiptoe_wire::futex::{ENTRIES, ENTRY_WORDS, WIDTH, activity, entry, frames, head};

use crate::activities::{Activities, Activity};
use crate::board::Board;
use crate::calls::{Call, Thread};
use crate::owner::OwnedLock;
use crate::paths::Caller;
use crate::paths::Paths;
use crate::primitive::Ordering::{Acquire, Release};
use crate::walk::{Frames, Library, RuntimePart};

struct Shared(Vec<AtomicU64>);

impl Shared {
    fn new() -> Arc<Shared> {
        Arc::new(Shared((0..8).map(|_| AtomicU64::new(0)).collect()))
    }

    fn board(&self) -> Board<'_> {
        Board::new(Words::new(&self.0))
    }
}

fn waker(shared: &Shared, address: u64, seen: u64) -> Option<u64> {
    shared.board().wake(address, seen).map(|wake| wake.site)
}

/// A mutant of `waker` that accepts any checksum.
fn waker_unchecked(shared: &Shared, address: u64, seen: u64) -> Option<u64> {
    let word = |word: u32| Words::new(&shared.0).load(word as usize);
    (word(SUM) != seen && word(ADDRESS) == address).then(|| word(SITE))
}

type Waker = fn(&Shared, u64, u64) -> Option<u64>;

fn wakes_do_not_mix(find: Waker) {
    loom::model(move || {
        let shared = Shared::new();
        let note = |shared: &Shared, id: u64| shared.board().note(id, 100 + id, 10 + id);
        let other = shared.clone();
        let wakes = thread::spawn(move || note(&other, 1));
        note(&shared, 2);
        for id in [1, 2] {
            let found = find(&shared, id, 0);
            assert!([None, Some(100 + id)].contains(&found), "{found:?}");
        }
        wakes.join().unwrap();
        // Both wakes share a cell, so at most one is left.
        let last = [1, 2].map(|id| find(&shared, id, 0));
        assert!(last.iter().flatten().count() <= 1, "{last:?}");
    });
}

#[test]
fn model_wakes_do_not_mix() {
    wakes_do_not_mix(waker);
}

#[test]
#[should_panic]
fn mutant_mixed_wakes_without_sum() {
    wakes_do_not_mix(waker_unchecked);
}

fn a_seen_wake_is_not_returned(find: Waker) {
    loom::model(move || {
        let first = Shared::new();
        first.board().note(1, 101, 11);
        let first = first.board().seen(1);
        let shared = Shared::new();
        let other = shared.clone();
        let wakes = thread::spawn(move || {
            other.board().note(1, 101, 11);
            other.board().note(1, 201, 21);
        });
        let any = find(&shared, 1, 0);
        assert!([None, Some(101), Some(201)].contains(&any), "{any:?}");
        let second = find(&shared, 1, first);
        assert!([None, Some(201)].contains(&second), "{second:?}");
        wakes.join().unwrap();
        assert_eq!(find(&shared, 1, first), Some(201));
    });
}

#[test]
fn model_a_seen_wake_is_not_returned() {
    a_seen_wake_is_not_returned(waker);
}

#[test]
#[should_panic]
fn mutant_seen_without_sum() {
    a_seen_wake_is_not_returned(waker_unchecked);
}

pub(crate) fn leak(words: u32) -> Words<'static> {
    let words: Vec<AtomicU64> = (0..words).map(|_| AtomicU64::new(0)).collect();
    Words::new(Box::leak(words.into_boxed_slice()))
}

fn wait(sp: u64) -> Activity {
    Activity {
        sp,
        address: sp + 1,
        site: sp + 2,
        via: sp + 3,
        since: sp + 4,
        operation: sp + 5,
        frame: sp + 6,
        seen: sp + 7,
        within: sp + 8,
    }
}

/// Runs `thread` with a handler before each memory access in turn, and once without.
pub(crate) fn at_each_access(thread: impl Fn(usize) -> bool + Sync + Send + 'static + Copy) {
    let mut nth = 0;
    let mut missed = false;
    while !missed {
        let found = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let result = found.clone();
        loom::model(move || result.store(thread(nth), std::sync::atomic::Ordering::SeqCst));
        missed = found.load(std::sync::atomic::Ordering::SeqCst);
        nth += 1;
    }
    assert!(nth > 8, "the thread made only {nth} accesses");
}

#[test]
fn model_a_handlers_wait_is_inside_of_its_threads() {
    at_each_access(|nth| {
        let activities = Activities::new(leak(ENTRY_WORDS));
        interrupt(nth, move || {
            assert!(activities.push(&wait(900)));
            assert_eq!(activities.pop(900), Some(wait(900)));
        });
        assert!(activities.push(&wait(1000)));
        assert_eq!(activities.pop(1000), Some(wait(1000)));
        let missed = was_missed();
        assert_eq!(activities.iter().count(), 0);
        missed
    });
}

/// A handler's wait never returns. The thread then waits further up the stack.
#[test]
fn model_a_wait_that_is_left_is_forgotten() {
    at_each_access(|nth| {
        let activities = Activities::new(leak(ENTRY_WORDS));
        interrupt(nth, move || {
            assert!(activities.push(&wait(900)));
        });
        activities.push(&wait(1000));
        let missed = was_missed();
        assert!(activities.push(&wait(2000)));
        let sps: Vec<u64> = activities.iter().map(|wait| wait.sp).collect();
        assert_eq!(sps, [2000]);
        assert_eq!(activities.pop(2000), Some(wait(2000)));
        missed
    });
}

fn every_call_counts(thread: Option<Edge>) {
    at_each_access(move |nth| {
        let (own, shared) = (leak(WIDTH), leak(WIDTH));
        let calls = move |sp: u64, operation| {
            let thread = Thread::new(own, shared);
            let caller = Caller {
                site: 7,
                via: 8,
                frame: sp + 64,
            };
            let call = Call {
                address: 0x1000,
                operation,
                sp,
                caller,
                at: 9,
                is_timed: true,
            };
            thread.begins(&call, || Some(OwnedLock::Mutex), || 10, |_| 7);
            thread.ends(sp, 0, || 20, |ticks| ticks, |_| 0);
        };
        interrupt(nth, move || {
            calls(900, 0x80);
            calls(900, 0x81);
        });
        lose(thread);
        calls(1000, 0x80);
        lose(None);
        let missed = was_missed();
        if missed {
            return true;
        }
        let sum = |word: u32| -> u64 {
            let blocks = 1..=ENTRIES;
            blocks
                .map(|b| own.load((b * ENTRY_WORDS + word) as usize))
                .sum()
        };
        assert_eq!(sum(entry::CALLS) + own.load(head::FULL as usize), 2);
        let all = [head::WAITS, head::WAKES].map(|word| own.load(word as usize));
        assert_eq!(all, [2, 1]);
        assert_eq!(sum(entry::SLEPT_NS), 20);
        let slots = (0..entry::HOLDER_COUNT).map(|i| entry::HOLDERS + i * entry::HOLDER_WORDS);
        let held: u64 = slots.map(|slot| sum(slot + 2)).sum();
        assert_eq!(held, 20, "each wait is charged to holders");
        false
    });
}

type Looks = fn(Words<'static>, u64);

fn goes_on(own: Words<'static>, beginning: u64) {
    Activities::new(own).mark_seen(0, beginning, 5);
}

fn any_goes_on(own: Words<'static>, _beginning: u64) {
    let word = head::ACTIVITIES + activity::SINCE;
    own.store(word as usize, 5 | activity::GOES_ON);
}

/// tiptoe marks a skipped wait as still in progress, while the wait ends and another begins. The marking is one
/// exchange, so running it before each access covers all interleavings.
fn what_goes_on_is_not_mixed_up(looks: Looks) {
    at_each_access(move |nth| {
        let (own, shared) = (leak(WIDTH), leak(WIDTH));
        own.store(head::NEXT as usize, 9);
        let begins = move || {
            let caller = Caller {
                site: 7,
                via: 8,
                frame: 64,
            };
            let call = Call {
                address: 0x1000,
                operation: 0x80,
                sp: 1000,
                caller,
                at: 9,
                is_timed: true,
            };
            Thread::new(own, shared).begins(&call, || None, || 10, |_| 0);
        };
        let ends = move |now| Thread::new(own, shared).ends(1000, 0, || now, |ticks| ticks, |_| 0);
        begins();
        let first = Activities::new(own).beginnings()[0].unwrap();
        interrupt(nth, move || looks(own, first));
        ends(20);
        begins();
        ends(100);
        let missed = was_missed();
        let sum = |word: u32| -> u64 {
            let blocks = 1..=ENTRIES;
            blocks
                .map(|b| own.load((b * ENTRY_WORDS + word) as usize))
                .sum()
        };
        assert_eq!([entry::CALLS, entry::TIMED].map(sum), [2, 0]);
        assert!([0, 15].contains(&sum(entry::SLEPT_NS)));
        missed
    });
}

#[test]
fn model_a_later_wait_is_not_marked_as_in_progress() {
    what_goes_on_is_not_mixed_up(goes_on);
}

#[test]
#[should_panic]
fn mutant_marks_any_wait() {
    what_goes_on_is_not_mixed_up(any_goes_on);
}

#[test]
fn model_every_call_counts() {
    every_call_counts(None);
}

#[test]
#[should_panic]
fn mutant_add_in_two_steps() {
    every_call_counts(Some(Edge::Exchange));
}

fn rules() -> [Rule; 2] {
    [8, 16].map(|cfa| Rule::new(Base::Sp, cfa, None).unwrap())
}

fn add(words: Words<'_>, rows: &[u64]) {
    let library = Library {
        base: 0,
        start: 0x1000,
        end: 0x2000,
        part: RuntimePart::Libc,
    };
    assert!(Frames::new(words).add(&library, rows));
}

fn frame() -> Frame {
    Frame {
        sp: 0x10,
        ..Frame::default()
    }
}

/// tiptoe adds a library while a thread walks out of it. The walk may miss the library, but must not cache the miss.
fn a_library_is_added_as_a_whole(tiptoe: Option<Edge>, walker: Option<Edge>) {
    loom::model(move || {
        let (words, own) = (leak(frames::ROWS + 1), leak(ENTRY_WORDS));
        let [rule, _] = rules();
        let adds = thread::spawn(move || {
            lose(tiptoe);
            add(words, &[encode_row(0, rule)]);
        });
        let walk = || {
            let load = |at| if at == 0x10 { 0x1500 } else { 0x4000 };
            let paths = Paths::new(own);
            Frames::new(words).caller(&paths, rule, frame(), load).site
        };
        lose(walker);
        let found = walk();
        assert!([0x1500, 0x4000].contains(&found), "{found:#x}");
        lose(None);
        adds.join().unwrap();
        assert_eq!(walk(), 0x4000);
    });
}

#[test]
fn model_a_library_is_added_as_a_whole() {
    a_library_is_added_as_a_whole(None, None);
}

#[test]
#[should_panic]
fn mutant_add_without_release() {
    a_library_is_added_as_a_whole(Some(Edge::Access(Release)), None);
}

#[test]
#[should_panic]
fn mutant_walk_without_acquire() {
    a_library_is_added_as_a_whole(None, Some(Edge::Access(Acquire)));
}

fn cached_results_are_not_mixed_up(one: Option<Edge>, other: Option<Edge>) {
    loom::model(move || {
        let words = leak(frames::ROWS + 2);
        let [rule, rest] = rules();
        add(words, &[encode_row(0, rule), encode_row(0x1800, rest)]);
        let walk = move |inside: u64| {
            let load = |at| match at {
                0x10 => inside,
                at => at,
            };
            let site = Frames::new(words).walk(rule, frame(), load).site;
            assert_eq!(site, if inside < 0x1800 { 0x18 } else { 0x20 });
        };
        let walks = thread::spawn(move || {
            lose(other);
            walk(0x1a00);
        });
        lose(one);
        walk(0x1500);
        walk(0x1a00);
        lose(None);
        walks.join().unwrap();
        walk(0x1a00);
    });
}

#[test]
fn model_cached_results_are_not_mixed_up() {
    cached_results_are_not_mixed_up(None, None);
}

#[test]
#[should_panic]
fn mutant_keep_in_two_steps() {
    cached_results_are_not_mixed_up(Some(Edge::Exchange), None);
}

#[test]
#[should_panic]
fn mutant_keep_without_release() {
    cached_results_are_not_mixed_up(None, Some(Edge::Access(Release)));
}

#[test]
#[should_panic]
fn mutant_find_without_acquire() {
    cached_results_are_not_mixed_up(Some(Edge::Access(Acquire)), None);
}

/// A signal handler walks while its thread walks.
fn paths_are_not_mixed_up(thread: Option<Edge>) {
    at_each_access(move |nth| {
        let (own, shared) = (leak(ENTRY_WORDS), leak(frames::ROWS + 2));
        let [rule, rest] = rules();
        add(shared, &[encode_row(0, rule), encode_row(0x1800, rest)]);
        let comes = move |first: u64| {
            let user = if first < 0x1800 { 0x18 } else { 0x20 };
            let load = |at| if at == 0x10 { first } else { 0x4000 + at };
            let paths = Paths::new(own);
            let caller = Frames::new(shared).caller(&paths, rule, frame(), load);
            assert_eq!((caller.site, caller.via), (0x4000 + user, first));
        };
        let all = [0x1500, 0x1a00, 0x1600];
        interrupt(nth, move || [0x1a00, 0x1600].into_iter().for_each(comes));
        lose(thread);
        comes(all[0]);
        lose(None);
        let missed = was_missed();
        all.into_iter().chain(all).for_each(comes);
        missed
    });
}

#[test]
fn model_paths_are_not_mixed_up() {
    paths_are_not_mixed_up(None);
}

#[test]
#[should_panic]
fn mutant_way_in_two_steps() {
    paths_are_not_mixed_up(Some(Edge::Exchange));
}
