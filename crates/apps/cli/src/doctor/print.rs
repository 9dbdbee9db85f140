//! The report as text: at most 80 columns, so that it is readable in log files. Colours repeat what the words say: what
//! works, what does not, and what to type.

use std::fmt::Write;

use tiptoe_report::{Options, Tone};

use super::fix::Fix;
use super::rows::{CheckRow, State};
use super::{DoctorReport, ScanGaps};

/// The width of a check's result, so that a line has at most 80 columns. Longer results are clipped
/// in the table; those of missing things are printed whole below it.
const FOUND: usize = 80 - 33;

/// Returns the report, coloured with [`Options::color`].
pub fn text(report: &DoctorReport, options: &Options) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(out, "{}\n", verdict(&report.verdict.parts(), options))
        .and_then(|()| head(&mut out, report))
        .and_then(|()| table(&mut out, &report.checks, options))
        .and_then(|()| missing(&mut out, &report.checks, options))
        .and_then(|()| others(&mut out, report, options));
    out
}

fn verdict((can, not): &(String, Option<String>), options: &Options) -> String {
    let can = options.toned(Tone::Good, can);
    let not = not.as_ref().map(|not| options.toned(Tone::Warning, not));
    not.map_or_else(|| can.clone(), |not| format!("{can}; {not}"))
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

fn table(out: &mut String, rows: &[CheckRow], options: &Options) -> std::fmt::Result {
    let heading = format!("{:<24} {:<5} FOUND", "CHECK", "STATE");
    writeln!(out, "  {}", options.toned(Tone::Heading, &heading))?;
    for row in rows {
        let (state, tone) = state(row.state);
        let state = options.toned(tone, &format!("{state:<5}"));
        let (name, found) = (row.name, clip(&row.found, FOUND));
        writeln!(out, "  {name:<24} {state} {found}")?;
    }
    Ok(())
}

fn state(state: State) -> (&'static str, Tone) {
    match state {
        State::Ok => ("ok", Tone::Good),
        State::Part => ("part", Tone::Warning),
        State::No => ("NO", Tone::Error),
    }
}

/// Writes what is missing, grouped by what enables it: one command often enables several things.
fn missing(out: &mut String, rows: &[CheckRow], options: &Options) -> std::fmt::Result {
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
            options.toned(Tone::Good, "Nothing is missing")
        );
    }
    let heading = options.toned(Tone::Heading, "WHAT IS MISSING, AND WHAT ENABLES IT");
    writeln!(out, "\n{heading}")?;
    for command in commands {
        for row in rows.iter().filter(|row| row.fix.as_ref() == Some(command)) {
            writeln!(out, "  {}: {}", row.name, row.found)?;
            for limit in &row.limits {
                writeln!(out, "    {:<6} {}", limit.instrument.name(), limit.effect)?;
            }
        }
        let command = options.toned(Tone::Hint, &format!("=> {command}"));
        writeln!(out, "  {command}\n")?;
    }
    Ok(())
}

fn others(out: &mut String, report: &DoctorReport, options: &Options) -> std::fmt::Result {
    let heading = options.toned(Tone::Heading, "OTHER TRACERS ON THIS MACHINE");
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
        let text = text(&report, &Options::default());
        let wide = text
            .lines()
            .find(|l| l.chars().count() > 80 && !l.contains("=> "));
        assert_eq!(wide, None, "{text}");
    }

    /// Colours are lost in log files, and some users cannot see them.
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
        assert!(coloured.contains("\x1b[32mok   \x1b[0m"), "{coloured}");
    }

    #[test]
    fn long_text_is_clipped_with_a_mark() {
        assert_eq!(clip("abcdef", 6), "abcdef");
        assert_eq!(clip("abcdefg", 6), "abcd..");
    }
}
