//! One event's results, and what was refused.

use serde::{Deserialize, Serialize};
use tiptoe_event::{Reading, Via};

/// One event: what it is and what it counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Event {
    /// The resolved spec, such as `uprobe:redis-server:dictFind`.
    pub event: String,
    /// Who counted.
    #[serde(with = "crate::words")]
    pub via: Via,
    /// The hits that were counted; never scaled here.
    pub count: u64,
    /// Hits that are known to have happened and were not counted.
    pub lost: u64,
    /// How long the event was asked for.
    pub time_enabled_ns: u64,
    /// How long it really counted.
    pub time_running_ns: u64,
    /// What its hits added to the target's CPU time.
    pub cost_ns: f64,
    /// Other names of the same code.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// What the reader should know about this event, each a few words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The count split by thread or comm, where that was asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub by: Vec<Part>,
}

impl Event {
    /// An event and its reading, at no cost yet.
    pub fn new(event: impl Into<String>, via: Via, reading: Reading) -> Event {
        Event {
            event: event.into(),
            via,
            count: reading.count,
            lost: reading.lost,
            time_enabled_ns: reading.time_enabled_ns,
            time_running_ns: reading.time_running_ns,
            ..Event::default()
        }
    }

    /// Its counts and times.
    pub fn reading(&self) -> Reading {
        Reading {
            count: self.count,
            lost: self.lost,
            time_enabled_ns: self.time_enabled_ns,
            time_running_ns: self.time_running_ns,
            latency: None,
        }
    }

    /// The count as it would be, had it counted all the time it was asked for.
    pub fn scaled(&self) -> u64 {
        self.reading().scaled().unwrap_or(self.count)
    }
}

/// A part of a count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Part {
    /// Whose part: a thread, a comm, an event.
    pub key: String,
    /// How many of the hits.
    pub count: u64,
}

impl Part {
    /// A part of a count.
    pub fn new(key: impl Into<String>, count: u64) -> Part {
        Part {
            key: key.into(),
            count,
        }
    }
}

/// What was asked for and not done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Refusal {
    /// The resolved spec, or the spec as given where it resolved to nothing.
    pub event: String,
    /// Why: the same words for the same reason, so that reports can group by it.
    pub reason: String,
}

impl Refusal {
    /// A refusal of an event for a reason.
    pub fn new(event: impl Into<String>, reason: impl Into<String>) -> Refusal {
        Refusal {
            event: event.into(),
            reason: reason.into(),
        }
    }
}
