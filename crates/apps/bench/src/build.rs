//! `tiptoe bench build`: how much longer a whole build of a C project takes while the waits for
//! mmap_lock of the whole system are watched, as `tiptoe lock --kernel --mmap -a` does.
//!
//! In each round the project is built three times, in an order that turns: with nobody watching
//! (`off`), with waits watched (`contended`), and with every acquisition (`every`). Before each build the
//! page cache is dropped. It goes on until the 95% interval of `contended` is half a point to both sides, or
//! for so many rounds. The source is a folder with a Makefile; `scripts/bench-source.sh` unpacks one.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use tiptoe_collector::Watched;
use tiptoe_session::Session;
use tiptoe_sys::host::Process;

use crate::driver::Tracing;
use crate::error::Error;
use crate::options::Options;
use crate::table::{Row, Table, median_and_spread};
use crate::workshop::failed;

/// Names the folder.
const SOURCE: &str = "TIPTOE_BENCH_SOURCE";
/// How far the interval may reach to each side, in points.
const NARROW: f64 = 0.5;
/// No interval is believed of fewer rounds.
const FEWEST: usize = 5;

const CASES: [(&str, Option<Watched>); 3] = [
    ("off", None),
    ("contended", Some(Watched::ContendedMmap)),
    ("every", Some(Watched::EveryMmap)),
];

/// What the rounds found.
#[derive(Default)]
struct Found {
    /// Seconds of each build, by case.
    seconds: [Vec<f64>; CASES.len()],
    /// Seconds of CPU time of each build.
    cpu: [Vec<f64>; CASES.len()],
    /// Percent of all CPU time that tiptoe's programs in the kernel ran.
    programs: [Vec<f64>; CASES.len()],
}

/// By how many percent each of a case took more than the round's own `off`.
fn more(cases: &[Vec<f64>; CASES.len()], case: usize) -> Vec<f64> {
    let pairs = cases[0].iter().zip(&cases[case]);
    pairs.map(|(off, on)| 100.0 * (on / off - 1.0)).collect()
}

/// Builds until it is known.
pub(crate) fn run(options: &Options) -> Result<Table, Error> {
    let source = source()?;
    build(&source)?; // whatever the first build does more
    let mut found = Found::default();
    for round in 0..options.pairs {
        for turn in 0..CASES.len() {
            let case = (round + turn) % CASES.len();
            let (took, session) = timed(&source, CASES[case].1)?;
            found.seconds[case].push(took.seconds);
            found.cpu[case].push(took.cpu);
            found.programs[case].extend(session.as_ref().and_then(share_of_programs));
        }
        let (_, half) = mean_and_half_width(&more(&found.seconds, 1));
        if round + 1 >= FEWEST && half <= NARROW {
            break;
        }
    }
    Ok(table(&found, &source))
}

fn source() -> Result<PathBuf, Error> {
    let named = std::env::var_os(SOURCE).map(PathBuf::from);
    let has_makefile =
        |path: &PathBuf| path.join("Makefile").is_file() || path.join("makefile").is_file();
    named.filter(has_makefile).ok_or(Error::NoSource)
}

/// What a build took.
struct Took {
    seconds: f64,
    /// Of all its processes, our programs at their tracepoints included.
    cpu: f64,
}

/// Cleans and builds, with as many jobs as there are CPUs.
fn build(source: &Path) -> Result<Took, Error> {
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
    Ok(Took {
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

fn timed(source: &Path, watched: Option<Watched>) -> Result<(Took, Option<Session>), Error> {
    let tracing = watched.map(Tracing::kernel_locks);
    let took = build(source)?;
    let session = tracing.map(Tracing::finish).transpose()?;
    Ok((took, session))
}

/// Percent of the system's CPU time.
fn share_of_programs(session: &Session) -> Option<f64> {
    let ran = session.cost.programs.as_ref()?.all_run_ns?;
    Some(100.0 * ran as f64 / session.cpu_ns.max(1) as f64)
}

fn table(found: &Found, source: &Path) -> Table {
    let mut table = Table {
        bench: "build",
        ..Table::default()
    };
    for (case, (name, watched)) in CASES.iter().enumerate() {
        let row = Row::new(*name, &found.seconds[case], "s");
        table.rows.push(row);
        if watched.is_some() {
            table.notes.push(note(name, case, found));
        }
    }
    let rounds = found.seconds[0].len();
    let source = source.display();
    table.notes.push(format!(
        "{rounds} rounds of builds in {source}, the page cache dropped before each"
    ));
    table
}

fn note(name: &str, case: usize, found: &Found) -> String {
    let interval = |cases| {
        let (mean, half) = mean_and_half_width(&more(cases, case));
        let (low, high) = (mean - half, mean + half);
        format!("{mean:+.2} % (95% interval {low:+.2} to {high:+.2})")
    };
    let (longer, cpu) = (interval(&found.seconds), interval(&found.cpu));
    let (programs, _) = median_and_spread(&found.programs[case]);
    format!(
        "{name}: builds take {longer} longer, and {cpu} more CPU time; tiptoe's programs in the kernel ran {programs:.3} % of \
         all CPU time"
    )
}

/// The mean, and half the width of its 95% interval by Student's t.
fn mean_and_half_width(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    if values.len() < 2 {
        return (mean, f64::INFINITY);
    }
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let error = (squares / (n - 1.0) / n).sqrt();
    (mean, students_t(values.len() - 1) * error)
}

/// The two-sided 95% quantile of Student's t: by a table, and from 30 degrees of freedom on by its
/// first terms around the normal one.
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
    fn intervals_are_students() {
        let (mean, half) = mean_and_half_width(&[1.0, 2.0, 3.0, 4.0, 5.0]);
        assert!(
            (mean - 3.0).abs() < 1e-9 && (half - 1.963).abs() < 1e-3,
            "{half}"
        );
        assert!((students_t(30) - 2.042).abs() < 5e-3);
        assert!(mean_and_half_width(&[1.0]).1.is_infinite());
    }

    #[test]
    fn each_build_is_compared_with_its_rounds_own() {
        let found = Found {
            seconds: [vec![10.0, 20.0], vec![11.0, 20.0], vec![15.0, 40.0]],
            cpu: [vec![5.0, 5.0], vec![5.0, 5.0], vec![5.5, 5.5]],
            ..Found::default()
        };
        let longer = more(&found.seconds, 1);
        assert!((longer[0] - 10.0).abs() < 1e-9 && longer[1] == 0.0);
        let note = note("every", 2, &found);
        assert!(
            note.contains("builds take +75.00 % (95% interval "),
            "{note}"
        );
        assert!(
            note.contains("and +10.00 % (95% interval +10.00 to +10.00) more CPU time"),
            "{note}"
        );
    }
}
