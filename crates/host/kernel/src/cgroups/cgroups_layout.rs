//! `bpf/cgroups_layout.h` in Rust.

use tiptoe_sys::host::perf::Counts;

/// The slots that belong to no cgroup, and the first that belongs to one.
pub(super) const IDLE: u32 = 0;
pub(super) const OTHERS: u32 = 1;
pub(super) const FIRST: u32 = 2;

/// Words of `struct tiptoe_line`, `tiptoe_counted`, `tiptoe_cpu` and `tiptoe_round`.
pub(super) const LINE: usize = 8;
pub(super) const COUNTED: usize = 3;
pub(super) const CPU: usize = 18;
pub(super) const ROUND: usize = 7;

const CREATED: u64 = 1;
const MOVED: u64 = 2;
const REMOVED: u64 = 3;

/// The counts of a cgroup's own tasks on one CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuCounts {
    /// The run time of these tasks.
    pub runtime_ns: u64,
    /// Switches from one of these tasks to any other.
    pub switches: u64,
    /// Switches to a task of another cgroup.
    pub cgroup_switches: u64,
    /// Faults that read nothing from storage.
    pub minor_faults: u64,
    /// Faults that waited for storage.
    pub major_faults: u64,
    /// Moves of these tasks to another CPU.
    pub migrations: u64,
    /// The counts of each event.
    pub events: Vec<Counts>,
}

impl CpuCounts {
    pub(super) fn read(
        line: impl Fn(usize) -> u64,
        counted: impl Fn(usize) -> u64,
        events: usize,
    ) -> CpuCounts {
        let event = |at: usize| Counts {
            count: counted(at * COUNTED),
            time_enabled_ns: counted(at * COUNTED + 1),
            time_running_ns: counted(at * COUNTED + 2),
        };
        CpuCounts {
            runtime_ns: line(0),
            switches: line(1),
            cgroup_switches: line(2),
            minor_faults: line(3),
            major_faults: line(4),
            migrations: line(5),
            events: (0..events).map(event).collect(),
        }
    }

    pub(super) fn since(mut self, before: &CpuCounts) -> CpuCounts {
        for (now, before) in self.numbers().into_iter().zip(before.clone().numbers()) {
            *now = now.wrapping_sub(*before);
        }
        self
    }

    /// Adds other counts.
    pub fn add(&mut self, other: &CpuCounts) {
        let more = Counts::default();
        self.events
            .resize(self.events.len().max(other.events.len()), more);
        for (sum, other) in self.numbers().into_iter().zip(other.clone().numbers()) {
            *sum = sum.wrapping_add(*other);
        }
    }

    fn numbers(&mut self) -> Vec<&mut u64> {
        let mut all = vec![
            &mut self.runtime_ns,
            &mut self.switches,
            &mut self.cgroup_switches,
            &mut self.minor_faults,
            &mut self.major_faults,
            &mut self.migrations,
        ];
        for event in &mut self.events {
            all.extend([
                &mut event.count,
                &mut event.time_enabled_ns,
                &mut event.time_running_ns,
            ]);
        }
        all
    }
}

/// What went wrong; 0 in a good run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CountFaults {
    /// Switches that the kernel did not report, because it hides one of the tasks. The fields were charged later;
    /// events may be in neighbours' counts.
    pub unseen: u64,
    /// Those of the unreported switches that were from tasks without kept fields, whose first counts are missing. By
    /// tasks: those without memory.
    pub strangers: u64,
    /// Switches from a task moved to another cgroup while it ran, before its CPU was flushed. Its counts in between
    /// went to the old cgroup.
    pub moved: u64,
    /// Switches to cgroups without a slot.
    pub no_slot: u64,
    /// Events that a CPU could not read.
    pub unread: u64,
    /// Reports for which the ring had no room.
    pub lost_reports: u64,
    /// Switches at which no program ran, because one was already running on that CPU.
    pub missed: u64,
    /// By tasks: how many more switches the system counted than the tasks have. The kernel hides some tasks, whose
    /// counts are missing.
    pub hidden: u64,
    /// By tasks: how many more switches the tasks have than the system counted.
    pub surplus: u64,
    /// By tasks: ends that the kernel did not report in time; those tasks' last counts are missing.
    pub unended: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RoundCounts {
    /// Tasks that began to end, and that ended.
    pub(super) ending: u64,
    pub(super) ended: u64,
    /// Tasks seen in between, over all rounds.
    pub(super) seen_ending: u64,
    /// Tasks whose end was never reported.
    pub(super) lost: u64,
    no_room: u64,
    runs: u64,
    runs_ns: u64,
}

