//! The report as text, at most 80 columns wide for log files. Colours only repeat what the words say.

use std::fmt::Write;

use tiptoe_report::{Options, TextRole};

use super::check_result::{CheckResult, Fix, State};
use super::{DoctorReport, ScanGaps};

/// The report's width, which only commands may exceed.
const WIDTH: usize = 80;
/// The width of a result in the table. If something is missing, its whole result is printed again below the table.
const RESULT_WIDTH: usize = WIDTH - 34;

/// Returns the report. If the whole report would push the verdict off the terminal, passed checks are only counted.
pub fn text(report: &DoctorReport, options: &Options) -> String {
    let whole = with_checks(report, 0, options);
    let is_long = |height| whole.lines().count() >= height;
    if !options.height.is_some_and(is_long) {
        return whole;
    }
    let passed = report.checks.iter().filter(|row| row.state == State::Ok);
    with_checks(report, passed.count(), options)
}

/// Returns the report, with the passed checks if `passed` is 0, otherwise with their number, `passed`.
fn with_checks(report: &DoctorReport, passed: usize, options: &Options) -> String {
    let mut out = String::new();
    let (can, not) = report.verdict.parts();
    let _ = writeln!(out, "{}\n", verdict(&can, not.as_deref(), options))
        .and_then(|()| head(&mut out, report))
        .and_then(|()| table(&mut out, &report.checks, passed, options))
        .and_then(|()| missing(&mut out, &report.checks, options))
        .and_then(|()| others(&mut out, report, options));
    out
}

fn verdict(can: &str, not: Option<&str>, options: &Options) -> String {
    let mut text = options.styled(TextRole::Good, can);
    let not = not
        .iter()
        .flat_map(|not| wrapped(not, WIDTH - can.len() - 2));
    for (at, line) in not.enumerate() {
        text += if at == 0 { "; " } else { "\n" };
        text += &options.styled(TextRole::Warning, &line);
    }
    text
}

fn wrapped(text: &str, width: usize) -> Vec<String> {
    let options = Options {
        width: Some(width),
        ..Options::default()
    };
    let text = tiptoe_report::message(text, &options);
    text.lines().map(str::to_owned).collect()
}

fn head(out: &mut String, report: &DoctorReport) -> std::fmt::Result {
    let held = report
        .capabilities
        .iter()
        .map(|name| name.trim_start_matches("cap_"));
    let rights = match held.collect::<Vec<_>>()[..] {
        [] => "no capabilities".to_owned(),
        ref held => format!("capabilities: {}", held.join(" ")),
    };
    writeln!(
        out,
        "tiptoe {}, Linux {}, uid {}",
        report.tiptoe, report.kernel, report.uid
    )?;
    writeln!(out, "{rights}\n")
}

fn table(
    out: &mut String,
    rows: &[CheckResult],
    passed: usize,
    options: &Options,
) -> std::fmt::Result {
    let rows = rows.iter();
    let rows = rows.filter(|row| passed == 0 || row.state != State::Ok);
    let cells = |row: &CheckResult| {
        let (state, role) = state(row.state);
        let found = clip(&row.found, RESULT_WIDTH);
        vec![row.name.to_owned(), options.styled(role, state), found]
    };
    let rows: Vec<Vec<String>> = rows.map(cells).collect();
    let lines = tiptoe_report::table_lines(&["CHECK", "STATE", "FOUND"], &rows);
    let [heading, rows @ ..] = &lines[..] else {
        return Ok(());
    };
    writeln!(out, "  {}", options.styled(TextRole::Heading, heading))?;
    rows.iter().try_for_each(|row| writeln!(out, "  {row}"))?;
    match passed {
        0 => Ok(()),
        _ => writeln!(
            out,
            "  ({passed} checks are ok: on a larger terminal, or --json)"
        ),
    }
}

fn state(state: State) -> (&'static str, TextRole) {
    match state {
        State::Ok => ("ok", TextRole::Good),
        State::Part => ("part", TextRole::Warning),
        State::No => ("NO", TextRole::Error),
    }
}

