//! Counters by perf's names: `cycles,{instructions,branches}:u,page-faults,sched:sched_switch:k`.
//!
//! ```text
//! LIST     = ITEM {"," ITEM}
//! ITEM     = EVENT | "{" EVENT {"," EVENT} "}" [":" MODIFIERS]
//! EVENT    = NAME [":" MODIFIERS] | PMU "/" TERMS "/" [[":"] MODIFIERS]
//! NAME     = one of `perf list` | "r" HEX | GROUP ":" TRACEPOINT
//! ```
//!
//! Names with the same number on every machine become that number. Others (tracepoints, terms of PMUs) stay text.
//! Everything borrows the list, so nothing is allocated.

use core::fmt;

mod modifiers;
mod names;
mod parse;
mod suggestions;

pub use modifiers::Modifiers;
pub use names::counter_names;
pub use suggestions::{NEAR, nearest, nearest_of};

/// The kind of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CounterKind<'a> {
    /// A generic hardware event: the number in `config`.
    Hardware(u64),
    /// A generic cache event: the number in `config`.
    Cache(u64),
    /// A software event: the number in `config`.
    Software(u64),
    /// A raw event: the CPU's own number.
    Raw(u64),
    /// An event to look up in tracefs.
    Tracepoint {
        /// The folder of events, such as `sched`.
        group: &'a str,
        /// The event in that folder.
        name: &'a str,
    },
    /// An event to look up in /sys/bus/event_source/devices.
    Pmu {
        /// The folder of the PMU.
        pmu: &'a str,
        /// The text between the slashes: an event's name, or `term=value` and commas.
        terms: &'a str,
    },
}

impl CounterKind<'_> {
    /// Returns whether the event may need one of a CPU's few hardware counters.
    pub fn needs_slot(&self) -> bool {
        !matches!(self, Self::Software(_) | Self::Tracepoint { .. })
    }
}

/// One event of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Counter<'a> {
    /// The event's text as given, with its modifiers.
    pub text: &'a str,
    /// The event's text without its modifiers.
    pub name: &'a str,
    /// What is counted.
    pub kind: CounterKind<'a>,
    /// The modifiers, those of its group included: where the event counts and how.
    pub modifiers: Modifiers,
    /// Whether some modifiers come from its group, not from `text`.
    pub is_modified_by_group: bool,
}

/// Events that count together or not at all, one at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CounterGroup<'a> {
    events: &'a str,
    is_braced: bool,
    modifiers: Modifiers,
}

impl<'a> CounterGroup<'a> {
    /// Returns the events, the leader first.
    pub fn events(&self) -> impl Iterator<Item = Counter<'a>> + use<'a> {
        // INVARIANT: `parse::group` makes no group whose events have an error.
        parse::events(self.events, self.modifiers).filter_map(Result::ok)
    }

    /// Returns whether the group was written in braces.
    pub fn is_braced(&self) -> bool {
        self.is_braced
    }

    /// Returns whether its leader, and so the group, is pinned.
    pub fn is_pinned(&self) -> bool {
        let leader = self.events().next();
        leader.is_some_and(|leader| leader.modifiers.pinned)
    }
}

/// Parses a list, group by group. The first error is the last item.
pub fn counter_groups(
    list: &str,
) -> impl Iterator<Item = Result<CounterGroup<'_>, CounterError<'_>>> {
    parse::items(list).map(|item| parse::group(item?))
}

/// An error in a list of counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CounterFault {
    /// Nothing between two commas.
    NoEvent,
    /// A brace closed before it is open, or inside another.
    Braces,
    /// A brace or slash is not closed.
    NotClosed,
    /// Text other than `:MODIFIERS` follows a group.
    AfterGroup,
    /// A letter that is no modifier.
    NoModifier(char),
    /// Nothing follows the colon.
    ModifierMissing,
    /// No event has this name.
    Unknown,
}

/// A list of counters with an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CounterError<'a> {
    /// The wrong part; for an unknown event its name.
    pub text: &'a str,
    /// The error.
    pub fault: CounterFault,
}

impl CounterError<'_> {
    /// Returns the known names nearest to an unknown one, nearest first.
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
            CounterFault::AfterGroup => write!(f, "'{text}': only modifiers may follow a group"),
            CounterFault::NoModifier(letter) => {
                write!(f, "'{text}': no modifier '{}'", letter.escape_debug())
            }
            CounterFault::ModifierMissing => {
                write!(f, "'{text}': a modifier is missing after ':'")
            }
            CounterFault::Unknown => write!(f, "no event '{text}'"),
        }
    }
}

impl core::error::Error for CounterError<'_> {}
