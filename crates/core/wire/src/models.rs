//! loom models of the crate's edges, with mutants.

mod hits;
mod ring;

extern crate std;
use std::boxed::Box;
use std::vec::Vec;

use crate::{AgentAddresses, Data, Geometry, Hello, Plan, Request, Words};
use tiptoe_sync::mutant::{AtomicU64, Edge, Ordering::*, interrupt, lose};

const SHAPE: Geometry = Geometry {
    slots: 1,
    slabs: 2,
    rings: false,
    hits: false,
};
const PLAN_WORDS: usize = 24;
const GREETING: Hello = Hello {
    pid: 42,
    tls: -8,
    addresses: AgentAddresses {
        cold_entry: 3,
        hook_entry: 4,
        slow_entry: 7,
        time_entry: 8,
        futex_entry: 7,
        gate: 5,
        thunks: 6,
    },
};

fn words(count: usize) -> Words<'static> {
    let words: Vec<AtomicU64> = (0..count).map(|_| AtomicU64::new(0)).collect();
    Words::new(Box::leak(words.into_boxed_slice()))
}

fn data() -> Data<'static> {
    Data::new(words(SHAPE.data_bytes() as usize / 8), SHAPE).expect("long enough")
}

fn serve(plan: &Plan, data: &Data, done: u64) -> u64 {
    let sequence = plan.sequence();
    if sequence == done {
        return done;
    }
    let kind = if sequence == 1 {
        Request::Arm
    } else {
        Request::Disarm
    };
    assert_eq!(
        plan.request(),
        Some((kind, 1)),
        "the request is as published"
    );
    assert_eq!(plan.address(0), sequence, "the record is as published");
    data.set_result(0, 10 * sequence);
    data.answer(sequence, 100 * sequence);
    sequence
}

fn answered(data: &Data, sequence: u64) -> bool {
    let answered = data.acknowledged() == sequence;
    if answered {
        assert_eq!(data.result(0), 10 * sequence, "the result is as answered");
        assert_eq!(data.outcome(), 100 * sequence, "the outcome is as answered");
    }
    answered
}

fn requests(tiptoe: Option<Edge>, agent: Option<Edge>) {
    loom::model(move || {
        let (plan, data) = (Plan::new(words(PLAN_WORDS)), data());
        let served = loom::thread::spawn(move || {
            lose(agent);
            let done = serve(&plan, &data, 0);
            serve(&plan, &data, done);
        });
        lose(tiptoe);
        plan.put_address(0, 1);
        assert_eq!(plan.publish(Request::Arm, 1), 1);
        if answered(&data, 1) {
            plan.put_address(0, 2);
            assert_eq!(plan.publish(Request::Disarm, 1), 2);
            answered(&data, 2);
        }
        served.join().expect("served");
    });
}

fn entered(tiptoe: Option<Edge>, agent: Option<Edge>) {
    loom::model(move || {
        let data = data();
        let thread = loom::thread::spawn(move || {
            lose(agent);
            data.enter(1, 42, [1, 2]);
        });
        lose(tiptoe);
        if let Some((tid, comm)) = data.slab_owner(1) {
            assert_eq!(
                (tid, comm[0], comm[8]),
                (42, 1, 2),
                "the name is the owner's"
            );
        }
        thread.join().expect("entered");
    });
}

fn greeted(tiptoe: Option<Edge>, agent: Option<Edge>) {
    loom::model(move || {
        let data = data();
        let thread = loom::thread::spawn(move || {
            lose(agent);
            data.greet(&GREETING);
        });
        lose(tiptoe);
        if let Some(hello) = data.hello() {
            assert_eq!(hello, GREETING, "the greeting is whole");
        }
        thread.join().expect("greeted");
    });
}

/// The spawned thread reads. If it wrote, loom would try only one order, because a writer loads the number before it
/// adds.
fn moved(tiptoe: Option<Edge>, agent: Option<Edge>) {
    loom::model(move || {
        let data = data();
        let read = loom::thread::spawn(move || {
            lose(tiptoe);
            let found = data.unpatched().expect("there is room");
            let is_whole = |code: std::ops::Range<u64>| code.is_empty() || code == (3..5);
            assert!({ found }.all(is_whole), "the range is whole");
        });
        lose(agent);
        data.put_unpatched(3..5);
        assert!(read.join().is_ok(), "the range is whole");
    });
}

