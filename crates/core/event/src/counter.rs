//! Counters by perf's names: `cycles,{instructions,branches}:u,page-faults,sched:sched_switch:k`.
//!
//! ```text
//! LIST     = ITEM {"," ITEM}
//! ITEM     = EVENT | "{" EVENT {"," EVENT} "}" [":" MODIFIERS]
//! EVENT    = NAME [":" MODIFIERS] | PMU "/" TERMS "/" [[":"] MODIFIERS]
//! NAME     = one of `perf list` | "r" HEX | GROUP ":" TRACEPOINT
//! ```

use core::fmt;

mod modifiers;
mod names;
mod parse;
mod suggestions;

pub use modifiers::Modifiers;
pub use names::counter_names;
pub use suggestions::{NEAR, nearest, nearest_of};

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CounterKind<'a> {
    /// A generic hardware event's number.
    Hardware(u64),
    /// A generic cache event's number.
    Cache(u64),
    /// A software event's number.
    Software(u64),
    /// The CPU's own number of an event.
    Raw(u64),
    /// A tracepoint, to look up in tracefs.
    Tracepoint {
        /// The folder, such as `sched`.
        group: &'a str,
        /// The event.
        name: &'a str,
    },
    /// An event of a PMU, to look up in /sys/bus/event_source/devices.
    Pmu {
        /// The PMU.
        pmu: &'a str,
        /// The text between the slashes.
        terms: &'a str,
    },
}

impl CounterKind<'_> {
    /// Returns whether the event may need a hardware counter.
    pub fn needs_slot(&self) -> bool {
        !matches!(self, Self::Software(_) | Self::Tracepoint { .. })
    }
}

/// One event of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Counter<'a> {
    /// The text as given, with modifiers.
    pub text: &'a str,
    /// The text without modifiers.
    pub name: &'a str,
    /// What is counted.
    pub kind: CounterKind<'a>,
    /// The event's own modifiers and its group's.
    pub modifiers: Modifiers,
    /// Whether the group adds modifiers.
    pub is_modified_by_group: bool,
}

/// Events that count together or not at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CounterGroup<'a> {
    events: &'a str,
    modifiers: Modifiers,
}

impl<'a> CounterGroup<'a> {
    /// Returns at least one event, the leader first.
    pub fn events(&self) -> impl Iterator<Item = Counter<'a>> + use<'a> {
        // INVARIANT: `parse::group` makes no group whose events have an error.
        parse::events(self.events, self.modifiers).filter_map(Result::ok)
    }

    /// Returns whether the leader is pinned.
    pub fn is_pinned(&self) -> bool {
        let leader = self.events().next();
        leader.is_some_and(|leader| leader.modifiers.pinned)
    }
}

/// Parses a list, group by group, up to the first error.
pub fn counter_groups(
    list: &str,
) -> impl Iterator<Item = Result<CounterGroup<'_>, CounterError<'_>>> {
    parse::items(list).map(|item| parse::group(item?))
}

/// What is wrong in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CounterFault {
    /// Nothing between two commas.
    NoEvent,
    /// A misplaced brace.
    Braces,
    /// A brace or slash is not closed.
    NotClosed,
    /// A text that is not `:MODIFIERS` follows a group.
    AfterGroup,
    /// The letter is no modifier.
    NoModifier(char),
    /// Nothing follows the colon.
    ModifierMissing,
    /// No event has this name.
    Unknown,
}

/// An error in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CounterError<'a> {
    /// The wrong part, or the unknown name.
    pub text: &'a str,
    /// The error.
    pub fault: CounterFault,
}

impl CounterError<'_> {
    /// Returns the names nearest to an unknown one.
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
