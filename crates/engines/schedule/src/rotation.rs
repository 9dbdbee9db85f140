//! Living events that are moved from one purpose to the next: whose turn it is.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;

/// What the slots are of.
pub trait Slots {
    /// Why a slot could not be given away.
    type Error;

    /// Has a slot run another event from now on; where that fails it runs the same as before.
    fn put(&mut self, slot: usize, event: usize) -> Result<(), Self::Error>;
}

/// More pinned events than slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyPinned {
    /// Events that are to keep a slot.
    pub pinned: usize,
    /// Slots that there are.
    pub slots: usize,
}

impl fmt::Display for TooManyPinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} pinned events for {} slots", self.pinned, self.slots)
    }
}

impl core::error::Error for TooManyPinned {}

/// What is to be served, by numbers from 0 on. Times are in ns, of any clock that does not go back.
#[derive(Clone, Debug)]
pub struct Rotation {
    events: Vec<Event>,
    /// What each slot runs: pinned ones first.
    slots: Vec<usize>,
    pinned: usize,
    /// Flexible slots, the one that has run the same for longest first.
    running: VecDeque<usize>,
    /// Flexible events that do not run, the one that has waited longest first.
    waiting: VecDeque<usize>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Event {
    /// It runs since then.
    since_ns: Option<u64>,
    /// What it ran before that.
    ran_ns: u64,
}

impl Rotation {
    /// Events of which these are pinned, for so many slots. Flexible ones begin with the `first` of them, so that not
    /// always the same ones see a program's beginning.
    /// Nothing runs before [`Rotation::start`].
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
            events: alloc::vec![Event::default(); running.len() + waiting.len()],
            running: (pinned..running.len()).collect(),
            slots: running,
            pinned,
            waiting,
        })
    }

    /// All that have a slot run from now on.
    pub fn start(&mut self, now_ns: u64) {
        for event in &self.slots {
            self.events[*event].since_ns = Some(now_ns);
        }
    }

    /// What each slot runs.
    pub fn slots(&self) -> &[usize] {
        &self.slots
    }

    /// Whether events take turns: none has to where all have a slot.
    pub fn takes_turns(&self) -> bool {
        !self.waiting.is_empty() && self.pinned < self.slots.len()
    }

    /// Gives the slots of those that ran longest to those that waited longest, as many as wait. Where a slot cannot
    /// be given away it stays as it is, and so do those behind it.
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

    /// For how long an event ran until now.
    pub fn ran_ns(&self, event: usize, now_ns: u64) -> u64 {
        self.events.get(event).map_or(0, |event| {
            let since = event
                .since_ns
                .map_or(0, |since| now_ns.saturating_sub(since));
            event.ran_ns + since
        })
    }
}
