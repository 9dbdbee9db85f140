use std::path::Path;

use tiptoe_schedule::simulate::Switch;

use super::cgroups::Cgroups;
use crate::failure::{Failure, TraceFault};

/// The most CPUs, because the largest CPU number in a trace determines the size of an allocation.
const MOST_CPUS: usize = 4096;

/// Switches from a file. Times are since the file's first line.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Trace {
    pub cpus: Vec<Vec<Switch>>,
    pub end_ns: u64,
}

/// Reads lines `SECONDS CPU CGROUP` and `#` comments, and creates the cgroups. Fails at the first bad line.
pub fn read(path: &Path, cgroups: &mut Cgroups) -> Result<Trace, Failure> {
    let text = std::fs::read_to_string(path);
    let path = path.to_owned();
    match text.map(|text| parse(&text, cgroups)) {
        Ok(Ok(trace)) => Ok(trace),
        Ok(Err((line, fault))) => Err(Failure::BadTrace { path, line, fault }),
        Err(error) => Err(Failure::UnreadableTrace { path, error }),
    }
}

fn parse(text: &str, cgroups: &mut Cgroups) -> Result<Trace, (usize, TraceFault)> {
    let mut trace = Trace::default();
    let mut first_ns = None;
    for (at, line) in text.lines().enumerate() {
        let bad = |fault| (at + 1, fault);
        let words: Vec<&str> = line.split_whitespace().collect();
        let [seconds, cpu, cgroup] = words[..] else {
            match words.first() {
                Some(word) if !word.starts_with('#') => return Err(bad(TraceFault::Words)),
                _ => continue,
            }
        };
        if seconds.starts_with('#') {
            continue;
        }
        let ns = nanoseconds(seconds).ok_or(bad(TraceFault::Time))?;
        let cpu: usize = cpu
            .parse()
            .ok()
            .filter(|cpu| *cpu < MOST_CPUS)
            .ok_or(bad(TraceFault::Cpu))?;
        let label = cgroups.label(cgroup).ok_or(bad(TraceFault::Cgroup))?;
        let first_ns = *first_ns.get_or_insert(ns);
        let at_ns = ns
            .checked_sub(first_ns)
            .ok_or(bad(TraceFault::BeforeFirst))?;
        if trace.cpus.len() <= cpu {
            trace.cpus.resize(cpu + 1, Vec::new());
        }
        let switches = &mut trace.cpus[cpu];
        if switches
            .last()
            .is_some_and(|last: &Switch| last.at_ns > at_ns)
        {
            return Err(bad(TraceFault::BeforePrevious));
        }
        switches.push(Switch { at_ns, label });
        trace.end_ns = trace.end_ns.max(at_ns);
    }
    match trace.end_ns {
        0 => Err((1, TraceFault::NoTime)),
        _ => Ok(trace),
    }
}

/// Parses seconds exactly, without floating point, to nine digits.
fn nanoseconds(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(part) {
        return None;
    }
    let part: u64 = format!("{part:0<9}")[..9].parse().ok()?;
    whole
        .parse::<u64>()
        .ok()?
        .checked_mul(1_000_000_000)?
        .checked_add(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_a_trace_count_from_its_first_line() {
        let mut cgroups = Cgroups::named(Some("a,b")).unwrap();
        let text = "# recorded\n100.5 0 a\n100.5000005 1 /b/x\n\n101 0 /\n";
        let trace = parse(text, &mut cgroups).unwrap();
        let at: Vec<Vec<u64>> = trace
            .cpus
            .iter()
            .map(|cpu| cpu.iter().map(|switch| switch.at_ns).collect())
            .collect();
        assert_eq!(at, [vec![0, 500_000_000], vec![500]]);
        assert_eq!(trace.end_ns, 500_000_000);
    }

    #[test]
    fn a_bad_trace_is_refused_with_its_line() {
        for (text, line, fault) in [
            ("1 0 a\n2 0\n", 2, TraceFault::Words),
            ("1 0 a\nx 0 a\n", 2, TraceFault::Time),
            ("1 0 a\n-1 0 a\n", 2, TraceFault::Time),
            ("1 0 a\n2 4096 a\n", 2, TraceFault::Cpu),
            ("1 0 a\n2 0 a//b\n", 2, TraceFault::Cgroup),
            ("2 0 a\n1 0 a\n", 2, TraceFault::BeforeFirst),
            ("1 0 a\n3 0 b\n2 0 a\n", 3, TraceFault::BeforePrevious),
            ("", 1, TraceFault::NoTime),
            ("1 0 a\n", 1, TraceFault::NoTime),
        ] {
            let mut cgroups = Cgroups::named(Some("a,b")).unwrap();
            assert_eq!(parse(text, &mut cgroups), Err((line, fault)), "{text:?}");
        }
    }
}
