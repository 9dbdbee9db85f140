//! The waits of the loop that runs a trace.

use std::time::Duration;

use tiptoe_attach::doorbell::{self, Bell};
use tiptoe_sys::host::ends::Ends;

use super::{TICK, Targets};

/// After this many waits in a row that an agent (tiptoe's library) ended by its doorbell, doorbells are answered only
/// once per [`FLOOD_PAUSE`].
const RINGS: u32 = 1000;
const FLOOD_PAUSE: Duration = Duration::from_millis(5);

pub(super) struct Wakes {
    ends: Ends,
    rings: u32,
}

impl Wakes {
    pub(super) fn of(targets: &Targets) -> Wakes {
        Wakes {
            ends: targets.ends(),
            rings: 0,
        }
    }

    /// Waits until a process ends, a signal arrives, an agent rings, or `time` passes. A doorbell is a futex, and no
    /// system call waits for futexes and descriptors together. So the end of a process or a signal does not end a wait
    /// for doorbells, which lasts at most [`TICK`].
    pub(super) fn wait(&mut self, targets: &Targets, time: Duration) {
        let bells: Vec<Bell<'_>> = targets.bells().collect();
        match (bells.is_empty(), self.is_flooded()) {
            (true, _) => self.ends.wait(time),
            (_, true) => self.ends.wait(time.min(FLOOD_PAUSE)),
            _ => doorbell::wait(&bells, time.min(TICK)),
        }
        self.note_pause(doorbell::is_rung(&bells));
    }

    fn is_flooded(&self) -> bool {
        self.rings >= RINGS
    }

    fn note_pause(&mut self, was_rung: bool) {
        self.rings = match was_rung {
            true => self.rings.saturating_add(1),
            false => 0,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_rings_is_answered_in_turns_until_it_is_quiet() {
        let mut wakes = Wakes::of(&Targets::default());
        for _ in 0..RINGS {
            assert!(!wakes.is_flooded());
            wakes.note_pause(true);
        }
        assert!(wakes.is_flooded());
        wakes.note_pause(true);
        assert!(wakes.is_flooded());
        wakes.note_pause(false);
        assert!(!wakes.is_flooded());
    }
}
