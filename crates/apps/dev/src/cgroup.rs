//! `tiptoe-dev bench cgroup`: how much counting for cgroups adds to a switch between two of them.
//!
//! - `switch`: two tasks in two cgroups hand a byte to each other on one CPU. The cases are no counting,
//!   events of the system, perf's events of cgroups (with and without events of the system), a bpftrace script, and
//!   three of tiptoe ([`counting::CountingCase`]).
//! - `switch on each CPU`: a pair of such tasks on each CPU, all at once.
//! - `within`: two tasks of one cgroup hand a byte to each other. Further cases count these two processes alone, as
//!   `stat -p` does.
//! - `ring`: many tasks, each in its own cgroup, hand a byte round.
//! - `response`: the geometric mean response time of six workers of different kinds in six cgroups (`program.c`), while
//!   all counts are read each second, as `perf stat -I 1000` does.
//! - `birth` and `end`: the time to create a process or a thread, and the time from its last instruction until its
//!   parent has waited for it.
//! - `blind`: how long an event of the system, a clock, does not count at each switch: its enabled time minus its
//!   count.

use std::time::{Duration, Instant};

use crate::error::Error;
use crate::options::Options;
use crate::table::{Table, TableRow, median_and_spread};
use crate::turns::{CaseResults, in_turns, ratio};
use crate::workshop::{Program, Workshop};

mod counting;
mod folder;

use counting::{Counting, CountingCase};
use folder::Folder;

const PROGRAM: &str = include_str!("cgroup/program.c");
/// The child cgroups, as many as in the published test of perf's cgroup switches.
const CHILDREN: usize = 6;
const RINGS: [usize; 4] = [7, 50, 200, 1000];
/// How often the byte is handed on, in about 10 ms, for each requested ms.
const HOPS_PER_MS: u32 = 5_000;
/// The factor by which `ring` runs longer, until times are steady.
const LONGER: u32 = 10;

const fn perf(events: usize, with_system: bool) -> CountingCase {
    CountingCase::Perf {
        events,
        with_system,
    }
}

const fn tiptoe(events: usize) -> CountingCase {
    CountingCase::Tiptoe { events }
}

const SWITCH: [CountingCase; 16] = [
    CountingCase::Off,
    CountingCase::System,
    perf(2, true),
    perf(1, false),
    perf(2, false),
    perf(4, false),
    perf(8, false),
    perf(20, false),
    CountingCase::Bpftrace,
    tiptoe(0),
    CountingCase::PerCpu,
    tiptoe(1),
    tiptoe(2),
    tiptoe(4),
    tiptoe(8),
    tiptoe(20),
];
const WITHIN: [CountingCase; 7] = [
    CountingCase::Off,
    CountingCase::System,
    perf(2, true),
    tiptoe(0),
    CountingCase::PerCpu,
    CountingCase::PerfOfProcesses,
    CountingCase::TiptoeOfProcesses,
];
const RING: [CountingCase; 4] = [
    CountingCase::Off,
    perf(2, false),
    tiptoe(0),
    CountingCase::PerCpu,
];
const LIVES: [CountingCase; 5] = [
    CountingCase::Off,
    CountingCase::System,
    perf(2, false),
    tiptoe(0),
    CountingCase::PerCpu,
];
/// For each kind of task, its letter in questions to the program, and the names of its rows.
const KINDS: [(char, [&str; 2]); 2] = [
    ('p', ["birth of a process", "end of a process"]),
    ('t', ["birth of a thread", "end of a thread"]),
];
const LIVES_PER_MS: u32 = 500;
const RESPONSE: [CountingCase; 7] = [
    CountingCase::Off,
    CountingCase::System,
    perf(2, true),
    tiptoe(0),
    CountingCase::PerCpu,
    tiptoe(1),
    tiptoe(2),
];
const INTERVAL: Duration = Duration::from_secs(1);
const READINGS: u32 = 2;

