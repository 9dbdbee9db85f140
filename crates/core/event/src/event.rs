//! An event that a user requests.
//!
//! ```text
//! EVENT = SPEC                      a function ([`crate::spec`])
//!       | "mem:" MEMORY             a variable ([`crate::memory`])
//!       | "ulock:*"                 contended locks of programs
//!       | "ulock:" LOCK "/hold/"    contended locks of programs, and how long LOCK is held
//!       | "klock:*"                 contended locks of the kernel
//!       | "klock:mmap_lock"         waits for mmap_lock
//!       | "klock:mmap_lock/every/"  all acquisitions of mmap_lock
//!       | "scope:*"                 the scopes (named pieces of work) that a program enters
//!       | GROUP                     counters ([`crate::counter`])
//! ```

use core::fmt;

use crate::counter::{CounterError, CounterGroup, counter_groups};
use crate::memory::{Memory, MemoryError};
use crate::spec::{Kind, OtherKind, ProbeSpec};
use crate::spec_parse::{SpecError, single_colon};

/// What one event observes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A function's entry or return.
    Probe(ProbeSpec<'a>),
    /// Accesses to a variable.
    Memory(Memory<'a>),
    /// Waits for programs' locks.
    UserLocks(UserLocks<'a>),
    /// Waits for the kernel's locks.
    KernelLocks(WaitSelection),
    /// A program's scopes.
    Scopes,
    /// A group of counters.
    Counters(CounterGroup<'a>),
}

/// The observed locks of programs: all contended locks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UserLocks<'a> {
    /// The lock whose hold times are measured: a variable, or an address.
    pub held: Option<&'a str>,
}

/// The observed waits for the kernel's locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitSelection {
    /// All contended waits.
    Contended,
    /// Contended waits for mmap_lock.
    ContendedMmap,
    /// All acquisitions of mmap_lock.
    EveryMmap,
}

impl WaitSelection {
    /// Returns the event's text.
    pub const fn event(self) -> &'static str {
        match self {
            WaitSelection::Contended => "klock:*",
            WaitSelection::ContendedMmap => "klock:mmap_lock",
            WaitSelection::EveryMmap => "klock:mmap_lock/every/",
        }
    }

    fn of_event(event: &str) -> Option<WaitSelection> {
        let all = [Self::Contended, Self::ContendedMmap, Self::EveryMmap];
        all.into_iter().find(|one| one.event() == event)
    }
}

/// Why a text is no event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventError<'a> {
    /// A wrong probe.
    Probe(SpecError),
    /// A wrong variable.
    Memory(MemoryError),
    /// A wrong counter.
    Counter(CounterError<'a>),
    /// Several groups of counters in one event.
    SeveralGroups,
    /// An event that is not supported yet.
    NotYet(&'a str),
}

impl fmt::Display for EventError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EventError::Probe(error) => error.fmt(f),
            EventError::Memory(error) => error.fmt(f),
            EventError::Counter(error) => error.fmt(f),
            EventError::SeveralGroups => f.write_str("several groups of counters"),
            EventError::NotYet(text) => write!(f, "'{}' is not there yet", text.escape_debug()),
        }
    }
}

impl core::error::Error for EventError<'_> {}

impl<'a> Event<'a> {
    /// Parses an event. A text without a kind is a group of counters.
    pub fn parse(text: &'a str) -> Result<Event<'a>, EventError<'a>> {
        let named = single_colon(text, 0).map(|colon| (&text[..colon], &text[colon + 1..]));
        let Some((word, rest)) = named else {
            return counters(text);
        };
        match OtherKind::of_word(word) {
            Some(OtherKind::Mem) => Memory::parse(rest)
                .map(Event::Memory)
                .map_err(EventError::Memory),
            Some(OtherKind::Ulock) => match (rest, rest.strip_suffix("/hold/")) {
                ("*", _) => Ok(Event::UserLocks(UserLocks::default())),
                (_, Some(lock)) if !lock.is_empty() => {
                    Ok(Event::UserLocks(UserLocks { held: Some(lock) }))
                }
                _ => Err(EventError::NotYet(text)),
            },
            Some(OtherKind::Klock) => WaitSelection::of_event(text)
                .map(Event::KernelLocks)
                .ok_or(EventError::NotYet(text)),
            Some(OtherKind::Usdt) => Err(EventError::NotYet(text)),
            None if text == SCOPES => Ok(Event::Scopes),
            None if Kind::of_word(word).is_some() => ProbeSpec::parse(text)
                .map(Event::Probe)
                .map_err(EventError::Probe),
            None => counters(text),
        }
    }
}

const SCOPES: &str = "scope:*";

fn counters(text: &str) -> Result<Event<'_>, EventError<'_>> {
    let mut groups = counter_groups(text);
    let first = groups.next().ok_or(EventError::NotYet(text))?;
    let group = first.map_err(EventError::Counter)?;
    match groups.next() {
        None => Ok(Event::Counters(group)),
        Some(_) => Err(EventError::SeveralGroups),
    }
}
