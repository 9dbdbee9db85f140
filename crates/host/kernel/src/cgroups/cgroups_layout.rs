//! `bpf/cgroups_layout.h` in Rust.

use tiptoe_sys::host::perf::Counts;
use zerocopy::{FromBytes, Immutable, IntoBytes, transmute, transmute_mut};

use crate::name::name_of;

pub(super) const IDLE: u32 = 0;
pub(super) const OTHERS: u32 = 1;
pub(super) const FIRST: u32 = 2;

pub(crate) const LINE: usize = size_of::<TaskLine>() / 8;
pub(super) const COUNTED: usize = 3;
pub(super) const CPU: usize = size_of::<CpuState>() / 8;
pub(crate) const ROUND: usize = size_of::<RoundCounts>() / 8;
const _: () = assert!(LINE * 8 == 64 && COUNTED * 8 == 24 && CPU * 8 == 144 && ROUND * 8 == 56);

const CREATED: u64 = 1;
const MOVED: u64 = 2;
const REMOVED: u64 = 3;

/// What a cgroup's own tasks did on a CPU: `struct tiptoe_line`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct TaskLine {
    /// The run time.
    pub runtime_ns: u64,
    /// Switches from one of these tasks.
    pub switches: u64,
    /// Switches to another cgroup's task.
    pub left: u64,
    /// Faults that read no storage.
    pub minor_faults: u64,
    /// Faults that waited for storage.
    pub major_faults: u64,
    /// Moves to another CPU.
    pub migrations: u64,
    unused: [u64; 2],
}

/// The counts of a cgroup's own tasks on a CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuCounts {
    /// What is always counted.
    pub line: TaskLine,
    /// The counts by event.
    pub events: Vec<Counts>,
}

impl CpuCounts {
    pub(super) fn read(
        line: [u64; LINE],
        counted: impl Iterator<Item = [u64; COUNTED]>,
    ) -> CpuCounts {
        let event = |[count, time_enabled_ns, time_running_ns]: [u64; COUNTED]| Counts {
            count,
            time_enabled_ns,
            time_running_ns,
        };
        CpuCounts {
            line: transmute!(line),
            events: counted.map(event).collect(),
        }
    }

    pub(super) fn since(mut self, before: &CpuCounts) -> CpuCounts {
        for (now, before) in self.numbers().zip(before.clone().numbers()) {
            *now = now.wrapping_sub(*before);
        }
        self
    }

    /// Adds other counts.
    pub fn add(&mut self, other: &CpuCounts) {
        let more = Counts::default();
        self.events
            .resize(self.events.len().max(other.events.len()), more);
        for (sum, other) in self.numbers().zip(other.clone().numbers()) {
            *sum = sum.wrapping_add(*other);
        }
    }

    fn numbers(&mut self) -> impl Iterator<Item = &mut u64> {
        let line: &mut [u64; LINE] = transmute_mut!(&mut self.line);
        let events = self.events.iter_mut().flat_map(|event| {
            [
                &mut event.count,
                &mut event.time_enabled_ns,
                &mut event.time_running_ns,
            ]
        });
        line.iter_mut().chain(events)
    }
}

/// What may be wrong with counts. A field is about counting at switches unless its text says *by tasks*;
/// `lost_reports` and `missed` are about both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CountFaults {
    /// Switches that the kernel *hid*: it ran no program at them. Run time and faults were charged later; events may
    /// have been charged to other cgroups.
    pub unseen: u64,
    /// Of these, switches of tasks without an earlier record; the tasks' counts up to then are missing.
    pub strangers: u64,
    /// By tasks: tasks that found no room for a record.
    pub no_room: u64,
    /// Switches from tasks moved while they ran: what they did after the move was charged to the old cgroup.
    pub moved: u64,
    /// Switches to cgroups without a slot.
    pub no_slot: u64,
    /// Failed readings of events.
    pub unread: u64,
    /// Reports lost for lack of room.
    pub lost_reports: u64,
    /// Runs that the kernel skipped, because a program already ran on that CPU.
    pub missed: u64,
    /// By tasks: switches of tasks that the kernel hides; the tasks' counts are missing.
    pub hidden: u64,
    /// By tasks: switches that the system did not count.
    pub surplus: u64,
    /// By tasks: tasks whose end was reported too late; their last counts are missing.
    pub unended: u64,
}

/// `struct tiptoe_round`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes)]
#[repr(C)]
pub(super) struct RoundCounts {
    pub(super) ending: u64,
    pub(super) ended: u64,
    pub(super) seen_ending: u64,
    pub(super) lost: u64,
    no_room: u64,
    runs: u64,
    runs_ns: u64,
}

impl RoundCounts {
    pub(super) fn add(&self, checks: &mut CountFaults, times: &mut Times) {
        checks.no_room += self.no_room;
        times.lives += self.runs;
        times.lives_ns += self.runs_ns;
    }
}

