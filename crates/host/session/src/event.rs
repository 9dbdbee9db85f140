//! An event's results, and refused requests.

use serde::{Deserialize, Serialize};
use tiptoe_event::{Histogram as Times, Reading, Via};

use crate::{Ends, Histogram, Latency, Note, Records};

/// One event with its counts. In JSON the fields of `ends`, `latency` and `records` are keys of the event.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Event {
    /// The event's full name, as in `uprobe:redis-server:dictFind`.
    pub event: String,
    /// What counted the event: the agent (tiptoe's library in the target) or the kernel.
    #[serde(with = "crate::words")]
    #[cfg_attr(test, schemars(with = "crate::schema::ViaWord"))]
    pub via: Via,
    /// The counted hits, never extrapolated. For `uretprobe:`, the number of returns; for timed calls, the sum of
    /// `returns`, `left`, `inside` and `only_counted`; with `--record`, of `recorded`, `records_lost` and
    /// `only_counted`.
    pub count: u64,
    /// The number of hits that certainly happened but were not counted.
    pub lost: u64,
    /// Whether the count is a lower bound, which must not be extrapolated.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub at_least: bool,
    /// The time for which the event was enabled, as in perf.
    pub time_enabled_ns: u64,
    /// The part of `time_enabled_ns` in which the event counted.
    pub time_running_ns: u64,
    /// The CPU time that the event's hits added to the target.
    pub cost_ns: f64,
    /// How the calls ended, if they were traced to their return.
    #[serde(flatten)]
    pub ends: Option<Ends>,
    /// The times of the calls, if they were timed.
    #[serde(flatten)]
    pub latency: Option<Box<Latency>>,
    /// The numbers of recorded and of lost calls, with `--record`.
    #[serde(flatten)]
    pub records: Option<Records>,
    /// Other names of the probed function.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// Remarks for the reader.
    #[serde(rename = "typed_notes", skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<Note>,
    /// The remarks as text, which the report makes from `typed_notes` for JSON.
    #[serde(rename = "notes", skip_serializing_if = "Vec::is_empty")]
    pub sentences: Vec<String>,
    /// The parts of the count, if `--by` requests them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub by: Vec<CountPart>,
}

impl Event {
    /// Returns an event with the numbers of `reading`, without a cost.
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
            latency: reading
                .latency
                .map(|latency| Box::new(Latency::new(latency, &Times::default()))),
            records: reading.records.map(Records::from),
            ..Event::default()
        }
    }

    /// Sets the calls' histogram, if they were timed.
    #[must_use]
    pub fn with_histogram(mut self, times: &Times) -> Event {
        if let Some(latency) = &mut self.latency {
            latency.histogram = Histogram::new(times, latency.histogram.max_ns);
        }
        self
    }

    fn reading(&self) -> Reading {
        Reading {
            count: self.count,
            at_least: self.at_least,
            time_enabled_ns: self.time_enabled_ns,
            time_running_ns: self.time_running_ns,
            ..Reading::default()
        }
    }

    /// Returns whether the event counted only for a part of the requested time.
    pub fn is_partial(&self) -> bool {
        self.reading().is_partial()
    }

    /// Returns the count, extrapolated to the requested time unless it is a lower bound.
    pub fn scaled(&self) -> u64 {
        self.reading().scaled().unwrap_or(self.count)
    }
}

/// A part of a count. In JSON, `ends` and `latency` are as in [`Event`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct CountPart {
    /// What the part counts, as `--by` requests: a thread (`TID COMM`), a comm, an argument's value (`arg0=VALUE`,
    /// decimal or `0x…`) or a scope. In an interval, the key is an event. `(other threads)`, `(other values)` or
    /// `(other scopes)` is the sum of those without room in tiptoe's tables.
    pub key: String,
    /// The part's hits.
    pub count: u64,
    /// Whether the count is a lower bound.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub at_least: bool,
    /// How the part's calls ended, if they were traced.
    #[serde(flatten)]
    pub ends: Option<Ends>,
    /// The times of the part's calls, if they were timed.
    #[serde(flatten)]
    pub latency: Option<Box<Latency>>,
}

impl CountPart {
    /// Returns a part without ends and times.
    pub fn new(key: impl Into<String>, count: u64) -> CountPart {
        CountPart {
            key: key.into(),
            count,
            ..CountPart::default()
        }
    }

    /// Sets how the part's calls ended.
    #[must_use]
    pub fn with_ends(self, ends: Ends) -> CountPart {
        CountPart {
            ends: Some(ends),
            ..self
        }
    }

    /// Sets the times of the part's calls.
    #[must_use]
    pub fn with_latency(self, latency: Latency) -> CountPart {
        CountPart {
            latency: Some(Box::new(latency)),
            ..self
        }
    }
}

/// The key of calls whose thread had no room for another value.
pub const OTHER_VALUES: &str = "(other values)";

/// Returns a value's key, such as `arg0=42` or `arg0=-1`. A large value is hexadecimal (`arg0=0x7f12a0`), because it
/// may be an address or flags.
pub fn argument_key(argument: u8, value: u64) -> String {
    const SMALL: i64 = 1 << 16;
    match value as i64 {
        small if (-SMALL..=SMALL).contains(&small) => format!("arg{argument}={small}"),
        _ => format!("arg{argument}={value:#x}"),
    }
}

/// A request that could not be fulfilled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Refusal {
    /// The event's full name, or the requested name if that matched nothing.
    pub event: String,
    /// The reason. Equal reasons must have equal words, because reports group refusals by their reason.
    pub reason: String,
}

impl Refusal {
    /// Returns an event's refusal.
    pub fn new(event: impl Into<String>, reason: impl Into<String>) -> Refusal {
        Refusal {
            event: event.into(),
            reason: reason.into(),
        }
    }
}
