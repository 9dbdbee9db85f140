//! Reads recorded switches from a file.

use std::path::Path;

use tiptoe_schedule::simulate::Switch;

use super::cgroups::Cgroups;
use crate::failure::Failure;

/// CPU numbers in a trace must be below this, because they determine the size of an allocation.
const MOST_CPUS: usize = 4096;

/// Recorded switches. Times are since the first line of the trace.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// The switches of each CPU, in order.
    pub cpus: Vec<Vec<Switch>>,
    /// The time of the last switch on any CPU.
    pub end_ns: u64,
}

/// Reads a trace. Each line is `SECONDS CPU CGROUP`; a line that begins with `#` is a comment.
/// Creates the cgroups that it names. Fails at the first bad line.
pub fn read(path: &Path, cgroups: &mut Cgroups) -> Result<Trace, Failure> {
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|error| {
        let what = format!("{} cannot be read: {error}", path.display());
        Failure::new(what).hint("a trace has lines `SECONDS CPU CGROUP`")
    })?;
    parse(&text, cgroups).map_err(|(line, what)| {
        Failure::new(format!("{}:{line}: {what}", path.display()))
            .hint("a line has the time from which a CPU runs a cgroup: 12.000345 3 web/worker")
    })
}

/// Parses a trace. Fails with the number of the first bad line and what is wrong with it.
fn parse(text: &str, cgroups: &mut Cgroups) -> Result<Trace, (usize, String)> {
    let mut trace = Trace::default();
    let mut first_ns = None;
    for (at, line) in text.lines().enumerate() {
        let bad = |what: &str| (at + 1, what.to_owned());
        let words: Vec<&str> = line.split_whitespace().collect();
        let [seconds, cpu, cgroup] = words[..] else {
            match words.first() {
                Some(word) if !word.starts_with('#') => return Err(bad("not three words")),
                _ => continue,
            }
        };
        if seconds.starts_with('#') {
            continue;
        }
        let ns = nanoseconds(seconds).ok_or_else(|| bad("not a time in seconds"))?;
        let cpu: usize = cpu
            .parse()
            .ok()
            .filter(|cpu| *cpu < MOST_CPUS)
            .ok_or_else(|| bad("not the number of a CPU"))?;
        let label = cgroups
            .label(cgroup)
            .ok_or_else(|| bad("not the name of a cgroup"))?;
        let first_ns = *first_ns.get_or_insert(ns);
        let at_ns = ns
            .checked_sub(first_ns)
            .ok_or_else(|| bad("earlier than the first line"))?;
        if trace.cpus.len() <= cpu {
            trace.cpus.resize(cpu + 1, Vec::new());
        }
        let switches = &mut trace.cpus[cpu];
        if switches
            .last()
            .is_some_and(|last: &Switch| last.at_ns > at_ns)
        {
            return Err(bad("earlier than the previous line of this CPU"));
        }
        switches.push(Switch { at_ns, label });
        trace.end_ns = trace.end_ns.max(at_ns);
    }
    match trace.end_ns {
        0 => Err((1, "there is no time between two switches".to_owned())),
        _ => Ok(trace),
    }
}

/// Parses seconds such as `12.000345` exactly, without floating point. Ignores digits after the
/// ninth.
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
        for (text, line, what) in [
            ("1 0 a\n2 0\n", 2, "three words"),
            ("1 0 a\nx 0 a\n", 2, "seconds"),
            ("1 0 a\n-1 0 a\n", 2, "seconds"),
            ("1 0 a\n2 4096 a\n", 2, "CPU"),
            ("1 0 a\n2 0 a//b\n", 2, "cgroup"),
            ("2 0 a\n1 0 a\n", 2, "earlier than the first"),
            ("1 0 a\n3 0 b\n2 0 a\n", 3, "earlier than the previous"),
            ("", 1, "no time"),
            ("1 0 a\n", 1, "no time"),
        ] {
            let mut cgroups = Cgroups::named(Some("a,b")).unwrap();
            let (at, found) = parse(text, &mut cgroups).unwrap_err();
            assert!(
                at == line && found.contains(what),
                "{text:?}: {at}: {found}"
            );
        }
    }
}
