//! Counters by perf's names: `cycles,{instructions,branches}:u,page-faults,sched:sched_switch:k`.
//!
//! ```text
//! LIST     = ITEM {"," ITEM}
//! ITEM     = EVENT | "{" EVENT {"," EVENT} "}" [":" MODIFIERS]
//! EVENT    = NAME [":" MODIFIERS] | PMU "/" TERMS "/" [[":"] MODIFIERS]
//! NAME     = one of `perf list` | "r" HEX | GROUP ":" TRACEPOINT
//! ```
//!
//! A name that stands for a number the same on every machine becomes that number here; what a machine has to be
//! asked for (tracepoints, and the terms of its PMUs) stays text. Nothing is allocated: everything borrows the list.

use core::fmt;

mod modifiers;
mod names;
mod near;
mod parse;

pub use modifiers::Modifiers;
pub use names::counter_names;
pub use near::{NEAR, nearest, nearest_of};

/// What is to be counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CounterKind<'a> {
    /// One of the generic hardware events: the number in `config`.
    Hardware(u64),
    /// One of the generic events of caches: the number in `config`.
    Cache(u64),
    /// Counted by the kernel itself: the number in `config`.
    Software(u64),
    /// The CPU's own number.
    Raw(u64),
    /// To be looked up in tracefs.
    Tracepoint {
        /// The folder of events, such as `sched`.
        group: &'a str,
        /// The event in it.
        name: &'a str,
    },
    /// To be looked up in /sys/bus/event_source/devices.
    Pmu {
        /// The folder there.
        pmu: &'a str,
        /// What stands between the slashes: an event's name, or `term=value` and commas.
        terms: &'a str,
    },
}

impl CounterKind<'_> {
    /// Whether it takes one of a CPU's few counters.
    pub fn needs_slot(&self) -> bool {
        !matches!(self, Self::Software(_) | Self::Tracepoint { .. })
    }
}

/// One event of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Counter<'a> {
    /// As it was given, with its modifiers.
    pub text: &'a str,
    /// The same without them.
    pub name: &'a str,
    /// What is counted.
    pub kind: CounterKind<'a>,
    /// Where and how; those of its group are in them.
    pub modifiers: Modifiers,
    /// Some of them stand behind its group, and not in `text`.
    pub is_modified_by_group: bool,
}

/// Events that count together or not at all; a single event is a group of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CounterGroup<'a> {
    /// What is between the braces.
    events: &'a str,
    /// There were braces.
    is_braced: bool,
    /// What stood behind them.
    modifiers: Modifiers,
}

impl<'a> CounterGroup<'a> {
    /// The events, the leader first.
    pub fn events(&self) -> impl Iterator<Item = Result<Counter<'a>, CounterError<'a>>> + use<'a> {
        let of_group = self.modifiers;
        parse::items(self.events).map(move |item| {
            let mut event = parse::event(item?)?;
            let all = event.modifiers.and(of_group);
            event.is_modified_by_group = all != event.modifiers;
            event.modifiers = all;
            Ok(event)
        })
    }

    /// Whether it was given in braces.
    pub fn is_braced(&self) -> bool {
        self.is_braced
    }

    /// Whether it gives way to nobody: as its leader is.
    pub fn is_pinned(&self) -> bool {
        let leader = self.events().next();
        leader.is_some_and(|leader| leader.is_ok_and(|leader| leader.modifiers.pinned))
    }
}

/// Reads a list, group by group.
///
/// The first mistake is the last item. A group's own mistakes are told by [`CounterGroup::events`].
pub fn counter_groups(
    list: &str,
) -> impl Iterator<Item = Result<CounterGroup<'_>, CounterError<'_>>> {
    parse::items(list).map(|item| parse::group(item?))
}

/// What is wrong with a list of counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CounterFault {
    /// Nothing between two commas.
    NoEvent,
    /// A brace that is closed before it is open, or one within another.
    Braces,
    /// A brace or slash that is not closed.
    NotClosed,
    /// Something behind a group that is no `:MODIFIERS`.
    BehindGroup,
    /// A letter that is no modifier.
    NoModifier(char),
    /// Nothing behind the colon.
    ModifierMissing,
    /// A name that nothing has.
    Unknown,
}

/// A list of counters that could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CounterError<'a> {
    /// The part that makes no sense: of an unknown event its name.
    pub text: &'a str,
    /// What is wrong with it.
    pub fault: CounterFault,
}

impl CounterError<'_> {
    /// The names that an unknown one is nearest to, the nearest first.
    pub fn nearest(&self) -> [Option<&'static str>; NEAR] {
        match self.fault {
            CounterFault::Unknown => nearest(self.text),
            _ => [None; NEAR],
        }
    }
}

impl fmt::Display for CounterError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.text.escape_debug();
        match self.fault {
            CounterFault::NoEvent => write!(f, "'{text}': an event is missing"),
            CounterFault::Braces => write!(f, "'{text}': the braces do not match"),
            CounterFault::NotClosed => write!(f, "'{text}': a brace or slash is not closed"),
            CounterFault::BehindGroup => write!(f, "'{text}': only modifiers go behind a group"),
            CounterFault::NoModifier(letter) => {
                write!(f, "'{text}': no modifier '{}'", letter.escape_debug())
            }
            CounterFault::ModifierMissing => {
                write!(f, "'{text}': a modifier is missing behind ':'")
            }
            CounterFault::Unknown => write!(f, "no event '{text}'"),
        }
    }
}

impl core::error::Error for CounterError<'_> {}