pub(crate) fn run(options: &Options) -> Result<Table, Error> {
    let mut table = Table {
        bench: "cgroup".into(),
        ..Table::default()
    };
    let folder = Folder::new(RINGS[RINGS.len() - 1])?;
    let workshop = Workshop::new("cgroup", PROGRAM)?;
    let mut bench = CgroupBench {
        program: workshop.start(None)?,
        folder,
        options,
    };
    let found = bench.ring("switch", &SWITCH, 2, CHILDREN, &mut table)?;
    compare(&mut table, "switch", "switch", &found);
    let found = bench.ring("within", &WITHIN, 2, 1, &mut table)?;
    compare(&mut table, "within", "switch", &found);
    for cgroups in RINGS {
        let site = format!("ring of {cgroups}");
        let found = bench.ring(&site, &RING, cgroups, cgroups, &mut table)?;
        compare(&mut table, &site, "switch", &found);
    }
    for &cpus in &options.threads {
        bench.switch_on(cpus, &workshop, &mut table)?;
    }
    for (kind, sites) in KINDS {
        bench.lives(kind, sites, &mut table)?;
    }
    bench.response(&mut table)?;
    bench.blind(&mut table)?;
    Ok(table)
}

struct CgroupBench<'a> {
    program: Program,
    folder: Folder,
    options: &'a Options,
}

