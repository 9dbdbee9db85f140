//! A dead thread's calls must be counted as left once, by the agent or by the *heir*, a thread that takes over the dead
//! thread's descriptor. The heir's own calls must not be counted as left.

use loom::thread::spawn;
use tiptoe_sync::mutant::{Edge, lose};

use super::frames::{Calls, Thread};
use super::{leak, leak_many};
use crate::claim::{Claims, Descriptor};
use crate::primitive::{AtomicU32, Ordering::*};

const DEAD: u32 = 9;
const HEIR: u32 = 2;
const AGENT: u32 = 3;
const SLOT: u64 = 0x9000;

fn alive(owner: u32) -> bool {
    owner != DEAD
}

/// A thread died in a call of the first probe. Its heir calls the second probe's function from the same stack slot
/// while the agent counts.
fn inherited(agent: Option<Edge>) {
    loom::model(move || {
        let used = leak(AtomicU32::new(0));
        let claims = leak(Claims::new(leak_many(1, Descriptor::new), used));
        let calls = leak(Calls::new(2));
        let region = leak(Thread::new(calls, 3));
        claims
            .claim(DEAD, true, usize::MAX, |_, _| true)
            .expect("room");
        region.enter(SLOT, 0, 100);
        let heir = spawn(move || {
            if claims
                .claim(HEIR, false, usize::MAX, |_, owner| alive(owner))
                .is_some()
            {
                region.bury();
                region.end.store(1, Relaxed);
                region.enter(SLOT, 1, 200);
                region.returns(SLOT, 1, Some(200));
            }
        });
        lose(agent);
        if let Some(owner) = claims.hold(0, AGENT, alive) {
            region.bury();
            claims.release(0, owner);
        }
        heir.join().expect("called, or stayed without");
        lose(None);
        calls.all_ended();
    });
}

#[test]
fn calls_of_a_dead_thread_are_counted_once() {
    inherited(None);
}

#[test]
#[should_panic(expected = "each call ends once")]
fn mutant_torn_hold() {
    inherited(Some(Edge::Exchange));
}
