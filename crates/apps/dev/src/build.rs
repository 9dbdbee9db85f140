//! `tiptoe-dev bench build`: how much longer a build of a C project takes while `tiptoe lock --kernel --mmap -a`
//! watches the system's waits for mmap_lock.
//!
//! Each round builds the project without a tracer (`off`), with waits watched (`contended`), and with every acquisition
//! watched (`every`). The order of the cases changes, so that a change of the machine's speed affects all alike. The
//! page cache is dropped before each build.
//!
//! Most processes of a build have one thread and rarely wait for mmap_lock. So `faults` compares the same cases on the
//! threads of one process, which map, touch and unmap memory.
//!
//! A note prints how much longer a case takes, as a trimmed mean: the smallest and the largest fifth of the rounds'
//! differences are dropped, because another program may make one build 10 % longer. The interval is Yuen's (Biometrika
//! 61, 1974), from Student's t and the winsorized variance.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use tiptoe_event::WaitSelection;
use tiptoe_session::Session;
use tiptoe_sys::host::Process;

use crate::driver::Tracing;
use crate::error::Error;
use crate::options::Options;
use crate::table::{Table, TableRow, median_and_spread};
use crate::workshop::failed;

mod faults;

use faults::FaultLoad;

const SOURCE: &str = "TIPTOE_BENCH_SOURCE";
/// The half width of the interval of `contended`, in percentage points, at which rounds end.
const NARROW: f64 = 0.5;
/// The fewest rounds whose interval means something.
const FEWEST: usize = 8;
const TRIMMED: f64 = 0.2;

const CASES: [(&str, Option<WaitSelection>); 3] = [
    ("off", None),
    ("contended", Some(WaitSelection::ContendedMmap)),
    ("every", Some(WaitSelection::EveryMmap)),
];

#[derive(Default)]
struct BuildRounds {
    rounds: Vec<[Option<BuildCost>; CASES.len()]>,
    /// The percentage of all CPU time in which tiptoe's kernel programs ran.
    programs: [Vec<f64>; CASES.len()],
    counted: [Vec<f64>; CASES.len()],
}

impl BuildRounds {
    fn more(&self, case: usize, of: fn(&BuildCost) -> f64) -> Vec<f64> {
        let rounds = self.rounds.iter();
        let pairs = rounds.filter_map(|round| Some((round[0].as_ref()?, round[case].as_ref()?)));
        pairs
            .map(|(off, on)| 100.0 * (of(on) / of(off) - 1.0))
            .collect()
    }

    fn seconds(&self, case: usize) -> Vec<f64> {
        let builds = self.rounds.iter().filter_map(|round| round[case].as_ref());
        builds.map(|took| took.seconds).collect()
    }
}

fn turns(round: usize) -> [usize; CASES.len()] {
    const ORDERS: [[usize; CASES.len()]; 6] = [
        [0, 1, 2],
        [2, 1, 0],
        [1, 2, 0],
        [0, 2, 1],
        [2, 0, 1],
        [1, 0, 2],
    ];
    ORDERS[round % ORDERS.len()]
}

pub(crate) fn run(options: &Options) -> Result<Table, Error> {
    let mut table = Table {
        bench: "build".into(),
        ..Table::default()
    };
    match source() {
        Ok(source) => {
            build(&source)?; // Not measured: the first build may have more to do.
            let found = rounds(options, || build(&source))?;
            let what = format!("builds in {}", source.display());
            add(&mut table, "build", &found);
            table.notes.push(format!(
                "{} rounds of {what}, the page cache dropped before each",
                found.rounds.len()
            ));
        }
        Err(error) => table.notes.push(format!("skipped: build ({error})")),
    }
    let mut load = FaultLoad::start(options)?;
    load.run()?;
    let found = rounds(options, || load.run())?;
    add(&mut table, "faults", &found);
    table
        .notes
        .push(format!("{} rounds of {}", found.rounds.len(), load.about()));
    Ok(table)
}

fn rounds(
    options: &Options,
    mut work: impl FnMut() -> Result<BuildCost, Error>,
) -> Result<BuildRounds, Error> {
    let mut found = BuildRounds::default();
    for round in 0..options.pairs {
        let mut builds = [const { None }; CASES.len()];
        for case in turns(round) {
            let tracing = CASES[case].1.map(Tracing::kernel_locks);
            builds[case] = Some(work()?);
            let session = tracing.map(Tracing::finish).transpose()?;
            found.programs[case].extend(session.as_ref().and_then(share_of_programs));
            found.counted[case].extend(session.as_ref().map(counted));
        }
        found.rounds.push(builds);
        let (_, half) = trimmed_and_half_width(&found.more(1, |took| took.seconds));
        if round + 1 >= FEWEST && half <= NARROW {
            break;
        }
    }
    Ok(found)
}

