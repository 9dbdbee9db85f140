//! Accesses to watched variables.

use serde::{Deserialize, Serialize};

use crate::Dropped;

/// The accesses of a session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Watch {
    /// How rows are grouped besides by variable and instruction: "comm" or "thread".
    pub by: String,
    /// The variables, in the order of the request.
    pub variables: Vec<Variable>,
    /// The rows, the most accesses first.
    pub rows: Vec<Accesses>,
    /// How breakpoints were placed.
    pub form: Placement,
    /// Reservations of debug registers, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reservations: Option<Vec<Reservations>>,
    /// Other processes' accesses to the same addresses, which cost them as much.
    pub foreign: u64,
    /// Whether accesses by system calls count, too.
    pub sees_kernel: bool,
    /// The use of the allowance; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowance: Option<Allowance>,
    /// What was not counted, or only in part.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub drops: Vec<Dropped>,
}

/// A variable.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Variable {
    /// The requested name, resolved.
    pub name: String,
    /// Its address.
    pub address: u64,
    /// How many bytes are watched.
    pub len: u8,
    /// "w", "rw" or "x".
    pub access: String,
    /// All accesses.
    pub hits: u64,
    /// Those that meet the conditions: the sum of the rows.
    pub count: u64,
    /// Whether "count" is a lower bound: the variable was not watched all the time.
    pub at_least: bool,
    /// For how long it was watched, if it took turns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watched_ns: Option<u64>,
}

/// Accesses to one variable by one instruction and threads of one name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Accesses {
    /// Its name.
    pub variable: String,
    /// The instruction; for the kernel's accesses, the user's call.
    pub at: String,
    /// Whether a system call made the access.
    pub in_kernel: bool,
    /// The threads' name.
    pub comm: String,
    /// The only thread, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tid: Option<u32>,
    /// The number of accesses.
    pub count: u64,
    /// Those after which the value differed, as far as known.
    pub changed: u64,
    /// Those with an unknown old value: the first after each gap in which stores were missed.
    pub old_unknown: u64,
    /// Those whose value was read from memory, after the store: in a race it may be another
    /// thread's.
    pub racy: u64,
    /// The first access, since the start of the session.
    pub first_ns: u64,
    /// The last one.
    pub last_ns: u64,
    /// Its old value; `?` if unknown.
    pub last_old: String,
    /// Its new value.
    pub last_new: String,
    /// Values, the most frequent first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<Value>,
    /// Accesses with a value that is not in "values".
    pub other_values: u64,
    /// The callers, the most frequent first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stacks: Vec<Stack>,
}

/// One access.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Access<'a> {
    /// Its time, since the start of the session.
    pub at_ns: u64,
    /// The accessing thread.
    pub tid: u32,
    /// The thread's name.
    pub comm: &'a str,
    /// The variable.
    pub variable: &'a str,
    /// The instruction; for the kernel's accesses, the user's call.
    pub at: &'a str,
    /// Whether a system call made the access.
    pub in_kernel: bool,
    /// The old value; `?` if unknown.
    pub old: String,
    /// The new value.
    pub new: String,
    /// Whether the new value was read from memory: in a race it may be another thread's.
    pub racy: bool,
}

/// A value, and how often it was stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Value {
    /// It, formatted by its type.
    pub value: String,
    /// How often.
    pub count: u64,
}

/// Callers of an instruction's function.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Stack {
    /// The callers, innermost first.
    pub callers: Vec<String>,
    /// Whether there are more, beyond code that could not be unwound.
    pub is_partial: bool,
    /// The number of accesses.
    pub count: u64,
}

/// How many accesses a window of time allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Allowance {
    /// How many.
    pub hits: u64,
    /// A window's length.
    pub window_ns: u64,
    /// How many windows there were.
    pub windows: u64,
    /// Those that used up all.
    pub used_up: u64,
}

/// How breakpoints were placed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Placement {
    /// What each was opened for: "cpu" or "thread"; "agent" if the agent opens it for each thread.
    pub by: String,
    /// Why they are not on all CPUs, unless requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// How the threads got their breakpoints.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attached: Option<Attached>,
}

/// How the threads of a process got breakpoints, which later threads inherited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Attached {
    /// Threads for which they were opened.
    pub threads: u32,
    /// Openings that were repeated: a birth raced with them.
    pub again: u32,
    /// Threads that lived too briefly for any.
    pub without: u32,
    /// How long that took.
    pub took_ns: u64,
}

/// Reservations of debug registers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Reservations {
    /// A "thread" reservation excludes those of the same shard, a "cpu" one all others.
    pub side: String,
    /// Granted reservations.
    pub reservations: u64,
    /// How often the side's lock was taken, for any reason.
    pub holds: u64,
    /// How often that had to wait.
    pub waited: u64,
    /// For how long, together.
    pub waited_ns: u64,
}