impl CgroupBench<'_> {
    fn ring(
        &mut self,
        site: &str,
        cases: &[CountingCase],
        tasks: usize,
        cgroups: usize,
        table: &mut Table,
    ) -> Result<CaseResults<CountingCase>, Error> {
        let path = self.folder.path().display().to_string();
        self.program
            .ask(&format!("ring {path} {tasks} {cgroups}"))?;
        let longer = if tasks > 2 { LONGER } else { 1 };
        let hops = HOPS_PER_MS * self.options.ms * longer;
        let named = |case: CountingCase| format!("{} {site}", case.name());
        let pid = self.program.pid();
        let found = in_turns(self.options.rounds, cases, named, table, |case| {
            let _counting = Counting::start(case, &self.folder, cgroups.max(CHILDREN), pid)?;
            self.program.ask(&format!("hops {}", hops / 10))?;
            self.program.ask(&format!("hops {hops}"))
        });
        self.program.ask("stop")?;
        found
    }

    fn switch_on(
        &mut self,
        cpus: u32,
        workshop: &Workshop,
        table: &mut Table,
    ) -> Result<(), Error> {
        let path = self.folder.path().display().to_string();
        let mut pairs = Vec::new();
        for cpu in 0..cpus {
            let mut pair = workshop.start(None)?;
            pair.ask(&format!("cpu {cpu}"))?;
            pair.ask(&format!("ring {path} 2 {CHILDREN}"))?;
            pairs.push(pair);
        }
        let mut together = |hops: u32| {
            for pair in &mut pairs {
                pair.begin(&format!("hops {hops}"))?;
            }
            let times = pairs.iter_mut().map(Program::answer);
            let sum: f64 = times.sum::<Result<f64, Error>>()?;
            Ok(sum / f64::from(cpus))
        };
        let hops = HOPS_PER_MS * self.options.ms;
        let named = |case: CountingCase| format!("{} switch on {cpus} CPUs", case.name());
        let found = in_turns(self.options.rounds, &RING, named, table, |case| {
            let _counting = Counting::start(case, &self.folder, CHILDREN, self.program.pid())?;
            together(hops / 10)?;
            together(hops)
        })?;
        for (case, times) in &found.cases {
            let row = TableRow::new(case.name(), times, "ns").at("switch on each CPU");
            table.rows.push(row.of_threads(cpus));
        }
        Ok(())
    }

    fn lives(&mut self, kind: char, sites: [&str; 2], table: &mut Table) -> Result<(), Error> {
        let path = self.folder.path().display().to_string();
        let lives = LIVES_PER_MS * self.options.ms;
        let named = |case: CountingCase| format!("{} {}", case.name(), sites[0]);
        let mut ends: Vec<(CountingCase, Vec<f64>)> = LIVES.map(|case| (case, Vec::new())).into();
        let found = in_turns(self.options.rounds, &LIVES, named, table, |case| {
            let _counting = Counting::start(case, &self.folder, CHILDREN, self.program.pid())?;
            let mut ask = |lives| self.program.ask(&format!("births {path} {kind} {lives}"));
            ask(lives / 10 + 1)?;
            let born_ns = ask(lives)?;
            let ended_ns = self.program.ask("ends")?;
            let own = ends.iter_mut().find(|(other, _)| *other == case);
            if let Some((_, times)) = own {
                times.push(ended_ns);
            }
            Ok(born_ns)
        })?;
        ends.retain(|(_, times)| !times.is_empty());
        compare(table, sites[0], "birth", &found);
        compare(table, sites[1], "end", &CaseResults { cases: ends });
        Ok(())
    }

    fn response(&mut self, table: &mut Table) -> Result<(), Error> {
        let path = self.folder.path().display().to_string();
        let time = (50 * Duration::from_millis(self.options.ms.into())).max(INTERVAL * READINGS);
        let question = format!("serve {path} {CHILDREN} {}", time.as_millis());
        let named = |case: CountingCase| format!("{} response", case.name());
        let found = in_turns(self.options.rounds, &RESPONSE, named, table, |case| {
            let mut counting = Counting::start(case, &self.folder, CHILDREN, self.program.pid())?;
            self.program.begin(&question)?;
            let begun = Instant::now();
            let mut next = INTERVAL;
            while next <= time {
                std::thread::sleep(next.saturating_sub(begun.elapsed()));
                counting.read()?;
                next += INTERVAL;
            }
            self.program.answer()
        })?;
        let bare = &found.cases[0].1;
        for (case, times) in &found.cases {
            let times: Vec<f64> = times.iter().map(|ns| ns / 1000.0).collect();
            table
                .rows
                .push(TableRow::new(case.name(), &times, "us").at("response"));
        }
        for (case, times) in &found.cases[1..] {
            let (ratio, spread) = ratio(times, bare);
            table.notes.push(format!(
                "response: {} {:+.1} % (± {:.1}), read each second",
                case.name(),
                100.0 * (ratio - 1.0),
                100.0 * spread
            ));
        }
        Ok(())
    }

    fn blind(&mut self, table: &mut Table) -> Result<(), Error> {
        let path = self.folder.path().display().to_string();
        self.program.ask(&format!("ring {path} 2 {CHILDREN}"))?;
        let hops = HOPS_PER_MS * self.options.ms;
        for case in [perf(2, true), tiptoe(1)] {
            let mut blind = Vec::new();
            for _ in 0..self.options.rounds {
                let counting = Counting::start(case, &self.folder, CHILDREN, self.program.pid())?;
                let before = counting.blind_ns()?;
                self.program.ask(&format!("hops {hops}"))?;
                blind.push((counting.blind_ns()? - before) / f64::from(hops));
            }
            table
                .rows
                .push(TableRow::new(case.name(), &blind, "ns").at("blind"));
        }
        self.program.ask("stop")?;
        Ok(())
    }
}

fn compare(table: &mut Table, site: &str, what: &str, found: &CaseResults<CountingCase>) {
    let bare = &found.cases[0].1;
    let rows = found.cases.iter();
    table
        .rows
        .extend(rows.map(|(case, times)| TableRow::new(case.name(), times, "ns").at(site)));
    for (case, times) in &found.cases[1..] {
        let more: Vec<f64> = times
            .iter()
            .zip(bare)
            .map(|(with, bare)| with - bare)
            .collect();
        let (more, spread) = median_and_spread(&more);
        let (times, _) = ratio(times, bare);
        table.notes.push(format!(
            "{site}: {} adds {more:.0} ns (± {spread:.0}) to each {what}, {times:.2} times",
            case.name()
        ));
    }
}
