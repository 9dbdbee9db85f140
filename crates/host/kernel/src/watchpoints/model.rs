//! What is watched, and what is known of its accesses.

use tiptoe_sys::host::perf::Breakpoint;

/// So many variables may be watched, by turns.
pub const MOST_VARIABLES: usize = 64;
/// So many conditions may be given.
pub const MOST_CONDITIONS: usize = 4;

/// Whose accesses, and which.
#[derive(Clone, Debug)]
pub struct WatchWanted {
    /// The process, by the kernel's own id.
    pub pid: u32,
    /// Each thread for itself.
    pub by_thread: bool,
    /// Only those that changed the value, or may have.
    pub only_changed: bool,
    /// Each by itself, too.
    pub one_by_one: bool,
    /// Only those for which all of these hold, or may hold as the value before is not known.
    pub conditions: Vec<Condition>,
    /// How long hits in a window may take, of all variables together: at least one hit is allowed.
    pub allowed_ns: Option<u64>,
    /// Where the events are.
    pub form: Form,
    /// All debug registers, also the one that is else left to debuggers.
    pub all_slots: bool,
}

/// Where events are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// On all CPUs.
    Wide,
    /// At the threads of the process.
    Tasks,
}

/// A comparison of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition {
    /// On the left.
    pub left: Operand,
    /// How the two compare.
    pub operator: Operator,
    /// On the right.
    pub right: Operand,
}

/// What is compared. Values are extended to 64 bits as their type is signed or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// The value before.
    Old,
    /// The value after.
    New,
    /// Always this.
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
    /// What it is called where it is in another one's way.
    pub name: String,
    /// Whether it keeps its debug register.
    pub is_pinned: bool,
    /// Where, and which accesses.
    pub at: Breakpoint,
    /// Whether its values are signed.
    pub is_signed: bool,
}

/// Which hits are one row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WatchKey {
    /// The user's instruction behind the one that hit; of code that is watched, this one.
    pub ip: u64,
    /// The place of the variable in the list that was opened.
    pub variable: u32,
    /// The thread; 0 where threads are not told apart.
    pub tid: u32,
    /// A system call of the user's did it.
    pub in_kernel: bool,
    /// The thread's name.
    pub comm: String,
}

/// A value, and how often it was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredValue {
    /// As many of its lower bytes count as the variable has.
    pub value: u64,
    /// How often.
    pub count: u64,
}

/// What is known of a row's hits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchRow {
    /// Which hits these are.
    pub key: WatchKey,
    /// How many.
    pub count: u64,
    /// Behind which the value was another one, as far as is known.
    pub changed: u64,
    /// Whose value was read from memory.
    pub read_behind: u64,
    /// Whose value before is not known, so that they may have changed it: the first ones behind a time in which stores
    /// were missed.
    pub old_unknown: u64,
    /// The time of the first, of CLOCK_MONOTONIC.
    pub first_ns: u64,
    /// Of the last.
    pub last_ns: u64,
    /// The thread, where all are of one.
    pub tid: Option<u32>,
    /// The last one's values before, if it is known, and after.
    pub last: (Option<u64>, u64),
    /// The first values that there were.
    pub values: Vec<StoredValue>,
    /// How often it was another one.
    pub other_values: u64,
    /// Return addresses, the nearest first.
    pub callers: Vec<u64>,
    /// There are more callers, which a rule for the last one would have led to.
    pub is_partial: bool,
    /// The first of them.
    pub first: Snapshot,
}

/// A hit by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// When, of CLOCK_MONOTONIC.
    pub time_ns: u64,
    /// The thread.
    pub tid: u32,
    /// The value before, if it is known.
    pub old: Option<u64>,
    /// The value after.
    pub new: u64,
    /// That was read from memory.
    pub is_read_behind: bool,
    /// The row that it is in.
    pub row: WatchKey,
    /// The same number for the same callers.
    pub callers: u64,
}

/// Where a thread was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// By their numbers in machine code; of a system call only %rsp and %rbp are the user's.
    pub registers: [u64; 16],
    /// The flags.
    pub flags: u64,
    /// The stack from %rsp on, as far as it was kept.
    pub stack: Vec<u64>,
}

/// How often a variable was hit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hits {
    /// In all.
    pub all: u64,
    /// That were wanted.
    pub wanted: u64,
}

/// What was not counted, or only in part, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drops {
    /// There were more rows than there is room for.
    pub no_room_for_row: u64,
    /// The variable could not be read.
    pub no_value: u64,
    /// Another hit was being counted on the same CPU.
    pub nested: u64,
    /// Counted, but nobody had read those before it ([`Watchpoints::each`](super::Watchpoints::each)).
    pub no_room_for_line: u64,
    /// The kernel did not run the program.
    pub missed: u64,
}

/// What became of a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Hits in it.
    pub hits: u64,
    /// The variables whose events came to rest in it, a bit for each.
    pub rested: u64,
    /// They did because of hits of other processes, at the same addresses.
    pub by_strangers: bool,
}
