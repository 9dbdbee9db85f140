//! Watched variables and their accesses.

use tiptoe_sys::host::perf::Breakpoint;

/// The most variables.
pub const MOST_VARIABLES: usize = 64;
/// The most conditions.
pub const MOST_CONDITIONS: usize = 4;

/// The accesses to count.
#[derive(Clone, Debug)]
pub struct WatchWanted {
    /// The process, in tiptoe's PID namespace.
    pub pid: u32,
    /// Whether to group by thread.
    pub by_thread: bool,
    /// Whether to skip accesses that certainly changed nothing.
    pub only_changed: bool,
    /// Whether to also report each access singly.
    pub one_by_one: bool,
    /// The conditions that an access must meet. An unknown old value meets any condition.
    pub conditions: Vec<Condition>,
    /// How long handling hits may take in a window, a period of the budget.
    pub allowed_ns: Option<u64>,
    /// Whether events are per CPU or per thread.
    pub form: Form,
    /// Whether to use the register that is otherwise left to debuggers.
    pub all_slots: bool,
}

/// Where breakpoint events are opened.
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
    /// The operator.
    pub operator: Operator,
    /// The right operand.
    pub right: Operand,
}

/// An operand, extended to 64 bits by the sign of the variable's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// The old value.
    Old,
    /// The new value.
    New,
    /// A constant.
    Constant(u64),
}

/// A comparison.
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
    /// `&`: a common bit
    HasBits,
}

/// A variable to watch.
#[derive(Clone, Debug)]
pub struct Watchpoint {
    /// The name in messages.
    pub name: String,
    /// Whether the variable keeps its debug register when other variables take turns.
    pub is_pinned: bool,
    /// The address, length and kind of access.
    pub at: Breakpoint,
    /// Whether values are signed.
    pub is_signed: bool,
}

/// The key of a row, which sums up hits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WatchKey {
    /// The address after the accessing instruction in user space; for watched code, the instruction's own address.
    pub ip: u64,
    /// The variable's index.
    pub variable: u32,
    /// The thread; 0 unless rows are by thread.
    pub tid: u32,
    /// Whether a system call made the access.
    pub in_kernel: bool,
    /// The thread's name.
    pub comm: String,
}

/// A stored value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredValue {
    /// The value. Only as many bytes as the variable has are valid.
    pub value: u64,
    /// The number of its stores.
    pub count: u64,
}

/// A row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchHits {
    /// The key.
    pub key: WatchKey,
    /// The number of hits.
    pub count: u64,
    /// Hits known to have changed the value.
    pub changed: u64,
    /// Hits whose value was read from memory, where another thread may have stored meanwhile.
    pub read_from_memory: u64,
    /// Hits with an unknown old value, as after each gap in watching.
    pub old_unknown: u64,
    /// The first hit's time, by CLOCK_MONOTONIC.
    pub first_ns: u64,
    /// The last hit's time.
    pub last_ns: u64,
    /// The thread, if a single thread made all hits.
    pub tid: Option<u32>,
    /// The old value, if known, and the new value at the last hit.
    pub last: (Option<u64>, u64),
    /// The first distinct new values.
    pub values: Vec<StoredValue>,
    /// Hits whose new value is not in `values`.
    pub other_values: u64,
    /// Return addresses, innermost first.
    pub callers: Vec<u64>,
    /// Whether callers are missing, for lack of an unwind rule.
    pub is_partial: bool,
    /// The thread's state at the first hit.
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
    /// Whether `new` was read from memory.
    pub is_read_from_memory: bool,
    /// The row's key.
    pub key: WatchKey,
    /// A hash of the callers.
    pub callers: u64,
}

/// A thread's registers and stack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The registers, by their numbers in machine code. In a system call only %rsp and %rbp are user space's.
    pub registers: [u64; 16],
    /// The flags.
    pub flags: u64,
    /// The stack from %rsp on.
    pub stack: Vec<u64>,
}

/// A variable's hits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hits {
    /// All hits.
    pub all: u64,
    /// Hits that meet the conditions.
    pub wanted: u64,
}

/// Hits that were not counted, or only in part, in the order of `enum drop`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, zerocopy::FromBytes)]
#[repr(C)]
pub struct Drops {
    /// Hits without room for a row.
    pub no_room_for_row: u64,
    /// Hits with an unreadable value.
    pub no_value: u64,
    /// Hits while another hit was counted on the same CPU.
    pub nested: u64,
    /// Counted hits that were not reported singly, because the ring was full.
    pub no_room_for_line: u64,
    /// Hits for which the kernel ran no program.
    pub missed: u64,
}

/// What happened in a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// The hits.
    pub hits: u64,
    /// Variables whose events stopped, a bit each.
    pub rested: u64,
    /// Whether other processes' hits stopped the events.
    pub by_strangers: bool,
}
