//! `bpf/cgroups_layout.h` in Rust.

use tiptoe_sys::host::perf::Counts;

/// Slots without a cgroup, and the first with one.
pub(super) const IDLE: u32 = 0;
pub(super) const OTHERS: u32 = 1;
pub(super) const FIRST: u32 = 2;

pub(super) const LINE: usize = 8;
pub(super) const COUNTED: usize = 3;
pub(super) const CPU: usize = 18;
pub(super) const ROUND: usize = 7;

const CREATED: u64 = 1;
const MOVED: u64 = 2;
const REMOVED: u64 = 3;

/// The counts of a cgroup's own tasks on a CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuCounts {
    /// The run time.
    pub runtime_ns: u64,
    /// Switches from one of these tasks.
    pub switches: u64,
    /// Switches to another cgroup's task.
    pub cgroup_switches: u64,
    /// Faults that read no storage.
    pub minor_faults: u64,
    /// Faults that waited for storage.
    pub major_faults: u64,
    /// Moves to another CPU.
    pub migrations: u64,
    /// The counts by event.
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

/// What went wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CountFaults {
    /// Unreported switches, because the kernel hides one of the tasks. The fields were charged later; events may be in
    /// neighbours' counts.
    pub unseen: u64,
    /// Of these, those from tasks without kept fields, whose first counts are missing. By tasks: tasks without memory.
    pub strangers: u64,
    /// Switches from a task moved while it ran: the old cgroup has its counts up to the flush.
    pub moved: u64,
    /// Switches to cgroups without a slot.
    pub no_slot: u64,
    /// Failed readings of events.
    pub unread: u64,
    /// Reports lost for lack of room.
    pub lost_reports: u64,
    /// Switches at which no program ran, because one already ran on that CPU.
    pub missed: u64,
    /// By tasks: switches of the system that no known task has. The kernel hides those tasks; their counts are missing.
    pub hidden: u64,
    /// By tasks: switches of tasks that the system did not count.
    pub surplus: u64,
    /// By tasks: ends not reported in time; those last counts are missing.
    pub unended: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RoundCounts {
    /// Tasks that began to end, and that ended.
    pub(super) ending: u64,
    pub(super) ended: u64,
    /// Tasks seen in between, over all rounds.
    pub(super) seen_ending: u64,
    /// Ends never reported.
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
    /// At context switches.
    pub switches: SwitchTimes,
    /// By tasks: births, ends and moves handled.
    pub lives: u64,
    /// Their time.
    pub lives_ns: u64,
    /// Rounds over all tasks.
    pub rounds: u64,
    /// Their time.
    pub rounds_ns: u64,
}

/// Programs at switches within a cgroup, and between two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SwitchTimes {
    /// All runs.
    pub runs: [u64; 2],
    /// Timed runs.
    pub timed: [u64; 2],
    /// Their time.
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
    /// A cgroup, with its path.
    Created(u64, String),
    /// Tasks were moved, perhaps while they ran. CPUs must be flushed, because the old cgroup is charged until then.
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
