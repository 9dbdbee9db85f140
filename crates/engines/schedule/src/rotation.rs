use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;

/// The slots of a rotation.
pub trait Slots {
    /// Why a slot cannot be changed.
    type Error;

    /// Makes a slot run another event. On failure the slot must keep its old event.
    fn put(&mut self, slot: usize, event: usize) -> Result<(), Self::Error>;
}

/// More events are pinned than there are slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyPinned {
    /// The number of pinned events.
    pub pinned: usize,
    /// The number of slots.
    pub slots: usize,
}

impl fmt::Display for TooManyPinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} pinned events for {} slots", self.pinned, self.slots)
    }
}

impl core::error::Error for TooManyPinned {}

/// Lets numbered events take turns in slots; pinned events keep theirs. Times are in ns of any clock that never goes
/// back.
#[derive(Clone, Debug)]
pub struct Rotation {
    events: Vec<RotatedEvent>,
    /// Each slot's event; pinned events first.
    slots: Vec<usize>,
    pinned: usize,
    /// Flexible slots, the longest running first.
    running: VecDeque<usize>,
    /// Events without a slot, the longest waiting first.
    waiting: VecDeque<usize>,
}

#[derive(Clone, Copy, Debug, Default)]
struct RotatedEvent {
    since_ns: Option<u64>,
    /// How long the event ran in earlier turns.
    ran_ns: u64,
}

impl Rotation {
    /// Returns a rotation that runs nothing yet. Of n flexible events, number `first` modulo n gets a slot first, so
    /// that callers can vary which event sees a program's start.
    pub fn new(pinned: &[bool], slots: usize, first: usize) -> Result<Rotation, TooManyPinned> {
        let numbers = |wanted| {
            let numbered = pinned.iter().enumerate();
            numbered.filter_map(move |(event, pinned)| (*pinned == wanted).then_some(event))
        };
        let mut running: Vec<usize> = numbers(true).collect();
        if running.len() > slots {
            let pinned = running.len();
            return Err(TooManyPinned { pinned, slots });
        }
        let mut waiting: VecDeque<usize> = numbers(false).collect();
        let turn = first.checked_rem(waiting.len()).unwrap_or(0);
        waiting.rotate_left(turn);
        let pinned = running.len();
        let room = waiting.len().min(slots - pinned);
        running.extend(waiting.drain(..room));
        Ok(Rotation {
            events: alloc::vec![RotatedEvent::default(); running.len() + waiting.len()],
            running: (pinned..running.len()).collect(),
            slots: running,
            pinned,
            waiting,
        })
    }

    /// Starts the events that have slots.
    pub fn start(&mut self, now_ns: u64) {
        for event in &self.slots {
            self.events[*event].since_ns = Some(now_ns);
        }
    }

    /// Returns each slot's event.
    pub fn slots(&self) -> &[usize] {
        &self.slots
    }

    /// Returns whether events take turns.
    pub fn takes_turns(&self) -> bool {
        !self.waiting.is_empty() && self.pinned < self.slots.len()
    }

    /// Gives the slots of the longest running events to the longest waiting events. If a slot cannot be changed, this
    /// and later slots keep their events.
    pub fn rotate<S: Slots>(&mut self, now_ns: u64, to: &mut S) -> Result<(), S::Error> {
        for _ in 0..self.running.len().min(self.waiting.len()) {
            let (Some(&slot), Some(&event)) = (self.running.front(), self.waiting.front()) else {
                break;
            };
            to.put(slot, event)?;
            self.running.rotate_left(1);
            self.waiting.pop_front();
            let left = core::mem::replace(&mut self.slots[slot], event);
            self.waiting.push_back(left);
            self.events[left].ran_ns = self.ran_ns(left, now_ns);
            self.events[left].since_ns = None;
            self.events[event].since_ns = Some(now_ns);
        }
        Ok(())
    }

    /// Returns how long an event has run.
    pub fn ran_ns(&self, event: usize, now_ns: u64) -> u64 {
        self.events.get(event).map_or(0, |event| {
            let since = event
                .since_ns
                .map_or(0, |since| now_ns.saturating_sub(since));
            event.ran_ns + since
        })
    }
}
