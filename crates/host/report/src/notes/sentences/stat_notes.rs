//! The sentences of notes on counts of events.

use tiptoe_session::{CgroupFault, StatNote};

pub(super) fn sentence(note: &StatNote) -> String {
    match note {
        StatNote::CgroupsByEvents { why } => format!(
            "{why}: each cgroup has events of its own, and the cost excludes rescheduling them at switches; cgroups \
             that are created later are not counted"
        ),
        StatNote::CgroupsByFiles { why } => format!(
            "{why}: the counts are from the files of cgroups (cpu.stat, memory.stat); cgroups that are created later \
             are not counted"
        ),
        StatNote::UnmatchedPatterns { patterns } => {
            let patterns = patterns.iter().map(|pattern| format!("'{pattern}'"));
            let patterns = patterns.collect::<Vec<_>>().join(" or ");
            format!("no cgroup ever matched {patterns}")
        }
        StatNote::Forgotten { cgroups } => format!(
            "{cgroups} removed cgroups are not listed any more: their counts are in the cgroups that contained them"
        ),
        StatNote::Amiss { what, count } => format!("{count} {}", fault(*what)),
        StatNote::HitCostUnknown { tracepoint } => format!(
            "the cost excludes hits of tracepoints: without {tracepoint} the cost of a hit cannot be measured"
        ),
        StatNote::SwitchCostUnknown => {
            "the cost of a switch could not be measured: the reported cost is too low".to_owned()
        }
    }
}

fn fault(what: CgroupFault) -> &'static str {
    match what {
        CgroupFault::UnknownTasks => {
            "switches from unknown tasks: the first counts of these tasks are missing"
        }
        CgroupFault::NoRoomForTask => "tasks for which there was no room: their counts are missing",
        CgroupFault::UnreportedSwitches => {
            "switches that the kernel did not report: counts of events there may be charged to another cgroup"
        }
        CgroupFault::UnreportedTasks => {
            "switches of tasks that the kernel did not report: the counts of these tasks are missing"
        }
        CgroupFault::SurplusSwitches => {
            "reported switches that the system did not make: counts may be too high"
        }
        CgroupFault::UnreportedEnds => {
            "ends of tasks that the kernel did not report: the last counts of these tasks are missing"
        }
        CgroupFault::MissedSwitches => {
            "switches at which the kernel ran no program: the counts until then are charged late"
        }
        CgroupFault::MovedTasks => {
            "switches from tasks that had been moved to another cgroup while they ran: their first counts there are \
             in the previous cgroup"
        }
        CgroupFault::NoRoomForCgroup => {
            "switches to cgroups for which there was no room: only the system's counts include them"
        }
        CgroupFault::UnreadEvents => "events could not be read on a CPU: their counts are too low",
        CgroupFault::NoRoomForChange => {
            "reports of created cgroups, moved tasks or removed cgroups found no room: names may be missing"
        }
    }
}