fn counted(session: &Session) -> f64 {
    let counts = session.events.iter().map(|event| event.count);
    counts.sum::<u64>() as f64
}

fn source() -> Result<PathBuf, Error> {
    let named = std::env::var_os(SOURCE).map(PathBuf::from);
    let has_makefile =
        |path: &PathBuf| path.join("Makefile").is_file() || path.join("makefile").is_file();
    let named = named.filter(|path| !path.as_os_str().is_empty());
    named.filter(has_makefile).ok_or(Error::NoSource)
}

struct BuildCost {
    seconds: f64,
    /// The CPU time of all the build's processes, which includes tiptoe's BPF programs at their tracepoints.
    cpu: f64,
}

fn build(source: &Path) -> Result<BuildCost, Error> {
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let make = |arguments: &[&str]| {
        let mut command = Command::new("make");
        command.arg("-C").arg(source).args(arguments);
        let output = command.stdin(Stdio::null()).output();
        let output = output.map_err(failed("running `make`"))?;
        match output.status.success() {
            true => Ok(()),
            false => Err(Error::Compile(
                String::from_utf8_lossy(&output.stderr).into_owned(),
            )),
        }
    };
    make(&["clean"])?;
    drop_page_cache()?;
    let before = children_cpu_time()?;
    let begun = Instant::now();
    make(&[&format!("-j{jobs}")])?;
    Ok(BuildCost {
        seconds: begun.elapsed().as_secs_f64(),
        cpu: children_cpu_time()? - before,
    })
}

fn drop_page_cache() -> Result<(), Error> {
    let done = Command::new("sync").status();
    done.map_err(failed("running `sync`"))?;
    std::fs::write("/proc/sys/vm/drop_caches", "3").map_err(failed("dropping the page cache"))
}

fn children_cpu_time() -> Result<f64, Error> {
    let time = Process::current().children_cpu_time();
    let time = time.map_err(std::io::Error::other);
    Ok(time
        .map_err(failed("reading the CPU time of `make`"))?
        .as_secs_f64())
}

fn share_of_programs(session: &Session) -> Option<f64> {
    let ran = session.cost.programs.as_ref()?.all_run_ns?;
    Some(100.0 * ran as f64 / session.cpu_ns.max(1) as f64)
}

fn add(table: &mut Table, site: &str, found: &BuildRounds) {
    for (case, (name, watched)) in CASES.iter().enumerate() {
        let seconds = found.seconds(case);
        if seconds.is_empty() {
            continue;
        }
        table
            .rows
            .push(TableRow::new(*name, &seconds, "s").at(site));
        if watched.is_some() {
            table
                .notes
                .push(format!("{site}: {}", note(name, case, found)));
        }
    }
}

fn note(name: &str, case: usize, found: &BuildRounds) -> String {
    let interval = |of| {
        let more = found.more(case, of);
        let (trimmed, half) = trimmed_and_half_width(&more);
        let (low, high) = (trimmed - half, trimmed + half);
        let mean = more.iter().sum::<f64>() / more.len() as f64;
        match half.is_finite() {
            true => format!(
                "{trimmed:+.2} % (95% interval {low:+.2} to {high:+.2}; plain mean {mean:+.2})"
            ),
            false => format!("{mean:+.2} % (too few rounds for an interval)"),
        }
    };
    let (longer, cpu) = (interval(|took| took.seconds), interval(|took| took.cpu));
    let programs = match &found.programs[case][..] {
        [] => String::new(),
        shares => {
            let (share, _) = median_and_spread(shares);
            format!("; tiptoe's programs in the kernel ran {share:.3} % of all CPU time")
        }
    };
    let counted = match &found.counted[case][..] {
        [] => String::new(),
        counts => format!("; {:.0} were counted", median_and_spread(counts).0),
    };
    format!("{name} takes {longer} longer, and {cpu} more CPU time{programs}{counted}")
}

fn trimmed_and_half_width(values: &[f64]) -> (f64, f64) {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let count = values.len();
    let out = (TRIMMED * count as f64) as usize;
    let kept = values.get(out..count - out).unwrap_or_default();
    let [Some(first), Some(last)] = [kept.first(), kept.last()] else {
        return (f64::NAN, f64::INFINITY);
    };
    let trimmed = kept.iter().sum::<f64>() / kept.len() as f64;
    if kept.len() < 2 {
        return (trimmed, f64::INFINITY);
    }
    let winsorized: Vec<f64> = values.iter().map(|v| v.clamp(*first, *last)).collect();
    let mean = winsorized.iter().sum::<f64>() / count as f64;
    let squares: f64 = winsorized.iter().map(|value| (value - mean).powi(2)).sum();
    let h = kept.len() as f64;
    let error = (squares / (h * (h - 1.0))).sqrt();
    (trimmed, students_t(kept.len() - 1) * error)
}

