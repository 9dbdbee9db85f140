//! Accesses to watched variables.

use serde::{Deserialize, Serialize};

use crate::Dropped;

/// Accesses to watched variables.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Watch {
    /// How rows are grouped besides by variable and instruction: "comm" or "thread".
    pub by: String,
    /// The variables, in the order of the request.
    pub variables: Vec<Variable>,
    /// The accesses, the most frequent first.
    pub rows: Vec<Accesses>,
    /// The kind of breakpoints.
    pub form: Placement,
    /// Reservations of debug registers, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reservations: Option<Vec<Reservations>>,
    /// Accesses of other processes to the same addresses, which cost them as much.
    pub foreign: u64,
    /// Whether accesses by system calls count, too.
    pub sees_kernel: bool,
    /// The use of the allowance; `None` without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowance: Option<Allowance>,
    /// What was not counted, or only in part, by reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub drops: Vec<Dropped>,
}

/// A variable.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Variable {
    /// The requested name, resolved.
    pub name: String,
    /// The variable's address.
    pub address: u64,
    /// The number of watched bytes.
    pub len: u8,
    /// "w", "rw" or "x".
    pub access: String,
    /// All accesses.
    pub hits: u64,
    /// Accesses that meet the conditions; the rows add up to these.
    pub count: u64,
    /// Whether "count" is a lower bound, because the variable was not watched all the time.
    pub at_least: bool,
    /// The time for which the variable was watched, if it took turns with others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watched_ns: Option<u64>,
}

/// Accesses to one variable by one instruction, and threads of one name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Accesses {
    /// The variable's name.
    pub variable: String,
    /// The instruction; for the kernel's accesses, the user's call.
    pub at: String,
    /// Whether a system call made the access.
    pub in_kernel: bool,
    /// The name of the threads.
    pub comm: String,
    /// The thread, if all are from one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tid: Option<u32>,
    /// The number of accesses.
    pub count: u64,
    /// Accesses after which the value differed, as far as values are known.
    pub changed: u64,
    /// Accesses with an unknown old value: the first after each gap in which stores were missed.
    pub old_unknown: u64,
    /// Accesses whose value was read from memory, after the store. In a race it may be another
    /// thread's value.
    pub racy: u64,
    /// The time of the first access, since the start of the session.
    pub first_ns: u64,
    /// The time of the last access.
    pub last_ns: u64,
    /// The last access's old value; `?` if unknown.
    pub last_old: String,
    /// The last access's new value.
    pub last_new: String,
    /// Values, the most frequent first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<Value>,
    /// The number of accesses with a value that is not in "values".
    pub other_values: u64,
    /// The callers, the most frequent first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stacks: Vec<Stack>,
}

/// One access.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Access<'a> {
    /// The time of the access, since the start of the session.
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
    /// Whether the new value was read from memory. In a race it may be another thread's value.
    pub racy: bool,
}

/// A value, and the number of its stores.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Value {
    /// The value, formatted by its type.
    pub value: String,
    /// The number of stores.
    pub count: u64,
}

/// Callers of an instruction's function.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Stack {
    /// The callers, innermost first.
    pub callers: Vec<String>,
    /// Whether there are more callers, beyond code that could not be unwound.
    pub is_partial: bool,
    /// The number of accesses.
    pub count: u64,
}

/// The allowed accesses in a window of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Allowance {
    /// The number of accesses.
    pub hits: u64,
    /// The length of a window.
    pub window_ns: u64,
    /// The number of windows.
    pub windows: u64,
    /// Windows in which the allowance was used up.
    pub used_up: u64,
}

/// The kind of breakpoints.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Placement {
    /// What each breakpoint is opened for: "cpu" or "thread"; "agent" if the agent opens it for each thread.
    pub by: String,
    /// Why the breakpoints are not on all CPUs, unless the user requested that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// How the threads got their breakpoints.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attached: Option<Attached>,
}

/// How the threads of a process got breakpoints, which later threads inherited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Attached {
    /// The number of threads for which breakpoints were opened.
    pub threads: u32,
    /// Openings that were repeated, because a birth raced with them.
    pub again: u32,
    /// Threads that got no breakpoints, because they lived too briefly.
    pub without: u32,
    /// The time that opening took.
    pub took_ns: u64,
}

/// Reservations of debug registers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Reservations {
    /// The side of the lock: a "thread" reservation excludes those of the same shard, a "cpu" one all others.
    pub side: String,
    /// Granted reservations.
    pub reservations: u64,
    /// How often the side's lock was taken, for any reason.
    pub holds: u64,
    /// How many of these locks had to wait.
    pub waited: u64,
    /// The time of these waits.
    pub waited_ns: u64,
}
