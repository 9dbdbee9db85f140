//! A wait that a library tells of, whatever a signal handler does in front of each access.

use tiptoe_sync::mutant::{interrupt, was_missed};
use tiptoe_wire::Words;
use tiptoe_wire::futex::{ENTRIES, ENTRY_WORDS, WIDTH, entry};

use crate::activities::Activities;
use crate::calls::{Call, Thread};
use crate::models::{at_each_access, leak};
use crate::told::Told;
use crate::walk::Caller;

/// A wait at a futex.
fn futex(own: Words<'static>, shared: Words<'static>, (sp, site): (u64, u64)) {
    let thread = Thread::new(own, shared);
    let caller = Caller {
        site,
        via: 8,
        frame: sp + 8,
    };
    let call = Call {
        address: 0x2000,
        operation: 0x80,
        sp,
        caller,
        at: 9,
        timed: true,
    };
    thread.begins(&call, || 0, || 10);
    thread.ends(sp, 0, || 20, |ticks| ticks);
}

/// A lock's wait at this place of the stack, with one at a futex within.
fn told(own: Words<'static>, shared: Words<'static>, place: u64) {
    let told = Told {
        address: 0x1000,
        mode: 1,
        label: 0x5000,
        place,
        site: 5,
    };
    let thread = Thread::new(own, shared);
    thread.told_begins(&told, || 10);
    futex(own, shared, (980, 6));
    let clocks = (|| 30, |ticks| ticks);
    thread.told_ends(place, 0, clocks, |_| &b"name"[..]);
}

/// How many calls there were from a call site.
fn calls(own: Words<'static>, site: u64) -> u64 {
    let word = |block: u32, word| own.load((block * ENTRY_WORDS + word) as usize);
    let mine = (1..=ENTRIES).filter(|block| word(*block, entry::SITE) == site);
    mine.map(|block| word(block, entry::CALLS)).sum()
}

/// A handler waits at a futex, too: the lock's wait is one, that within is none, and the handler's is within or one
/// of its own.
fn a_wait_that_is_told_is_one(place: u64) {
    at_each_access(move |nth| {
        let (own, shared) = (leak(WIDTH), leak(WIDTH));
        interrupt(nth, move || futex(own, shared, (900, 7)));
        told(own, shared, place);
        let missed = was_missed();
        let counts = [5, 6, 7].map(|site| calls(own, site));
        assert_eq!(counts[..2], [1, 0], "the lock's wait is one");
        assert!(counts[2] <= 1, "{counts:?}");
        assert_eq!(Activities::new(own).iter().count(), 0, "all are over");
        missed
    });
}

#[test]
fn model_a_wait_that_is_told_is_one() {
    a_wait_that_is_told_is_one(1000);
}

/// Where the library's own frame begins, as what it calls sees it, is no place: futex calls are made from there.
#[test]
#[should_panic(expected = "the lock's wait is one")]
fn mutant_place_below_what_is_within() {
    a_wait_that_is_told_is_one(970);
}
