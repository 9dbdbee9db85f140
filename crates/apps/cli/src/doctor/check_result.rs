//! A check's result: whether a thing works, what instruments lose without it, and what enables it.

use std::fmt;

use clap::ValueEnum;
use serde::Serialize;

/// An instrument, by its subcommand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Instrument {
    /// Functions of programs
    Probe,
    /// Accesses to variables
    Watch,
    /// Waits for locks
    Lock,
    /// Counts of events by perf's names
    Stat,
}

/// The result of a check.
// The variants must be ordered from best to worst, because [`CheckResult::lacks`] keeps the greater of two states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// The checked thing works.
    Ok,
    /// A part of the checked thing works, or it works in a worse way.
    Part,
    /// The checked thing does not work.
    No,
}

/// What an instrument loses without the checked thing.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Limit {
    /// The instrument.
    pub instrument: Instrument,
    /// The loss, in words.
    pub effect: &'static str,
}

/// What enables a missing thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fix {
    /// Text for the user, on which `--fix` does not act.
    Advice(String),
    /// A command that `--fix` runs.
    ///
    /// INVARIANT: the command is constant, because root runs it, and text from this machine, such as a path, could be
    /// crafted to do harm.
    Command(&'static [&'static str]),
}

/// One line of the table, and what enables the missing thing.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CheckResult {
    /// The name of the checked thing.
    pub name: &'static str,
    /// Whether the checked thing works.
    pub state: State,
    /// What was found, in words.
    pub found: String,
    /// What instruments lose without the checked thing.
    pub limits: Vec<Limit>,
    /// What enables the checked thing: a command, or advice in words; `null` if it works, or if nothing can enable it.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub fix: Option<Fix>,
}

impl fmt::Display for Fix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fix::Advice(words) => f.write_str(words),
            Fix::Command(words) => write!(f, "sudo {}", words.join(" ")),
        }
    }
}

impl Serialize for Fix {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Instrument {
    pub fn name(self) -> &'static str {
        match self {
            Self::Probe => "probe",
            Self::Watch => "watch",
            Self::Lock => "lock",
            Self::Stat => "stat",
        }
    }
}

impl CheckResult {
    pub(super) fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self {
            name,
            state: State::Ok,
            found: found.into(),
            limits: Vec::new(),
            fix: None,
        }
    }

    pub(super) fn lacks(self, state: State, instrument: Instrument, effect: &'static str) -> Self {
        let mut row = Self {
            state: self.state.max(state),
            ..self
        };
        row.limits.push(Limit { instrument, effect });
        row
    }

    pub(super) fn no(self, instrument: Instrument, effect: &'static str) -> Self {
        self.lacks(State::No, instrument, effect)
    }

    pub(super) fn part(self, instrument: Instrument, effect: &'static str) -> Self {
        self.lacks(State::Part, instrument, effect)
    }

    pub(super) fn fix(self, advice: impl Into<String>) -> Self {
        Self {
            fix: Some(Fix::Advice(advice.into())),
            ..self
        }
    }

    pub(super) fn root_may(self, command: &'static [&'static str]) -> Self {
        Self {
            fix: Some(Fix::Command(command)),
            ..self
        }
    }
}
