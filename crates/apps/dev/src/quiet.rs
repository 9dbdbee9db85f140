//! Reports what else the machine did during a bench, because other programs and tracers change its results.

use std::time::{Duration, Instant};

use tiptoe_sys::host::{ForeignTracer, Process, foreign_tracers};

use crate::table::Table;

/// For how long the kernel may still list a closed BPF program.
const FORGETS: Duration = Duration::from_millis(500);
/// Results are doubtful if other programs use more than this percentage of CPU time, or the hypervisor steals more than
/// [`MOST_STOLEN`].
const MOST_OTHERS: f64 = 2.0;
const MOST_STOLEN: f64 = 0.5;
/// The unit of /proc/stat.
const TICK: Duration = Duration::from_millis(10);

fn of_ticks(ticks: u64) -> Duration {
    Duration::from_millis(10 * ticks)
}

pub(crate) fn watched<E>(bench: impl FnOnce() -> Result<Table, E>) -> Result<Table, E> {
    let before = foreign_tracers();
    let (begin, begun) = (MachineTimes::read(), Instant::now());
    let mut table = bench()?;
    let (end, took) = (MachineTimes::read(), begun.elapsed());
    table.keep_numbers();
    table.notes.extend(table.scattered());
    let use_of_machine = begin.zip(end).map(|(begin, end)| end.since(&begin, took));
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

/// CPU times since boot. `own` is the CPU time of this process and its ended children.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct MachineTimes {
    all: Duration,
    busy: Duration,
    stolen: Duration,
    /// The wall time in which a task was ready but had no CPU.
    queued: Option<Duration>,
    own: Duration,
}

impl MachineTimes {
    fn read() -> Option<MachineTimes> {
        let stat = std::fs::read_to_string("/proc/stat").ok()?;
        let pressure = std::fs::read_to_string("/proc/pressure/cpu").unwrap_or_default();
        let own = Process::current();
        let own = own.cpu_time().ok()? + own.children_cpu_time().ok()?;
        MachineTimes::parse(&stat, &pressure, own)
    }

    /// Parses the first line of /proc/stat, and /proc/pressure/cpu, which may be empty.
    fn parse(stat: &str, pressure: &str, own: Duration) -> Option<MachineTimes> {
        let ticks = stat.lines().next()?.strip_prefix("cpu ")?;
        let ticks = ticks.split_whitespace().map(|ticks| ticks.parse::<u64>());
        let ticks = ticks.collect::<Result<Vec<u64>, _>>().ok()?;
        let &[user, nice, system, idle, iowait, irq, softirq, stolen, ..] = &ticks[..] else {
            return None;
        };
        let busy = user + nice + system + irq + softirq;
        let some = pressure.lines().find(|line| line.starts_with("some "));
        let queued = some.and_then(|line| line.rsplit_once("total=")?.1.parse().ok());
        Some(MachineTimes {
            all: of_ticks(busy + idle + iowait + stolen),
            busy: of_ticks(busy),
            stolen: of_ticks(stolen),
            queued: queued.map(Duration::from_micros),
            own,
        })
    }

    /// Returns the machine's use since `begin`, which was read `took` before `self`.
    fn since(&self, begin: &MachineTimes, took: Duration) -> MachineUse {
        let all = self.all.saturating_sub(begin.all);
        let percent = |now: Duration, then: Duration| {
            100.0 * now.saturating_sub(then).as_secs_f64()
                / all.as_secs_f64().max(TICK.as_secs_f64())
        };
        let own = percent(self.own, begin.own);
        MachineUse {
            others: (percent(self.busy, begin.busy) - own).max(0.0),
            stolen: percent(self.stolen, begin.stolen),
            queued: self.queued.zip(begin.queued).map(|(now, then)| {
                let waited = now.saturating_sub(then).as_secs_f64();
                100.0 * waited / took.max(TICK).as_secs_f64()
            }),
        }
    }
}

/// The use of the machine during a bench, in percent.
#[derive(Clone, Copy, Debug, PartialEq)]
struct MachineUse {
    others: f64,
    stolen: f64,
    /// The part of the time in which a task, perhaps of the bench, waited for a CPU.
    queued: Option<f64>,
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
        let queued = queued.map_or(String::new(), |queued| {
            format!(", and some task waited for a CPU in {queued:.1} % of the time")
        });
        format!(
            "{doubt}other programs used {others:.1} % of the CPUs' time, {stolen:.1} % was stolen{queued}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "cpu  100 0 100 700 0 0 0 100 0 0\ncpu0 1 2 3\n";
    const LATER: &str = "cpu  200 0 150 740 0 0 0 110 0 0\n";
    const PRESSURE: [&str; 2] = [
        "some avg10=65.05 avg60=62.77 avg300=68.01 total=1000000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n",
        "some avg10=65.05 avg60=62.77 avg300=68.01 total=1250000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=9\n",
    ];
    const SECOND: Duration = Duration::from_secs(1);

    fn times(stat: &str, queued: &str, own_ms: u64) -> MachineTimes {
        let own = Duration::from_millis(own_ms);
        MachineTimes::parse(stat, queued, own).expect("the kernel's form")
    }

    #[test]
    fn other_programs_and_stolen_time_are_noted() {
        let (begin, end) = (
            times(STAT, PRESSURE[0], 100),
            times(LATER, PRESSURE[1], 1_000),
        );
        let used = end.since(&begin, SECOND);
        assert_eq!(
            (used.others, used.stolen, used.queued),
            (30.0, 5.0, Some(25.0))
        );
        assert_eq!(
            used.note(),
            "not to be trusted: the machine was busy: other programs used 30.0 % of the CPUs' time, 5.0 % was stolen, and \
             some task waited for a CPU in 25.0 % of the time"
        );
        let quiet = times(LATER, "", 1_600).since(&begin, SECOND);
        assert_eq!((quiet.others, quiet.queued), (0.0, None));
        let quiet = MachineUse {
            stolen: 0.0,
            ..quiet
        };
        assert_eq!(
            quiet.note(),
            "other programs used 0.0 % of the CPUs' time, 0.0 % was stolen"
        );
    }

    /// Regression: ticks were read as 32-bit numbers, so 64 CPUs that had run for eight days gave no note.
    #[test]
    fn a_large_machine_that_has_run_for_long_has_notes() {
        let stat = "cpu  5000000000 0 100 700 0 0 0 100 0 0\n";
        assert_eq!(times(stat, "", 0).busy, of_ticks(5_000_000_100));
    }

    #[test]
    fn a_kernel_without_these_files_gives_no_note() {
        for stat in ["", "cpu 1 2\n", "cpu a b c d e f g h\n"] {
            assert_eq!(MachineTimes::parse(stat, "", Duration::ZERO), None);
        }
    }

    #[test]
    fn a_bench_on_a_quiet_machine_has_one_note_more() {
        let table = watched(|| Ok::<_, ()>(Table::default())).expect("nothing fails");
        assert!(table.notes[0].contains("other programs used "), "{table}");
    }
}
