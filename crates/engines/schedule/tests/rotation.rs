//! Tests that pinned events never move, and that flexible events have equal turns.

use std::collections::HashSet;

use proptest::prelude::*;
use tiptoe_schedule::{Rotation, Slots, TooManyPinned};

struct Recorder {
    running: Vec<usize>,
    puts: u64,
    refuse_each: u64,
}

impl Slots for Recorder {
    type Error = ();

    fn put(&mut self, slot: usize, event: usize) -> Result<(), ()> {
        self.puts += 1;
        if self.refuse_each > 0 && self.puts.is_multiple_of(self.refuse_each) {
            return Err(());
        }
        self.running[slot] = event;
        Ok(())
    }
}

fn slots(rotation: &Rotation, refuse_each: u64) -> Recorder {
    Recorder {
        running: rotation.slots().to_vec(),
        puts: 0,
        refuse_each,
    }
}

#[test]
fn turns_go_round() {
    let pinned = [false, true, false, false, false];
    let mut rotation = Rotation::new(&pinned, 3, 1).expect("they fit");
    rotation.start(100);
    let mut slots = slots(&rotation, 0);
    assert_eq!(rotation.slots(), [1, 2, 3]);
    assert!(rotation.takes_turns());
    rotation.rotate(110, &mut slots).unwrap();
    assert_eq!(rotation.slots(), [1, 4, 0]);
    rotation.rotate(130, &mut slots).unwrap();
    assert_eq!(rotation.slots(), [1, 2, 3]);
    assert_eq!(slots.running, rotation.slots());
    let ran = |event| rotation.ran_ns(event, 135);
    assert_eq!([0, 1, 2, 3, 4].map(ran), [20, 35, 15, 15, 20]);
}

#[test]
fn what_fits_stays() {
    let mut rotation = Rotation::new(&[false; 3], 4, 7).expect("they fit");
    rotation.start(0);
    let mut slots = slots(&rotation, 0);
    assert!(!rotation.takes_turns());
    rotation.rotate(50, &mut slots).unwrap();
    assert_eq!((slots.puts, rotation.ran_ns(2, 60)), (0, 60));
}

#[test]
fn too_many_pinned_events_are_refused() {
    let refused = Rotation::new(&[true; 4], 3, 0).unwrap_err();
    assert_eq!(
        refused,
        TooManyPinned {
            pinned: 4,
            slots: 3
        }
    );
    assert_eq!(refused.to_string(), "4 pinned events for 3 slots");
}

proptest! {
    #[test]
    fn turns_are_fair(
        pinned in proptest::collection::vec(any::<bool>(), 0..12),
        slots_there in 1usize..6,
        first in 0usize..20,
        turns in 1u64..60,
        refuse_each in 0u64..5,
    ) {
        let Ok(mut rotation) = Rotation::new(&pinned, slots_there, first) else {
            prop_assert!(pinned.iter().filter(|pinned| **pinned).count() > slots_there);
            return Ok(());
        };
        rotation.start(0);
        let fixed: Vec<usize> = (0..pinned.len()).filter(|event| pinned[*event]).collect();
        let mut slots = slots(&rotation, refuse_each);
        for turn in 1..=turns {
            let _ = rotation.rotate(turn * 10, &mut slots);
            prop_assert_eq!(&slots.running, rotation.slots());
            prop_assert_eq!(&rotation.slots()[..fixed.len()], &fixed[..]);
            let running: HashSet<usize> = rotation.slots().iter().copied().collect();
            prop_assert_eq!(running.len(), slots_there.min(pinned.len()));
        }
        // Each slot always ran one event.
        let now = turns * 10;
        let ran: Vec<u64> = (0..pinned.len()).map(|event| rotation.ran_ns(event, now)).collect();
        prop_assert_eq!(ran.iter().sum::<u64>(), now * rotation.slots().len() as u64);
        let flexible = (0..pinned.len()).filter(|event| !pinned[*event]);
        let flexible: Vec<u64> = flexible.map(|event| ran[event]).collect();
        if refuse_each == 0 && let (Some(least), Some(most)) = (flexible.iter().min(), flexible.iter().max()) {
            prop_assert!(most - least <= 10, "{:?}", flexible);
        }
    }
}
