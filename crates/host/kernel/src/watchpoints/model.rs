//! Variables to watch, and their accesses.

use tiptoe_sys::host::perf::Breakpoint;

/// The most variables watched, by turns.
pub const MOST_VARIABLES: usize = 64;
/// The most conditions.
pub const MOST_CONDITIONS: usize = 4;

/// The accesses to count.
#[derive(Clone, Debug)]
pub struct WatchWanted {
    /// The process, by its id in tiptoe's PID namespace.
    pub pid: u32,
    /// Whether each thread has its own rows.
    pub by_thread: bool,
    /// Only accesses that changed the value, or may have.
    pub only_changed: bool,
    /// Whether each access is also reported singly.
    pub one_by_one: bool,
    /// Only accesses that meet all of these conditions. An unknown old value meets any condition.
    pub conditions: Vec<Condition>,
    /// The time that all variables' hits may take in a window; at least one hit is allowed.
    pub allowed_ns: Option<u64>,
    /// The kind of events.
    pub form: Form,
    /// Whether to use all debug registers, also the one left to debuggers.
    pub all_slots: bool,
}

/// The kind of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// An event on each CPU.
    Cpus,
    /// An event on each thread.
    Tasks,
}

/// A comparison of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition {
    /// The left operand.
    pub left: Operand,
    /// How the two operands compare.
    pub operator: Operator,
    /// The right operand.
    pub right: Operand,
}

/// An operand, extended to 64 bits by its type's sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// The value before.
    Old,
    /// The value after.
    New,
    /// A constant.
    Constant(u64),
}

/// How two values compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `==`
    Equal,
    /// `!=`
    Different,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
    /// `&`: they have a bit in common
    HasBits,
}

/// A variable to watch.
#[derive(Clone, Debug)]
pub struct Watchpoint {
    /// The variable's name in messages.
    pub name: String,
    /// Whether the variable always keeps its debug register.
    pub is_pinned: bool,
    /// The address and the kind of access.
    pub at: Breakpoint,
    /// Whether the variable's values are signed.
    pub is_signed: bool,
}

/// Which hits share a row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WatchKey {
    /// The address of the instruction after the access in user space; for watched code, of the watched instruction.
    pub ip: u64,
    /// The variable's index among those opened.
    pub variable: u32,
    /// The thread, or 0 if not grouped by it.
    pub tid: u32,
    /// Whether a system call made the access.
    pub in_kernel: bool,
    /// The thread's name.
    pub comm: String,
}

/// A value, and how often it was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredValue {
    /// The value, valid in the variable's length.
    pub value: u64,
    /// The number of stores.
    pub count: u64,
}

/// A row's hits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchHits {
    /// The hits in this row.
    pub key: WatchKey,
    /// The number of hits.
    pub count: u64,
    /// Hits that changed the value, as far as known.
    pub changed: u64,
    /// Hits whose value was read from memory.
    pub read_from_memory: u64,
    /// Hits with an unknown old value: the first after each gap in which stores were missed.
    pub old_unknown: u64,
    /// The first hit's time, by CLOCK_MONOTONIC.
    pub first_ns: u64,
    /// The last hit's time, by CLOCK_MONOTONIC.
    pub last_ns: u64,
    /// The thread, if all are from one.
    pub tid: Option<u32>,
    /// The last hit's old value, if known, and new value.
    pub last: (Option<u64>, u64),
    /// The first distinct values.
    pub values: Vec<StoredValue>,
    /// Hits whose value found no room in `values`.
    pub other_values: u64,
    /// Return addresses, innermost first.
    pub callers: Vec<u64>,
    /// Whether there are more callers, beyond a frame without an unwind rule.
    pub is_partial: bool,
    /// The state at the first hit.
    pub first: Snapshot,
}

/// A single hit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// The time, by CLOCK_MONOTONIC.
    pub time_ns: u64,
    /// The thread.
    pub tid: u32,
    /// The old value, if known.
    pub old: Option<u64>,
    /// The new value.
    pub new: u64,
    /// Whether the new value was read from memory, where another thread may have stored it.
    pub is_read_from_memory: bool,
    /// The row that contains the hit.
    pub key: WatchKey,
    /// A number that identifies the callers.
    pub callers: u64,
}

/// The state of a thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The registers, by their numbers in machine code. If a system call made the access, only %rsp and %rbp are those of
    /// user space.
    pub registers: [u64; 16],
    /// The flags.
    pub flags: u64,
    /// The saved part of the stack, from %rsp on.
    pub stack: Vec<u64>,
}

/// The hits of a variable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hits {
    /// All hits.
    pub all: u64,
    /// Hits that meet the conditions.
    pub wanted: u64,
}

/// What was not counted, or only in part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drops {
    /// Hits without room for their row.
    pub no_room_for_row: u64,
    /// Hits whose value could not be read.
    pub no_value: u64,
    /// Hits that happened while another hit was being counted on the same CPU.
    pub nested: u64,
    /// Counted, but the ring was full ([`Watchpoints::each`](super::Watchpoints::each)).
    pub no_room_for_line: u64,
    /// Hits for which the kernel did not run the program.
    pub missed: u64,
}

/// The hits of a window of the budget, up to its end or up to now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// The hits in the window.
    pub hits: u64,
    /// The throttled variables, a bit each.
    pub rested: u64,
    /// Whether they were throttled because of other processes' hits at the same addresses.
    pub by_strangers: bool,
}
