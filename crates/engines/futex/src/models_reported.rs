//! Models of a reported wait that a signal handler interrupts before each memory access in turn.

use tiptoe_sync::mutant::{interrupt, was_missed};
use tiptoe_wire::Words;
use tiptoe_wire::futex::{ENTRIES, ENTRY_WORDS, WIDTH, entry};

use crate::activities::Activities;
use crate::calls::{Call, Thread};
use crate::models::{at_each_access, leak};
use crate::paths::Caller;
use crate::reported::{ReportedEnd, ReportedWait};

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
        is_timed: true,
    };
    thread.begins(&call, || None, || 10, |_| 0);
    thread.ends(sp, 0, || 20, |ticks| ticks, |_| 0);
}

fn reported(own: Words<'static>, shared: Words<'static>, frame_end: u64) {
    let wait = ReportedWait {
        address: 0x1000,
        mode: 1,
        label: 0x5000,
        frame_end,
        site: 5,
    };
    let thread = Thread::new(own, shared);
    thread.reported_begins(&wait, || 10);
    futex(own, shared, (980, 6));
    let end = ReportedEnd {
        frame_end,
        outcome: 0,
    };
    thread.reported_ends(end, || 30, |ticks| ticks, |_| &b"name"[..]);
}

fn calls(own: Words<'static>, site: u64) -> u64 {
    let word = |block: u32, word| own.load((block * ENTRY_WORDS + word) as usize);
    let mine = (1..=ENTRIES).filter(|block| word(*block, entry::SITE) == site);
    mine.map(|block| word(block, entry::CALLS)).sum()
}

fn a_reported_wait_counts_once(frame_end: u64) {
    at_each_access(move |nth| {
        let (own, shared) = (leak(WIDTH), leak(WIDTH));
        interrupt(nth, move || futex(own, shared, (900, 7)));
        reported(own, shared, frame_end);
        let missed = was_missed();
        let counts = [5, 6, 7].map(|site| calls(own, site));
        assert_eq!(counts[..2], [1, 0], "only the lock's wait counts");
        assert!(counts[2] <= 1, "{counts:?}");
        assert_eq!(Activities::new(own).iter().count(), 0, "all have ended");
        missed
    });
}

#[test]
fn model_a_reported_wait_counts_once() {
    a_reported_wait_counts_once(1000);
}

#[test]
#[should_panic(expected = "only the lock's wait counts")]
fn mutant_position_below_the_wait_inside() {
    a_reported_wait_counts_once(970);
}