/// The programs' time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// The runs at context switches.
    pub switches: SwitchTimes,
    /// By tasks: the runs at tasks' births, ends and moves.
    pub lives: u64,
    /// The time of `lives`.
    pub lives_ns: u64,
    /// By tasks: rounds over all tasks.
    pub rounds: u64,
    /// The time of `rounds`.
    pub rounds_ns: u64,
}

/// Runs of the BPF program at switches: the first within a cgroup, the second to another cgroup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SwitchTimes {
    /// All runs.
    pub runs: [u64; 2],
    /// Timed runs.
    pub timed: [u64; 2],
    /// The time of `timed`.
    pub timed_ns: [u64; 2],
}

#[derive(FromBytes)]
#[repr(C)]
struct CpuState {
    task: u64,
    fields: [u64; 3],
    set: u64,
    id: u64,
    slot: u32,
    busy: u32,
    unseen: u64,
    strangers: u64,
    moved: u64,
    no_slot: u64,
    unread: u64,
    timed: [u64; 2],
    timed_ns: [u64; 2],
    runs: [u64; 2],
}

pub(super) fn add_cpu(state: [u64; CPU], checks: &mut CountFaults, times: &mut SwitchTimes) {
    let state: CpuState = transmute!(state);
    checks.unseen += state.unseen;
    checks.strangers += state.strangers;
    checks.moved += state.moved;
    checks.no_slot += state.no_slot;
    checks.unread += state.unread;
    for kind in 0..2 {
        times.timed[kind] += state.timed[kind];
        times.timed_ns[kind] += state.timed_ns[kind];
        times.runs[kind] += state.runs[kind];
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CgroupChange {
    Created(u64, String),
    /// Tasks were moved, perhaps while they ran. The old cgroup is charged until a `Flush`.
    Moved,
    Removed(u64),
}

impl CgroupChange {
    pub(super) fn read(bytes: &[u8]) -> Option<CgroupChange> {
        let ([kind, id], path) = <[u64; 2]>::read_from_prefix(bytes).ok()?;
        match kind {
            CREATED => Some(CgroupChange::Created(id, name_of(path))),
            MOVED => Some(CgroupChange::Moved),
            REMOVED => Some(CgroupChange::Removed(id)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::load::{AT_SWITCHES, BY_TASKS};
    use super::*;
    use crate::layout_tests::same_layout;

    #[test]
    fn the_programs_have_the_same_layout() {
        for object in [AT_SWITCHES, BY_TASKS] {
            same_layout!(
                object, "tiptoe_line", TaskLine:
                runtime_ns switches left minor_faults major_faults migrations unused
            );
        }
        same_layout!(
            AT_SWITCHES, "tiptoe_cpu", CpuState:
            task fields set id slot busy unseen strangers moved no_slot unread timed timed_ns runs
        );
        same_layout!(
            BY_TASKS, "tiptoe_round", RoundCounts:
            ending ended seen_ending lost no_room runs runs_ns
        );
    }

    #[test]
    fn words_have_their_offsets() {
        let line = std::array::from_fn(|at| at as u64);
        let charged = CpuCounts::read(line, [[100, 101, 102], [103, 104, 105]].into_iter());
        assert_eq!((charged.line.switches, charged.line.migrations), (1, 5));
        assert_eq!(charged.events[1].count, 103);
        assert_eq!(charged.events[1].time_running_ns, 105);
        let mut twice = charged.clone();
        twice.add(&charged);
        assert_eq!(twice.clone().since(&charged), charged);
        let mut none = CpuCounts::default();
        none.add(&charged);
        assert_eq!(none, charged);

        let state: [u64; CPU] = std::array::from_fn(|at| at as u64);
        let (mut checks, mut times) = Default::default();
        add_cpu(state, &mut checks, &mut times);
        assert_eq!((checks.unseen, checks.unread), (7, 11));
        assert_eq!((times.timed, times.runs), ([12, 13], [16, 17]));

        let round: RoundCounts = transmute!([0_u64, 1, 2, 3, 4, 5, 6]);
        assert_eq!((round.ending, round.ended), (0, 1));
        assert_eq!((round.seen_ending, round.lost), (2, 3));
        let (mut checks, mut times) = Default::default();
        round.add(&mut checks, &mut times);
        assert_eq!((checks.no_room, times.lives, times.lives_ns), (4, 5, 6));
    }

    #[test]
    fn news_are_read() {
        let of = |kind: u64, id: u64, rest: &[u8]| {
            let words = [kind.to_ne_bytes(), id.to_ne_bytes()].concat();
            CgroupChange::read(&[&words, rest].concat())
        };
        assert_eq!(
            of(1, 7, b"/a/b\0x"),
            Some(CgroupChange::Created(7, "/a/b".into()))
        );
        assert_eq!(of(1, 7, b""), Some(CgroupChange::Created(7, String::new())));
        assert_eq!(of(2, 7, b""), Some(CgroupChange::Moved));
        assert_eq!(of(3, 7, b""), Some(CgroupChange::Removed(7)));
        assert_eq!(of(4, 7, b""), None);
        assert_eq!(CgroupChange::read(&[0; 15]), None);
    }
}
