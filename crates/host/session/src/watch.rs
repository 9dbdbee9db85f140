//! Accesses to watched variables.

use serde::{Deserialize, Serialize};

use crate::Dropped;

/// The accesses of a session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Watch {
    /// What rows are grouped by, besides variable and instruction: "comm" or "thread".
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
    /// Accesses of other processes to the same addresses. They are not counted, but slow those processes.
    pub foreign: u64,
    /// Whether accesses by system calls are counted.
    pub sees_kernel: bool,
    /// The limit on accesses, and how it was used; absent without a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowance: Option<Allowance>,
    /// Accesses that were not counted, or only in part.
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
    /// The variable's address.
    pub address: u64,
    /// How many bytes are watched.
    pub len: u8,
    /// Which accesses are watched: "w", "rw" or "x".
    pub access: String,
    /// All accesses, also those that do not meet the conditions of the request.
    pub hits: u64,
    /// The accesses that meet the conditions: the sum of the rows.
    pub count: u64,
    /// Whether "hits" and "count" are lower bounds, as for a variable that was not always watched.
    pub at_least: bool,
    /// The time for which the variable was watched, if variables took turns in the debug registers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watched_ns: Option<u64>,
}

/// Accesses to one variable by one instruction and threads of one name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Accesses {
    /// The variable's name.
    pub variable: String,
    /// The instruction that made the access. If the kernel made it, the instruction of the system call.
    pub at: String,
    /// Whether a system call made the access.
    pub in_kernel: bool,
    /// The threads' name.
    pub comm: String,
    /// The thread's id, if a single thread made these accesses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tid: Option<u32>,
    /// The number of accesses.
    pub count: u64,
    /// Accesses that changed the value. Accesses with an unknown old value are not included.
    pub changed: u64,
    /// Accesses with an unknown old value, such as the first after each gap in watching.
    pub old_unknown: u64,
    /// Accesses whose new value was read from memory after the store. Another thread may have stored that value.
    pub racy: u64,
    /// The first access, since the start of the session.
    pub first_ns: u64,
    /// The last access, since the start of the session.
    pub last_ns: u64,
    /// The old value at the last access; `?` if unknown.
    pub last_old: String,
    /// The new value at the last access.
    pub last_new: String,
    /// The new values, the most frequent first.
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
    /// The time of the access, since the start of the session.
    pub at_ns: u64,
    /// The accessing thread.
    pub tid: u32,
    /// The thread's name.
    pub comm: &'a str,
    /// The variable.
    pub variable: &'a str,
    /// The instruction that made the access. If the kernel made it, the instruction of the system call.
    pub at: &'a str,
    /// Whether a system call made the access.
    pub in_kernel: bool,
    /// The old value; `?` if unknown.
    pub old: String,
    /// The new value.
    pub new: String,
    /// Whether the new value was read from memory after the store. Another thread may have stored that value.
    pub racy: bool,
}

/// A value, and how often it was stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Value {
    /// The value, formatted by its type.
    pub value: String,
    /// How often the value was stored.
    pub count: u64,
}

/// Callers of the function that made accesses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Stack {
    /// The callers, innermost first.
    pub callers: Vec<String>,
    /// Whether the stack could not be unwound up to its outermost caller.
    pub is_partial: bool,
    /// The number of accesses.
    pub count: u64,
}

/// The limit on the number of accesses in a window of time, and how it was used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Allowance {
    /// The number of accesses that each window allows.
    pub hits: u64,
    /// The length of a window.
    pub window_ns: u64,
    /// The number of windows.
    pub windows: u64,
    /// The number of windows in which all allowed accesses were used up.
    pub used_up: u64,
}

/// How breakpoints were placed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Placement {
    /// Whether each breakpoint was for a "cpu" or a "thread"; "agent" if the agent opened one for each thread.
    pub by: String,
    /// Why breakpoints are not on all CPUs; absent if they are on all CPUs, or if the user chose threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// How the running threads got breakpoints; absent if breakpoints are on all CPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attached: Option<Attachment>,
}

/// How the running threads of a process got breakpoints. Threads that start later inherit breakpoints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Attachment {
    /// Threads for which breakpoints were opened.
    pub threads: u32,
    /// How often a thread's breakpoints were opened again, because another thread started at the same time. 0 with the
    /// agent, which opens a thread's breakpoints once.
    pub again: u32,
    /// How many threads started while the agent opened breakpoints. 0 without the agent.
    pub late: u32,
    /// Threads that ended before they got a breakpoint.
    pub without: u32,
    /// How long opening all breakpoints took.
    pub took_ns: u64,
}

/// Reservations of debug registers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Reservations {
    /// What the registers are reserved for: "thread" or "cpu". A reservation for a thread takes the lock of its group
    /// of threads. A reservation for a CPU takes all these locks and one more.
    pub side: String,
    /// Granted reservations.
    pub reservations: u64,
    /// Registers that threads inherited and used without a reservation.
    pub unreserved: u64,
    /// How often locks were taken, for any reason.
    pub holds: u64,
    /// How often a request waited for a lock.
    pub waited: u64,
    /// The sum of these waits' times.
    pub waited_ns: u64,
}