fn buried(tiptoe: Option<Edge>, agent: Option<Edge>) {
    loom::model(move || {
        let data = data();
        let thread = loom::thread::spawn(move || {
            lose(agent);
            data.add(0, 0);
            data.answer(1, 0);
        });
        lose(tiptoe);
        if data.acknowledged() == 1 {
            assert_eq!(data.counter(0, 0), 1, "the last count is read");
        }
        thread.join().expect("buried");
    });
}

fn shared(lost: Option<Edge>) {
    loom::model(move || {
        let data = data();
        let count = move || {
            lose(lost);
            data.add(0, 0);
            data.raise(1, 0, 7);
        };
        let thread = loom::thread::spawn(count);
        interrupt(1, move || data.add(0, 0));
        lose(lost);
        data.raise(1, 0, 5);
        data.add(0, 0);
        thread.join().expect("counted");
        lose(None);
        assert_eq!(data.counter(0, 0), 3, "every count is added");
        assert_eq!(data.counter(1, 0), 7, "the greatest value is kept");
    });
}

#[test]
fn a_credit_is_never_overdrawn() {
    loom::model(|| {
        let data = data();
        data.set_credit(1, 1);
        let thread = loom::thread::spawn(move || {
            // `spend` is not atomic, like the compare and `decq` of generated code.
            (0..3).filter(|_| spend(&data)).count() as u64
        });
        data.set_credit(1, 1);
        let spent = thread.join().expect("spent");
        assert!(spent <= 2 && data.credit(1) <= 2 - spent, "no overdraft");
        data.set_credit(1, 1);
        assert!(spend(&data) && !spend(&data), "the next credit arrives");
    });
}

fn spend(data: &Data) -> bool {
    let left = data.credit(1) as i64;
    if left > 0 {
        data.set_credit(1, data.credit(1).wrapping_sub(1));
    }
    left > 0
}

#[test]
fn the_last_reading_has_every_count() {
    buried(None, None);
}

#[test]
#[should_panic(expected = "the last count is read")]
fn mutant_bury_without_release() {
    buried(None, Some(Edge::Access(Release)));
}

#[test]
#[should_panic(expected = "the last count is read")]
fn mutant_last_reading_without_acquire() {
    buried(Some(Edge::Access(Acquire)), None);
}

#[test]
fn no_count_that_threads_share_is_lost() {
    shared(None);
}

#[test]
#[should_panic(expected = "every count is added")]
fn mutant_torn_add() {
    shared(Some(Edge::Exchange));
}

#[test]
fn requests_and_answers_are_read_whole() {
    requests(None, None);
}

#[test]
#[should_panic(expected = "as published")]
fn mutant_publish_without_release() {
    requests(Some(Edge::Access(Release)), None);
}

#[test]
#[should_panic(expected = "as published")]
fn mutant_sequence_without_acquire() {
    requests(None, Some(Edge::Access(Acquire)));
}

#[test]
#[should_panic(expected = "as answered")]
fn mutant_answer_without_release() {
    requests(None, Some(Edge::Access(Release)));
}

#[test]
#[should_panic(expected = "as answered")]
fn mutant_acknowledged_without_acquire() {
    requests(Some(Edge::Access(Acquire)), None);
}

#[test]
fn an_owner_is_read_with_its_name() {
    entered(None, None);
}

#[test]
#[should_panic(expected = "the name is the owner's")]
fn mutant_enter_without_release() {
    entered(None, Some(Edge::Access(Release)));
}

#[test]
#[should_panic(expected = "the name is the owner's")]
fn mutant_owner_without_acquire() {
    entered(Some(Edge::Access(Acquire)), None);
}

#[test]
fn a_greeting_is_read_whole() {
    greeted(None, None);
}

#[test]
#[should_panic(expected = "the greeting is whole")]
fn mutant_state_without_release() {
    greeted(None, Some(Edge::Access(Release)));
}

#[test]
#[should_panic(expected = "the greeting is whole")]
fn mutant_state_without_acquire() {
    greeted(Some(Edge::Access(Acquire)), None);
}

#[test]
fn a_range_without_patches_is_read_whole() {
    moved(None, None);
}

#[test]
#[should_panic(expected = "the range is whole")]
fn mutant_unpatched_without_release() {
    moved(None, Some(Edge::Access(Release)));
}

#[test]
#[should_panic(expected = "the range is whole")]
fn mutant_unpatched_without_acquire() {
    moved(Some(Edge::Access(Acquire)), None);
}
