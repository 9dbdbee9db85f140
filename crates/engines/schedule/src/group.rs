use alloc::boxed::Box;

use crate::{Event, Pmu, Priority, State, Times};

/// The longest enabled time from which a group's share (the part in which it counted) is computed. Half of a longer
/// time is forgotten.
pub(crate) const MEMORY_NS: u64 = 1 << 28;

/// Each share is computed as if the group had an even share for this time before. Otherwise a new group's share of 0
/// would put it first.
pub(crate) const CREDIT_NS: u64 = 1 << 22;

pub(crate) const WHOLE: u32 = 1 << 16;

#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) number: u32,
    pub(crate) priority: Priority,
    events: Box<[Event]>,
    state: State,
    running_since: u64,
    /// The enabled time before `enabled_at`, and the running time before the last removal from the PMU.
    until: Times,
    /// How long the target had run when the group was last enabled.
    enabled_at: u64,
    /// The part of the times that is too old for the share.
    forgotten: Times,
}

impl Group {
    pub(crate) fn new(number: u32, priority: Priority, events: &[Event], own_ns: u64) -> Group {
        Group {
            number,
            priority,
            events: events.into(),
            state: State::Waiting,
            running_since: 0,
            until: Times::default(),
            enabled_at: own_ns,
            forgotten: Times::default(),
        }
    }

    pub(crate) fn weight(&self) -> u32 {
        u32::try_from(self.events.len()).unwrap_or(u32::MAX)
    }

    pub(crate) fn is_pinned(&self) -> bool {
        self.priority == Priority::Pinned
    }

    pub(crate) fn is_running(&self) -> bool {
        self.state == State::Running
    }

    pub(crate) fn is_waiting(&self) -> bool {
        self.state == State::Waiting
    }

    pub(crate) fn is_wanted(&self) -> bool {
        self.is_running() || self.is_waiting()
    }

    pub(crate) fn state(&self) -> State {
        self.state
    }

    /// Adds all events, or none if the PMU refuses one.
    pub(crate) fn put_in(&mut self, now_ns: u64, pmu: &mut impl Pmu) -> bool {
        let refused = self
            .events
            .iter()
            .position(|event| pmu.add(*event).is_err());
        if let Some(refused) = refused {
            for event in self.events.iter().take(refused).rev() {
                pmu.delete(*event);
            }
            return false;
        }
        (self.state, self.running_since) = (State::Running, now_ns);
        true
    }

    pub(crate) fn take_out(&mut self, now_ns: u64, pmu: &mut impl Pmu) {
        if self.is_running() {
            for event in self.events.iter().rev() {
                pmu.delete(*event);
            }
            self.until.running_ns += now_ns.saturating_sub(self.running_since);
            self.state = State::Waiting;
        }
    }

    /// Switches off a group that does not run, or puts it in error.
    pub(crate) fn rest(&mut self, own_ns: u64, state: State) {
        if self.is_waiting() {
            self.until.enabled_ns += own_ns.saturating_sub(self.enabled_at);
            self.state = state;
        } else if self.state == State::Error {
            self.state = state;
        }
    }

    /// Lets the group compete for slots. Returns whether it was off or in error.
    pub(crate) fn wake(&mut self, own_ns: u64) -> bool {
        let rested = !self.is_wanted();
        if rested {
            self.state = State::Waiting;
            self.enabled_at = own_ns;
        }
        rested
    }

    pub(crate) fn times(&self, own_ns: u64, now_ns: u64) -> Times {
        let mut times = self.until;
        if self.is_wanted() {
            times.enabled_ns += own_ns.saturating_sub(self.enabled_at);
        }
        if self.is_running() {
            times.running_ns += now_ns.saturating_sub(self.running_since);
        }
        times
    }

    /// Returns the part of the recent enabled time in which the group counted, in 1 / [`WHOLE`]; for a new group,
    /// `even`.
    pub(crate) fn share(&mut self, own_ns: u64, now_ns: u64, even: u32) -> u32 {
        let times = self.times(own_ns, now_ns);
        let mut enabled = times.enabled_ns - self.forgotten.enabled_ns;
        let mut running = times.running_ns - self.forgotten.running_ns;
        while enabled > MEMORY_NS {
            self.forgotten.enabled_ns += enabled / 2;
            self.forgotten.running_ns += running / 2;
            enabled -= enabled / 2;
            running -= running / 2;
        }
        let had = running * u64::from(WHOLE) + CREDIT_NS * u64::from(even);
        (had / (enabled + CREDIT_NS)).min(u64::from(WHOLE)) as u32
    }
}
