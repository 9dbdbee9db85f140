//! One event's results, and what was refused.

use serde::{Deserialize, Serialize};
use tiptoe_event::{Histogram as Times, Reading, Via};

use crate::{Ends, Latency, Records};

/// One event: what it is and what it counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Event {
    /// The resolved spec, such as `uprobe:redis-server:dictFind`.
    pub event: String,
    /// Who counted.
    #[serde(with = "crate::words")]
    pub via: Via,
    /// The hits that were counted, which are its returns where those were asked
    /// for; never scaled here.
    pub count: u64,
    /// Hits that are known to have happened and were not counted.
    pub lost: u64,
    /// There were at least so many hits: it counted for a part of the time, from which nothing follows for the rest.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub at_least: bool,
    /// How long the event was asked for.
    pub time_enabled_ns: u64,
    /// How long it really counted.
    pub time_running_ns: u64,
    /// What its hits added to the target's CPU time.
    pub cost_ns: f64,
    /// How its calls ended, where they were followed to their return. Its keys
    /// stand beside those of the event.
    #[serde(flatten)]
    pub ends: Option<Ends>,
    /// How long they took, where they were timed too. Its keys stand there as well.
    #[serde(flatten)]
    pub latency: Option<Box<Latency>>,
    /// What became of its calls, where records were asked for. Its keys as well.
    #[serde(flatten)]
    pub records: Option<Records>,
    /// Other names of the same code.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// What the reader should know about this event, each a few words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The count split by thread, comm or first argument, where that was asked for.
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
            at_least: reading.at_least,
            time_enabled_ns: reading.time_enabled_ns,
            time_running_ns: reading.time_running_ns,
            ends: reading.ends.map(Ends::from),
            latency: timed(reading, &Times::default()),
            records: reading.records.map(Records::from),
            ..Event::default()
        }
    }

    /// With how long its calls took. They stay as they are where none was timed.
    #[must_use]
    pub fn with_histogram(mut self, times: &Times) -> Event {
        self.latency = timed(self.reading(), times);
        self
    }

    /// Its counts and times.
    pub fn reading(&self) -> Reading {
        Reading {
            count: self.count,
            lost: self.lost,
            at_least: self.at_least,
            time_enabled_ns: self.time_enabled_ns,
            time_running_ns: self.time_running_ns,
            ends: self.ends.map(Into::into),
            latency: self.latency.as_ref().map(|latency| latency.reading()),
            records: self.records.map(Into::into),
        }
    }

    /// The count as it would be, had it counted all the time it was asked for.
    pub fn scaled(&self) -> u64 {
        self.reading().scaled().unwrap_or(self.count)
    }
}

fn timed(reading: Reading, times: &Times) -> Option<Box<Latency>> {
    let latency = reading.latency?;
    Some(Box::new(Latency::new(latency, times)))
}

/// A part of a count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Part {
    /// Whose part: a thread, a comm, an argument (see [`argument_key`]), an event.
    pub key: String,
    /// How many of the hits.
    pub count: u64,
    /// There were at least so many.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub at_least: bool,
    /// How its calls ended, where they were followed; its keys stand beside these.
    #[serde(flatten)]
    pub ends: Option<Ends>,
    /// How long they took, where they were timed too; its keys as well.
    #[serde(flatten)]
    pub latency: Option<Box<Latency>>,
}

impl Part {
    /// A part of a count.
    pub fn new(key: impl Into<String>, count: u64) -> Part {
        Part {
            key: key.into(),
            count,
            at_least: false,
            ends: None,
            latency: None,
        }
    }

    /// With how its calls ended.
    #[must_use]
    pub fn with_ends(self, ends: Ends) -> Part {
        Part {
            ends: Some(ends),
            ..self
        }
    }

    /// With how long its calls took.
    #[must_use]
    pub fn with_latency(self, latency: Latency) -> Part {
        Part {
            latency: Some(Box::new(latency)),
            ..self
        }
    }
}

/// The key of the calls whose argument had a value that its thread had no room for.
pub const OTHER_VALUES: &str = "(other values)";

/// The key of the calls whose argument had this value: `arg0=42`, `arg0=-1`, and
/// anything that could be an address or a set of flags as `arg0=0x7f12a0`.
pub fn argument_key(argument: u8, value: u64) -> String {
    const SMALL: i64 = 1 << 16;
    match value as i64 {
        small if (-SMALL..=SMALL).contains(&small) => format!("arg{argument}={small}"),
        _ => format!("arg{argument}={value:#x}"),
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