/// Writes the missing things, grouped by the command that enables them.
fn missing(out: &mut String, rows: &[CheckResult], options: &Options) -> std::fmt::Result {
    let mut commands: Vec<&Fix> = Vec::new();
    for fix in rows.iter().filter_map(|row| row.fix.as_ref()) {
        if !commands.contains(&fix) {
            commands.push(fix);
        }
    }
    if commands.is_empty() {
        return writeln!(
            out,
            "\n{}\n",
            options.styled(TextRole::Good, "Nothing is missing")
        );
    }
    let heading = options.styled(TextRole::Heading, "WHAT IS MISSING, AND WHAT ENABLES IT");
    writeln!(out, "\n{heading}")?;
    for command in commands {
        for row in rows.iter().filter(|row| row.fix.as_ref() == Some(command)) {
            for line in wrapped(&format!("{}: {}", row.name, row.found), WIDTH - 2) {
                writeln!(out, "  {line}")?;
            }
            for limit in &row.limits {
                writeln!(out, "    {:<6} {}", limit.instrument.name(), limit.effect)?;
            }
        }
        let command = options.styled(TextRole::Hint, &format!("=> {command}"));
        writeln!(out, "  {command}\n")?;
    }
    Ok(())
}

fn others(out: &mut String, report: &DoctorReport, options: &Options) -> std::fmt::Result {
    let heading = options.styled(TextRole::Heading, "OTHER TRACERS ON THIS MACHINE");
    writeln!(out, "{heading}")?;
    if report.foreign.is_empty() {
        writeln!(out, "  none that this user can see")?;
    }
    for tracer in &report.foreign {
        let pid = tracer.pid.map_or_else(String::new, |pid| pid.to_string());
        writeln!(
            out,
            "  {pid:>8} {:<16} {}",
            tracer.comm,
            clip(&tracer.what, WIDTH - 28)
        )?;
    }
    for line in gaps(&report.unseen) {
        writeln!(out, "  not seen: {line}")?;
    }
    Ok(())
}

fn gaps(gaps: &ScanGaps) -> Vec<String> {
    let mut lines = Vec::new();
    if gaps.processes > 0 {
        let whose = match gaps.processes {
            1 => "one process".to_owned(),
            many => format!("{many} processes"),
        };
        lines.push(format!("open files of {whose} (no permission)"));
    }
    if gaps.other_pid_namespaces {
        lines.push("processes outside this container".into());
    }
    if gaps.bpf {
        lines.push("BPF programs that no visible process holds (needs cap_sys_admin)".into());
    }
    if gaps.tracefs {
        lines.push("what is enabled in tracefs (see above)".into());
    }
    lines.push("what other perf events count (the kernel does not report it)".into());
    lines
}

