//! What was seen of watched variables.

use serde::{Deserialize, Serialize};

use crate::Dropped;

/// What was seen of watched variables.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Watch {
    /// What rows are told apart by besides the variable and the instruction: "comm" or "thread".
    pub by: String,
    /// The variables, in the order in which they were asked for.
    pub variables: Vec<Variable>,
    /// Who accessed them, the most first.
    pub rows: Vec<Accesses>,
    /// Where the breakpoints were.
    pub form: Placement,
    /// Reservations of debug registers, where they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reservations: Option<Vec<Reservations>>,
    /// Accesses of other processes to the same addresses, which cost these as much.
    pub foreign: u64,
    /// Whether accesses by system calls were seen, too.
    pub sees_kernel: bool,
    /// How the allowance was kept, where there was one.
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
    /// As it was asked for, resolved.
    pub name: String,
    /// Where it is.
    pub address: u64,
    /// How many bytes of it were watched.
    pub len: u8,
    /// "w", "rw" or "x".
    pub access: String,
    /// All accesses.
    pub hits: u64,
    /// Those that were asked for, which the rows are of.
    pub count: u64,
    /// There were more: it was not watched all the time.
    pub at_least: bool,
    /// For how long it was watched, where it took turns with others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watched_ns: Option<u64>,
}

/// Accesses to one variable by one instruction, and threads of one name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Accesses {
    /// The variable's name.
    pub variable: String,
    /// The instruction; where the kernel did it, the user's call.
    pub at: String,
    /// A system call did it.
    pub in_kernel: bool,
    /// The name of the threads.
    pub comm: String,
    /// The thread, where all were of one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tid: Option<u32>,
    /// How many.
    pub count: u64,
    /// Behind which the value was another one than before, as far as is known.
    pub changed: u64,
    /// Whose value before is not known: they came first behind a time in which stores were missed.
    pub old_unknown: u64,
    /// Whose value was read from memory, behind the store: where threads race it may be another's.
    pub racy: u64,
    /// When the first was, since the session began.
    pub first_ns: u64,
    /// And the last.
    pub last_ns: u64,
    /// The last one's value before it, `?` where that is not known.
    pub last_old: String,
    /// And behind it.
    pub last_new: String,
    /// Values, those that there were most often first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<Value>,
    /// How often it was any other.
    pub other_values: u64,
    /// From where, the most first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stacks: Vec<Stack>,
}

/// One access.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Access<'a> {
    /// When it was, since the start of the session.
    pub at_ns: u64,
    /// Its thread.
    pub tid: u32,
    /// The thread's name.
    pub comm: &'a str,
    /// The variable.
    pub variable: &'a str,
    /// The instruction; where the kernel did it, the user's call.
    pub at: &'a str,
    /// A system call did it.
    pub in_kernel: bool,
    /// The value before it, `?` where that is not known.
    pub old: String,
    /// And behind it.
    pub new: String,
    /// That was read from memory: where threads race it may be another's.
    pub racy: bool,
}

/// A value, and how often it was stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Value {
    /// As its type has it.
    pub value: String,
    /// How often.
    pub count: u64,
}

/// Callers of an instruction's function.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Stack {
    /// The nearest first.
    pub callers: Vec<String>,
    /// There are more, which were not known yet.
    pub is_partial: bool,
    /// How many accesses.
    pub count: u64,
}

/// So many accesses might be seen in a window of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Allowance {
    /// How many.
    pub hits: u64,
    /// How long a window is.
    pub window_ns: u64,
    /// How many windows there were.
    pub windows: u64,
    /// And those in which the allowance was used up.
    pub used_up: u64,
}

/// Where breakpoints were.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Placement {
    /// On each "cpu", at each "thread", or by the "agent" in each thread.
    pub by: String,
    /// Why not on all CPUs, where that was not asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// How the threads got theirs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attached: Option<Attached>,
}

/// How the threads of a process got breakpoints, which those that began later inherited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Attached {
    /// How many there were.
    pub threads: u32,
    /// How often one had to be done again, as another began meanwhile.
    pub again: u32,
    /// Threads that have none, as they came and went too fast.
    pub without: u32,
    /// How long it took.
    pub took_ns: u64,
}

/// Reservations of debug registers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Reservations {
    /// Those for a "thread" exclude few others, those for a "cpu" all.
    pub side: String,
    /// How many were granted.
    pub reservations: u64,
    /// How often the side was taken, for whatever reason.
    pub holds: u64,
    /// How many of these had to wait.
    pub waited: u64,
    /// For how long.
    pub waited_ns: u64,
}
