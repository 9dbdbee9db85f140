//! Says how far a bench had the machine to itself: other tracers, because a measurement beside one measures both; other
//! programs; CPUs that the hypervisor took; and tasks that waited for a CPU.

use std::time::Duration;

use tiptoe_sys::host::{ForeignTracer, Process, foreign_tracers};

use crate::table::Table;

/// The time in which the kernel forgets closed programs of ours.
const FORGETS: Duration = Duration::from_millis(500);
/// The percentages of the CPUs' time from which other programs, and the hypervisor, make a result doubtful.
const MOST_OTHERS: f64 = 2.0;
const MOST_STOLEN: f64 = 0.5;
/// The unit of /proc/stat.
const TICK: Duration = Duration::from_millis(10);

/// Runs a bench, and adds notes on what else the machine did in that time. Rows without a number become notes.
pub(crate) fn watched<E>(bench: impl FnOnce() -> Result<Table, E>) -> Result<Table, E> {
    let before = foreign_tracers();
    let begin = MachineTimes::read();
    let mut table = bench()?;
    let end = MachineTimes::read();
    table.keep_numbers();
    table.notes.extend(table.scattered());
    let use_of_machine = begin.zip(end).map(|(begin, end)| end.since(&begin));
    table.notes.extend(use_of_machine.map(|used| used.note()));
    std::thread::sleep(FORGETS);
    let after = foreign_tracers();
    let mut seen: Vec<ForeignTracer> = before.into_iter().chain(after).collect();
    seen.sort();
    seen.dedup();
    table.notes.extend(seen.iter().map(|tracer| {
        let ForeignTracer { pid, comm, what } = tracer;
        let pid = pid.map_or(String::new(), |pid| format!(" ({pid})"));
        format!("not to be trusted: {comm}{pid} traced this machine too, with {what}")
    }));
    Ok(table)
}

/// Times of the whole machine since its boot, over all CPUs, and of this process and its ended children.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct MachineTimes {
    all: Duration,
    busy: Duration,
    stolen: Duration,
    /// How long tasks were ready to run and had no CPU.
    queued: Duration,
    own: Duration,
}

impl MachineTimes {
    /// Reads them; `None` where the kernel does not have them.
    fn read() -> Option<MachineTimes> {
        let stat = std::fs::read_to_string("/proc/stat").ok()?;
        let schedstat = std::fs::read_to_string("/proc/schedstat").unwrap_or_default();
        let own = Process::current();
        let own = own.cpu_time().ok()? + own.children_cpu_time().ok()?;
        MachineTimes::parse(&stat, &schedstat, own)
    }

    /// Parses the first line of /proc/stat and the lines of CPUs in /proc/schedstat.
    fn parse(stat: &str, schedstat: &str, own: Duration) -> Option<MachineTimes> {
        let ticks = stat.lines().next()?.strip_prefix("cpu ")?;
        let ticks = ticks.split_whitespace().map(|ticks| ticks.parse::<u32>());
        let ticks = ticks.collect::<Result<Vec<u32>, _>>().ok()?;
        let &[user, nice, system, idle, iowait, irq, softirq, stolen, ..] = &ticks[..] else {
            return None;
        };
        let busy = user + nice + system + irq + softirq;
        let cpus = schedstat.lines().filter(|line| line.starts_with("cpu"));
        let queued = cpus.filter_map(|line| line.split_whitespace().nth(8)?.parse::<u64>().ok());
        Some(MachineTimes {
            all: TICK * (busy + idle + iowait + stolen),
            busy: TICK * busy,
            stolen: TICK * stolen,
            queued: Duration::from_nanos(queued.sum()),
            own,
        })
    }

    fn since(&self, begin: &MachineTimes) -> MachineUse {
        let all = self.all.saturating_sub(begin.all);
        let percent = |now: Duration, then: Duration| {
            100.0 * now.saturating_sub(then).as_secs_f64()
                / all.as_secs_f64().max(TICK.as_secs_f64())
        };
        let own = percent(self.own, begin.own);
        MachineUse {
            others: (percent(self.busy, begin.busy) - own).max(0.0),
            stolen: percent(self.stolen, begin.stolen),
            queued: percent(self.queued, begin.queued),
        }
    }
}

/// What the machine did besides a bench, in percent of its CPUs' time.
#[derive(Clone, Copy, Debug, PartialEq)]
struct MachineUse {
    others: f64,
    stolen: f64,
    /// Tasks that waited, also those of the bench.
    queued: f64,
}

impl MachineUse {
    fn note(&self) -> String {
        let MachineUse {
            others,
            stolen,
            queued,
        } = self;
        let doubt = match *others > MOST_OTHERS || *stolen > MOST_STOLEN {
            true => "not to be trusted: the machine was busy: ",
            false => "",
        };
        format!(
            "{doubt}other programs used {others:.1} % of the CPUs' time, {stolen:.1} % was stolen, and tasks waited for a CPU \
             {queued:.1} % of it"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "cpu  100 0 100 700 0 0 0 100 0 0\ncpu0 1 2 3\n";
    const LATER: &str = "cpu  200 0 150 740 0 0 0 110 0 0\n";
    const SCHEDSTAT: &str = "version 17\ntimestamp 1\ncpu0 0 0 1 2 3 4 5 6000000 7\ndomain0 3 1\ncpu1 0 0 1 2 3 4 5 1 7\n";

    fn times(stat: &str, queued: &str, own_ms: u64) -> MachineTimes {
        let own = Duration::from_millis(own_ms);
        MachineTimes::parse(stat, queued, own).expect("the kernel's form")
    }

    /// Regression: a bench beside other programs printed its numbers as on a quiet machine.
    #[test]
    fn other_programs_and_stolen_time_are_noted() {
        let (begin, end) = (times(STAT, "", 100), times(LATER, SCHEDSTAT, 1_000));
        let used = end.since(&begin);
        assert_eq!((used.others, used.stolen), (30.0, 5.0));
        let note = used.note();
        assert!(
            note.starts_with("not to be trusted: the machine was busy: other programs used 30.0 %"),
            "{note}"
        );
        assert!(
            note.contains("5.0 % was stolen, and tasks waited for a CPU 0.3 %"),
            "{note}"
        );
        let quiet = times(LATER, "", 1_600).since(&begin);
        assert_eq!((quiet.others, quiet.queued), (0.0, 0.0));
        let quiet = MachineUse {
            stolen: 0.0,
            ..quiet
        };
        assert!(quiet.note().starts_with("other programs used 0.0 %"));
    }

    #[test]
    fn a_kernel_without_these_files_gives_no_note() {
        for stat in ["", "cpu 1 2\n", "cpu a b c d e f g h\n"] {
            assert_eq!(MachineTimes::parse(stat, "", Duration::ZERO), None);
        }
    }

    #[test]
    fn a_bench_that_ran_alone_has_one_note_more() {
        let table = watched(|| Ok::<_, ()>(Table::default())).expect("nothing fails");
        assert!(table.notes[0].contains("other programs used "), "{table}");
    }
}