fn clip(text: &str, width: usize) -> String {
    match text.char_indices().nth(width) {
        None => text.into(),
        Some(_) => text.chars().take(width - 2).chain("..".chars()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::OtherTracer;
    use super::super::check_result::{Instrument, Limit};
    use super::super::verdict::Verdict;
    use super::*;
    use tiptoe_sys::host::Capabilities;
    use tiptoe_sys::host::tracers::Scan;

    #[test]
    fn no_line_is_wider_than_eighty_columns() {
        let own = DoctorReport::new(Capabilities::get(), Scan::default());
        for report in [own, made_up()] {
            let text = text(&report, &Options::default());
            let mut lines = text.lines();
            let wide = lines.find(|l| l.chars().count() > WIDTH && !l.contains("=> "));
            assert_eq!(wide, None, "{text}");
        }
    }

    /// Log files lose colours, and some users cannot see them.
    #[test]
    fn colours_say_nothing_that_words_do_not() {
        let report = DoctorReport::new(Capabilities::get(), Scan::default());
        let options = Options {
            color: true,
            ..Options::default()
        };
        let coloured = text(&report, &options);
        let parts = coloured
            .split('\x1b')
            .map(|part| match part.split_once('m') {
                Some((style, text)) if style.starts_with('[') => text,
                _ => part,
            });
        let plain = text(&report, &Options::default());
        assert_eq!(parts.collect::<String>(), plain);
        assert!(coloured.contains("\x1b[32mok\x1b[0m"), "{coloured}");
    }

    fn check(name: &'static str, state: State, found: &str) -> CheckResult {
        CheckResult {
            name,
            state,
            found: found.into(),
            limits: Vec::new(),
            fix: None,
        }
    }

    fn lacking(row: CheckResult, limits: &[(Instrument, &'static str)], fix: &Fix) -> CheckResult {
        let limits = limits.iter();
        let limits = limits.map(|&(instrument, effect)| Limit { instrument, effect });
        CheckResult {
            limits: limits.collect(),
            fix: Some(fix.clone()),
            ..row
        }
    }

    fn made_up() -> DoctorReport {
        use Instrument::{Lock, Probe, Stat, Watch};
        let grant = Fix::Advice("sudo setcap cap_bpf,cap_perfmon,cap_sys_ptrace=ep tiptoe".into());
        let pmu = "in a virtual machine: enable its virtual PMU (KVM: -cpu host,pmu=on)";
        let sysctl = Fix::Command(&["sysctl", "kernel.yama.ptrace_scope=0"]);
        let checks = vec![
            check(
                "membarrier SYNC_CORE",
                State::Ok,
                "running code can be patched",
            ),
            lacking(
                check("ptrace scope", State::Part, "1: own children only"),
                &[(Probe, "-p works only with --via kernel; `-- CMD` works")],
                &sysctl,
            ),
            lacking(
                check("perf_event_paranoid", State::Part, "2: own processes only"),
                &[
                    (Watch, "thread by thread, not per CPU"),
                    (Stat, "no system-wide or cgroup counts"),
                ],
                &grant,
            ),
            lacking(
                check("hardware PMU", State::No, "none (perf_event_open: ENOENT)"),
                &[(Stat, "no cycles, instructions or cache misses")],
                &Fix::Advice(pmu.into()),
            ),
            lacking(
                check(
                    "BPF programs",
                    State::No,
                    "refused: bpf: EPERM (1); not tracepoint, raw tracepoint, perf event, kprobe",
                ),
                &[
                    (Watch, "no aggregation at the hit, costlier watchpoints"),
                    (Lock, "no kernel locks, no static programs"),
                ],
                &grant,
            ),
            check("open files", State::Ok, "1024, up to 1048576"),
        ];
        DoctorReport {
            verdict: Verdict {
                can: vec![Probe, Watch, Lock, Stat],
                not: vec!["attaching in process", "kernel locks", "hardware counters"],
            },
            tiptoe: "0.1.0",
            kernel: "6.1.0-18-amd64".into(),
            uid: 1000,
            capabilities: Vec::new(),
            checks,
            foreign: vec![OtherTracer {
                pid: Some(4242),
                comm: "gdb".into(),
                what: "traces redis-server (pid 4711)".into(),
            }],
            unseen: ScanGaps {
                processes: 121,
                bpf: true,
                tracefs: true,
                other_pid_namespaces: false,
            },
        }
    }

    #[test]
    fn the_report_looks_as_kept() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doctor.txt");
        let shown = text(&made_up(), &Options::default());
        if std::env::var_os("TIPTOE_WRITE_SCREENS").is_some() {
            std::fs::write(path, &shown).expect("the folder is writable");
        }
        let kept = std::fs::read_to_string(path).unwrap_or_default();
        assert_eq!(shown, kept, "{path}:\n{shown}");
    }

    #[test]
    fn checks_that_passed_pushed_the_verdict_off_the_terminal() {
        let at = |height| Options {
            height,
            ..Options::default()
        };
        let shown = |height| text(&made_up(), &at(height));
        let whole = shown(None);
        assert_eq!(shown(Some(whole.lines().count() + 1)), whole);
        let short = shown(Some(whole.lines().count()));
        assert!(!short.contains("membarrier") && short.contains("hardware PMU"));
        let counted = "\n  (2 checks are ok: on a larger terminal, or --json)\n";
        assert!(short.contains(counted), "{short}");
    }

    #[test]
    fn long_text_is_clipped_with_a_mark() {
        assert_eq!(clip("abcdef", 6), "abcdef");
        assert_eq!(clip("abcdefg", 6), "abcd..");
    }
}