impl RoundCounts {
    pub(super) fn read(word: impl Fn(usize) -> u64) -> RoundCounts {
        let [ending, ended, seen_ending, lost, no_room, runs, runs_ns] = std::array::from_fn(word);
        RoundCounts {
            ending,
            ended,
            seen_ending,
            lost,
            no_room,
            runs,
            runs_ns,
        }
    }

    pub(super) fn add(&self, checks: &mut CountFaults, times: &mut Times) {
        checks.strangers += self.no_room;
        times.lives += self.runs;
        times.lives_ns += self.runs_ns;
    }
}

/// The programs' time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// The time of the programs at context switches.
    pub switches: SwitchTimes,
    /// When counting is by tasks: the number of births, ends and moves that the programs handled.
    pub lives: u64,
    /// The time that handling them took.
    pub lives_ns: u64,
    /// The number of rounds over all tasks.
    pub rounds: u64,
    /// The time of the rounds.
    pub rounds_ns: u64,
}

/// The programs' time at switches within a cgroup, and between two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SwitchTimes {
    /// The number of runs.
    pub runs: [u64; 2],
    /// The number of timed runs.
    pub timed: [u64; 2],
    /// The time of the timed runs.
    pub timed_ns: [u64; 2],
}

pub(super) fn add_cpu(state: &[u64; CPU], checks: &mut CountFaults, times: &mut SwitchTimes) {
    let [unseen, strangers, moved, no_slot, unread] = std::array::from_fn(|at| state[7 + at]);
    checks.unseen += unseen;
    checks.strangers += strangers;
    checks.moved += moved;
    checks.no_slot += no_slot;
    checks.unread += unread;
    for kind in 0..2 {
        times.timed[kind] += state[12 + kind];
        times.timed_ns[kind] += state[14 + kind];
        times.runs[kind] += state[16 + kind];
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CgroupChange {
    /// A cgroup was created, with this path.
    Created(u64, String),
    /// Tasks were moved to another cgroup, perhaps while they ran. CPUs must be flushed, because their counts since the
    /// move go to the old cgroup.
    Moved,
    Removed(u64),
}

impl CgroupChange {
    pub(super) fn read(bytes: &[u8]) -> Option<CgroupChange> {
        let word = |at: usize| {
            let word = bytes.get(at..at + 8)?;
            word.try_into().ok().map(u64::from_ne_bytes)
        };
        let id = word(8)?;
        match word(0)? {
            CREATED => {
                let path = bytes.get(16..)?;
                let end = path.iter().position(|byte| *byte == 0);
                let path = &path[..end.unwrap_or(path.len())];
                Some(CgroupChange::Created(
                    id,
                    String::from_utf8_lossy(path).into_owned(),
                ))
            }
            MOVED => Some(CgroupChange::Moved),
            REMOVED => Some(CgroupChange::Removed(id)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_have_their_offsets() {
        let charged = CpuCounts::read(|at| at as u64, |at| 100 + at as u64, 2);
        assert_eq!((charged.switches, charged.migrations), (1, 5));
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
        add_cpu(&state, &mut checks, &mut times);
        assert_eq!((checks.unseen, checks.unread), (7, 11));
        assert_eq!((times.timed, times.runs), ([12, 13], [16, 17]));

        let round = RoundCounts::read(|at| at as u64);
        assert_eq!((round.ending, round.ended), (0, 1));
        assert_eq!((round.seen_ending, round.lost), (2, 3));
        let (mut checks, mut times) = Default::default();
        round.add(&mut checks, &mut times);
        assert_eq!((checks.strangers, times.lives, times.lives_ns), (4, 5, 6));
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
