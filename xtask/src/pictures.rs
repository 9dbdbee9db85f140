//! Draws pictures as SVG: a terminal with output, and bars of numbers.

use std::fmt::Write as _;

const FONT: &str = "font-family=\"ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace\"";
/// A character's width in a font of 14 pixels.
const CHARACTER: f64 = 8.43;
const LINE: usize = 19;
const MARGIN: usize = 16;
const BACK: &str = "#1b1f27";
const FORE: &str = "#d7dae0";
const BAR: &str = "#4c8dd6";
const FIRST_BAR: &str = "#8a93a3";
const LONGEST: f64 = 430.0;
const LABELS: f64 = 120.0;
const STEP: usize = 34;

#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Look {
    is_bold: bool,
    is_dim: bool,
    color: Option<&'static str>,
}

impl Look {
    fn apply(&mut self, number: &str) {
        match number {
            "" | "0" => *self = Look::default(),
            "1" => self.is_bold = true,
            "2" => self.is_dim = true,
            "22" => (self.is_bold, self.is_dim) = (false, false),
            "31" | "91" => self.color = Some("#e06c75"),
            "32" | "92" => self.color = Some("#98c379"),
            "33" | "93" => self.color = Some("#e5c07b"),
            "34" | "94" => self.color = Some("#61afef"),
            "35" | "95" => self.color = Some("#c678dd"),
            "36" | "96" => self.color = Some("#56b6c2"),
            "39" => self.color = None,
            _ => {}
        }
    }

    fn attributes(self) -> String {
        let mut text = String::new();
        if self.is_bold {
            text += " font-weight=\"bold\"";
        }
        if self.is_dim {
            text += " opacity=\"0.6\"";
        }
        if let Some(color) = self.color {
            let _ = write!(text, " fill=\"{color}\"");
        }
        text
    }
}

/// Draws lines of a terminal.
pub fn terminal(lines: &str) -> String {
    let lines: Vec<Vec<(Look, String)>> = lines.lines().map(runs).collect();
    let len = |line: &Vec<(Look, String)>| line.iter().map(|(_, text)| text.chars().count()).sum();
    let columns: usize = lines.iter().map(len).max().unwrap_or(0).max(80);
    let width = (columns as f64 * CHARACTER).ceil() as usize + 2 * MARGIN;
    let height = lines.len() * LINE + 2 * MARGIN;
    let mut svg = head(width, height);
    let _ = writeln!(
        svg,
        "<rect width=\"{width}\" height=\"{height}\" rx=\"8\" fill=\"{BACK}\"/>\n\
         <g {FONT} font-size=\"14\" fill=\"{FORE}\" xml:space=\"preserve\">"
    );
    for (row, line) in lines.iter().enumerate() {
        let y = MARGIN + row * LINE + 14;
        let _ = write!(svg, "<text x=\"{MARGIN}\" y=\"{y}\">");
        for (look, text) in line {
            let _ = write!(svg, "<tspan{}>{}</tspan>", look.attributes(), escaped(text));
        }
        svg += "</text>\n";
    }
    svg + "</g>\n</svg>\n"
}

/// Returns runs of text that look alike. Escape sequences that do not change the look are dropped.
fn runs(line: &str) -> Vec<(Look, String)> {
    let mut look = Look::default();
    let mut runs = Vec::new();
    let mut parts = line.split("\x1b[");
    runs.extend(parts.next().map(|text| (look, text.to_owned())));
    for part in parts {
        let end = part.find(|c: char| c.is_ascii_alphabetic());
        let (sequence, text) = part.split_at(end.map_or(part.len(), |end| end + 1));
        if let Some(numbers) = sequence.strip_suffix('m') {
            numbers.split(';').for_each(|number| look.apply(number));
        }
        runs.push((look, text.to_owned()));
    }
    runs.retain(|(_, text)| !text.is_empty());
    runs
}

/// Draws a bar for each line `NUMBER LABEL`. Other lines become text; the first is the title.
pub fn bars(lines: &str) -> String {
    let mut lines = lines.lines();
    let title = lines.next().unwrap_or_default();
    let mut bars: Vec<(f64, &str)> = Vec::new();
    let mut notes = Vec::new();
    for line in lines {
        let pair = line.split_once(' ');
        match pair.and_then(|(number, label)| Some((number.parse().ok()?, label))) {
            Some(bar) => bars.push(bar),
            None => notes.push(line),
        }
    }
    let most = bars.iter().map(|(number, _)| *number).fold(1.0, f64::max);
    let first = bars.first().map_or(1.0, |(number, _)| *number);
    let width = (LABELS + LONGEST) as usize + 170 + 2 * MARGIN;
    let height = 40 + bars.len() * STEP + notes.len() * LINE + 2 * MARGIN;
    let mut svg = head(width, height);
    let _ = writeln!(
        svg,
        "<rect width=\"{width}\" height=\"{height}\" rx=\"8\" fill=\"#ffffff\"/>\n\
         <g font-family=\"sans-serif\" font-size=\"14\" fill=\"#222222\">\n\
         <text x=\"{MARGIN}\" y=\"{}\" font-weight=\"bold\">{}</text>",
        MARGIN + 14,
        escaped(title)
    );
    for (at, (number, label)) in bars.iter().enumerate() {
        let y = MARGIN + 40 + at * STEP;
        let left = MARGIN as f64 + LABELS;
        let len = (number / most * LONGEST).max(1.0);
        let color = if at == 0 { FIRST_BAR } else { BAR };
        let _ = writeln!(
            svg,
            "<text x=\"{MARGIN}\" y=\"{text}\">{label}</text>\
             <rect x=\"{left}\" y=\"{y}\" width=\"{len:.1}\" height=\"22\" fill=\"{color}\"/>\
             <text x=\"{end:.1}\" y=\"{text}\">{number} ({share:.0}%)</text>",
            text = y + 16,
            label = escaped(label),
            end = left + len + 8.0,
            number = grouped(*number),
            share = number / first * 100.0,
        );
    }
    for (at, note) in notes.iter().enumerate() {
        let y = MARGIN + 40 + bars.len() * STEP + at * LINE + 14;
        let note = escaped(note);
        let _ = writeln!(
            svg,
            "<text x=\"{MARGIN}\" y=\"{y}\" font-size=\"12\" opacity=\"0.7\">{note}</text>"
        );
    }
    svg + "</g>\n</svg>\n"
}

fn head(width: usize, height: usize) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\">\n"
    )
}

fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;")
}

fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_has_its_text_and_its_colors() {
        let svg = terminal("\x1b[1mcount\x1b[0m  <f>\n\x1b[2;33mnote\x1b[0m");
        assert!(
            svg.contains("<tspan font-weight=\"bold\">count</tspan><tspan>  &lt;f&gt;</tspan>")
        );
        assert!(svg.contains("<tspan opacity=\"0.6\" fill=\"#e5c07b\">note</tspan>"));
    }

    #[test]
    fn a_bar_has_its_number_and_its_share_of_the_first() {
        let svg = bars("commands a second\n200000 nothing\n50000 a & b\na machine");
        for text in [
            "commands a second",
            "200,000 (100%)",
            "50,000 (25%)",
            "a &amp; b",
            "a machine",
        ] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
    }
}