/// Returns the two-sided 95% quantile of Student's t; from 30 degrees of freedom on, the first terms of its expansion
/// around the normal quantile.
fn students_t(freedom: usize) -> f64 {
    const TABLE: [f64; 29] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
        2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
        2.052, 2.048, 2.045,
    ];
    const NORMAL: f64 = 1.959_964;
    let known = freedom.checked_sub(1).and_then(|at| TABLE.get(at));
    known.copied().unwrap_or_else(|| {
        let correction = (NORMAL.powi(3) + NORMAL) / (4.0 * freedom as f64);
        NORMAL + correction
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_yuens() {
        let (mean, half) = trimmed_and_half_width(&[1.0, 2.0, 3.0, 4.0]);
        assert!(
            (mean - 2.5).abs() < 1e-9 && (half - 2.054).abs() < 1e-3,
            "{half}"
        );
        // A value is dropped at each end. The winsorized variance is the variance of 2, 2, 3, 4, 4.
        let (mean, half) = trimmed_and_half_width(&[1.0, 2.0, 3.0, 4.0, 99.0]);
        assert!(
            (mean - 3.0).abs() < 1e-9 && (half - 3.513).abs() < 1e-3,
            "{half}"
        );
        assert!((students_t(30) - 2.042).abs() < 5e-3);
        assert!(trimmed_and_half_width(&[1.0]).1.is_infinite());
        assert!(trimmed_and_half_width(&[]).1.is_infinite());
    }

    #[test]
    fn intervals_contain_the_true_value_as_often_as_promised() {
        let mut seed = 1_u64;
        let mut uniform = || {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) as f64 / f64::from(1_u32 << 31)
        };
        for disturbed in [0.0, 0.1] {
            let mut build = || {
                let normal = (0..12).map(|_| uniform()).sum::<f64>() - 6.0;
                let more = if uniform() < disturbed { 10.0 } else { 0.0 };
                100.0 + normal + more
            };
            let mut bench = || {
                let pairs = (0..30).map(|_| 0.5 + build() - build());
                let (mean, half) = trimmed_and_half_width(&pairs.collect::<Vec<_>>());
                (mean - 0.5).abs() < half
            };
            let held = (0..1000).filter(|_| bench()).count();
            assert!((925..=975).contains(&held), "{disturbed}: {held}");
        }
    }

    #[test]
    fn each_build_is_compared_with_its_rounds_own() {
        let took = |seconds, cpu| Some(BuildCost { seconds, cpu });
        let found = BuildRounds {
            rounds: vec![
                [took(10.0, 5.0), took(11.0, 5.0), took(15.0, 5.5)],
                [took(20.0, 5.0), took(20.0, 5.0), None],
                [took(20.0, 5.0), took(20.0, 5.0), took(40.0, 5.5)],
            ],
            ..BuildRounds::default()
        };
        let longer = found.more(1, |took| took.seconds);
        assert!((longer[0] - 10.0).abs() < 1e-9 && longer[1] == 0.0);
        let note = note("every", 2, &found);
        assert!(note.contains("takes +75.00 % (95% interval "), "{note}");
        let cpu = "and +10.00 % (95% interval +10.00 to +10.00; plain mean +10.00) more CPU time";
        assert!(note.contains(cpu), "{note}");
    }

    #[test]
    fn too_few_rounds_have_no_interval() {
        let took = |seconds| Some(BuildCost { seconds, cpu: 5.0 });
        let found = BuildRounds {
            rounds: vec![[took(10.0), took(11.0), None]],
            ..BuildRounds::default()
        };
        let few = "(too few rounds for an interval)";
        let note = note("contended", 1, &found);
        assert_eq!(
            note,
            format!("contended takes +10.00 % {few} longer, and +0.00 % {few} more CPU time")
        );
    }

    #[test]
    fn each_case_is_as_often_at_each_place() {
        let rounds: Vec<[usize; 3]> = (0..6).map(turns).collect();
        for place in 0..3 {
            for case in 0..3 {
                let count = rounds.iter().filter(|round| round[place] == case).count();
                assert_eq!(count, 2, "case {case} at {place}");
            }
        }
    }
}
