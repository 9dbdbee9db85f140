//! The report as text: at most 80 columns and without colour, so that it is readable in log files.

use std::fmt::Write;

use super::fix::Fix;
use super::rows::{CheckRow, State};
use super::{DoctorReport, ScanGaps};

/// The width of a check's result, so that a line has at most 80 columns. Longer results are clipped
/// in the table; those of missing things are printed whole below it.
const FOUND: usize = 80 - 33;

pub fn text(report: &DoctorReport) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(out, "{}\n", report.verdict.line())
        .and_then(|()| head(&mut out, report))
        .and_then(|()| table(&mut out, &report.checks))
        .and_then(|()| missing(&mut out, &report.checks))
        .and_then(|()| others(&mut out, report));
    out
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

fn table(out: &mut String, rows: &[CheckRow]) -> std::fmt::Result {
    writeln!(out, "  {:<24} {:<5} FOUND", "CHECK", "STATE")?;
    for row in rows {
        let (name, state, found) = (row.name, state(row.state), clip(&row.found, FOUND));
        writeln!(out, "  {name:<24} {state:<5} {found}")?;
    }
    Ok(())
}

fn state(state: State) -> &'static str {
    match state {
        State::Ok => "ok",
        State::Part => "part",
        State::No => "NO",
    }
}

/// Writes what is missing, grouped by what enables it, because one command often enables several
/// things.
fn missing(out: &mut String, rows: &[CheckRow]) -> std::fmt::Result {
    let mut commands: Vec<&Fix> = Vec::new();
    for fix in rows.iter().filter_map(|row| row.fix.as_ref()) {
        if !commands.contains(&fix) {
            commands.push(fix);
        }
    }
    if commands.is_empty() {
        return writeln!(out, "\nNothing is missing\n");
    }
    writeln!(out, "\nWHAT IS MISSING, AND WHAT ENABLES IT")?;
    for command in commands {
        for row in rows.iter().filter(|row| row.fix.as_ref() == Some(command)) {
            writeln!(out, "  {}: {}", row.name, row.found)?;
            for limit in &row.limits {
                writeln!(out, "    {:<6} {}", limit.instrument.name(), limit.effect)?;
            }
        }
        writeln!(out, "  => {command}\n")?;
    }
    Ok(())
}

fn others(out: &mut String, report: &DoctorReport) -> std::fmt::Result {
    writeln!(out, "OTHER TRACERS ON THIS MACHINE")?;
    if report.foreign.is_empty() {
        writeln!(out, "  none that this user can see")?;
    }
    for tracer in &report.foreign {
        let pid = tracer.pid.map_or_else(String::new, |pid| pid.to_string());
        writeln!(
            out,
            "  {pid:>8} {:<16} {}",
            tracer.comm,
            clip(&tracer.what, 80 - 28)
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

/// Returns at most `width` characters of a text, ending with `..` if some are left out.
fn clip(text: &str, width: usize) -> String {
    match text.char_indices().nth(width) {
        None => text.into(),
        Some(_) => text.chars().take(width - 2).chain("..".chars()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tiptoe_sys::host::Capabilities;
    use tiptoe_sys::host::tracers::Scan;

    #[test]
    fn no_line_is_wider_than_eighty_columns() {
        let report = DoctorReport::new(Capabilities::get(), Scan::default());
        let text = text(&report);
        let wide = text
            .lines()
            .find(|l| l.chars().count() > 80 && !l.contains("=> "));
        assert_eq!(wide, None, "{text}");
    }

    #[test]
    fn long_text_is_clipped_with_a_mark() {
        assert_eq!(clip("abcdef", 6), "abcdef");
        assert_eq!(clip("abcdefg", 6), "abcd..");
    }
}
