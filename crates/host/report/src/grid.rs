//! Tables whose columns are as wide as their cells.
//!
//! A row has numbers, words, a name, and remarks or a tail that describe the name. If the row is too wide, its tail or
//! remarks move below it. If the name still does not fit, *spare* columns are omitted; the cells of a spare column with
//! a legend move below the rows instead. The name is shortened last, because it says what the row is about. It loses
//! its middle, because C++ and Rust names differ at both ends.

use tiptoe_event::{kind_prefix, single_colon};

use crate::columns::{columns, joined, left, right, shortened};
use crate::number::counted;
use crate::style::TextRole;
use crate::{Options, printable};

pub(crate) const BELOW: &str = "         ";
pub(crate) const BELOW_STACK: &str = "        ";

#[derive(Debug, Default)]
pub(crate) struct Grid {
    numbers: Vec<String>,
    /// Headings of left-aligned columns, between the numbers and the name.
    words: Vec<String>,
    name: String,
    /// The heading of the column after the name; empty if there is no such column.
    tail: &'static str,
    /// The headings of the columns that are omitted, in this order, until all names fit.
    spare: &'static [&'static str],
    /// A column's heading, and the text that explains the column.
    legend: Option<(&'static str, String)>,
    /// The names of details that rows omit if [`Options::is_folded`].
    folded: &'static [&'static str],
    rows: Vec<GridRow>,
}

#[derive(Debug)]
enum GridRow {
    Cells(Cells),
    /// The sum of omitted rows, in the first column, and a text on the sum.
    Sum(String, String),
}

#[derive(Debug, Default)]
pub(crate) struct Cells {
    /// A cell for each column of numbers, then of words.
    pub(crate) cells: Vec<String>,
    pub(crate) name: String,
    pub(crate) remarks: String,
    pub(crate) tail: String,
    pub(crate) below: Vec<LineBelow>,
}

#[derive(Debug)]
pub(crate) struct LineBelow {
    pub(crate) label: String,
    pub(crate) text: String,
}

impl LineBelow {
    pub(crate) fn new(label: impl Into<String>, text: String) -> LineBelow {
        let label = label.into();
        LineBelow { label, text }
    }
}

impl Grid {
    pub(crate) fn new(numbers: &[&str], name: String) -> Grid {
        Grid {
            numbers: numbers.iter().map(|&head| head.to_owned()).collect(),
            name,
            ..Grid::default()
        }
    }

    pub(crate) fn with_words(mut self, words: &[&str]) -> Grid {
        self.words = words.iter().map(|&head| head.to_owned()).collect();
        self
    }

    pub(crate) fn with_tail(mut self, heading: &'static str) -> Grid {
        self.tail = heading;
        self
    }

    pub(crate) fn with_spare(mut self, spare: &'static [&'static str]) -> Grid {
        self.spare = spare;
        self
    }

    pub(crate) fn with_legend(mut self, column: &'static str, text: Option<String>) -> Grid {
        self.legend = text.map(|text| (column, text));
        self
    }

    pub(crate) fn with_folded(mut self, folded: &'static [&'static str]) -> Grid {
        self.folded = folded;
        self
    }

    pub(crate) fn add(&mut self, cells: Vec<String>, name: String, remarks: String) {
        self.add_row(Cells {
            cells,
            name,
            remarks,
            ..Cells::default()
        });
    }

    pub(crate) fn add_row(&mut self, row: Cells) {
        self.rows.push(GridRow::Cells(row));
    }

    pub(crate) fn add_sum(&mut self, number: String, of: String) {
        self.rows.push(GridRow::Sum(number, of));
    }

    pub(crate) fn add_left_out(&mut self, rows: usize, noun: &str, sum: String) {
        if rows > 0 {
            let rows = sum_name(rows, noun);
            self.add_sum(sum, format!("in {rows} (--top 0 shows all)"));
        }
    }

    pub(crate) fn lines(&self, options: &Options) -> Vec<String> {
        let (widths, mut left_out) = self.widths(options.width);
        let name_width = self.name_width_if_tails_fit(&widths, options.width);
        if options.is_folded {
            left_out.extend(self.folded_parts(&widths, name_width));
        }
        let heads: Vec<String> = self.heads().cloned().collect();
        let mut heading = self.aligned(&heads, &widths);
        heading += &match name_width {
            Some(name) => left(&self.name, name + 2) + self.tail,
            None => self.name.clone(),
        };
        let mut lines = vec![options.styled(TextRole::Heading, &options.fit(&heading))];
        for row in &self.rows {
            match row {
                GridRow::Sum(number, of) => {
                    let width = widths.first().copied().unwrap_or_default();
                    lines.extend(options.wrapped(&(right(number, width) + "  "), of));
                }
                GridRow::Cells(row) => {
                    self.row_lines(row, &widths, name_width, options, &mut lines)
                }
            }
        }
        if let Some((column, text)) = self.legend.as_ref().filter(|it| !left_out.contains(&it.0)) {
            lines.extend(options.wrapped(&format!("({column}: "), text));
        }
        if !left_out.is_empty() {
            let larger = if options.is_folded { "larger" } else { "wider" };
            let left_out = format!(
                "{}: on a {larger} terminal, or --json)",
                left_out.join(", ")
            );
            lines.extend(options.wrapped("(", &left_out));
        }
        lines
    }

    fn folded_parts(&self, widths: &[usize], name_width: Option<usize>) -> Vec<&'static str> {
        let has_tails = self.cells().any(|row| !row.tail.is_empty());
        let tail = (has_tails && name_width.is_none()).then_some(self.tail);
        let mut cells = self.cells();
        let column = cells.find_map(|row| self.legend_cell_without_room(&row.cells, widths));
        let parts = column.map(|(column, _)| column).into_iter().chain(tail);
        parts.chain(self.folded.iter().copied()).collect()
    }

    fn row_lines(
        &self,
        row: &Cells,
        widths: &[usize],
        name_width: Option<usize>,
        options: &Options,
        lines: &mut Vec<String>,
    ) {
        let Cells {
            cells,
            name,
            remarks,
            tail,
            below,
        } = row;
        let mut line = self.aligned(cells, widths);
        let room = |line: &str| {
            let width = options.width.unwrap_or(usize::MAX);
            width.saturating_sub(columns(line))
        };
        let name = shortened(name, room(&line));
        match name_width {
            Some(width) => line += &(left(&name, width + 2) + tail),
            None => line += &name,
        }
        let is_beside = columns(remarks) <= room(&line);
        if is_beside {
            line += remarks;
        }
        lines.push(options.fit(&line));
        if !is_beside {
            lines.extend(options.wrapped(BELOW, remarks.trim_start()));
        }
        if name_width.is_none() && !tail.is_empty() && !options.is_folded {
            let line = format!("{BELOW}{} ", self.tail);
            let tail = shortened(tail, room(&line));
            lines.push(options.fit(&(line + &tail)));
        }
        if let Some((column, cell)) = self.legend_cell_without_room(cells, widths)
            && !options.is_folded
        {
            lines.push(options.fit(&format!("{BELOW}{column} {cell}")));
        }
        let below = below.iter();
        lines.extend(below.flat_map(|below| options.wrapped(&below.label, &below.text)));
    }

    fn legend_cell_without_room<'a>(
        &self,
        cells: &'a [String],
        widths: &[usize],
    ) -> Option<(&'static str, &'a str)> {
        let (column, _) = self.legend.as_ref()?;
        let at = self.heads().position(|head| head == column)?;
        let cell = cells.get(at).filter(|cell| !cell.is_empty())?;
        (widths.get(at) == Some(&0)).then_some((*column, cell))
    }

    fn heads(&self) -> impl Iterator<Item = &String> {
        self.numbers.iter().chain(&self.words)
    }

    fn cells(&self) -> impl Iterator<Item = &Cells> + Clone {
        self.rows.iter().filter_map(|row| match row {
            GridRow::Cells(row) => Some(row),
            GridRow::Sum(..) => None,
        })
    }

    /// Returns the columns' widths, and the headings of the spare columns whose cells are omitted. A column that is
    /// empty or does not fit has width 0.
    fn widths(&self, terminal: Option<usize>) -> (Vec<usize>, Vec<&'static str>) {
        let width = |(at, head): (usize, &String)| {
            let cells = self.cells().filter_map(|row| row.cells.get(at));
            let sums = self.rows.iter().filter_map(|row| match row {
                GridRow::Sum(number, _) if at == 0 => Some(number),
                _ => None,
            });
            match cells.chain(sums).map(|cell| columns(cell)).max() {
                None | Some(0) => 0,
                Some(widest) => widest.max(columns(head)),
            }
        };
        let mut widths: Vec<usize> = self.heads().enumerate().map(width).collect();
        let longest = self.cells().map(|row| columns(&row.name)).max();
        let needed = longest.unwrap_or_default().max(columns(&self.name));
        let mut left_out = Vec::new();
        for spare in self.spare {
            let fits = terminal.is_none_or(|width| taken(&widths) + needed <= width);
            let at = self.heads().position(|head| head == spare);
            if let Some(at) = at.filter(|at| !fits && widths[*at] > 0) {
                widths[at] = 0;
                let is_below = self.legend.iter().any(|(column, _)| column == spare);
                left_out.extend((!is_below).then_some(*spare));
            }
        }
        (widths, left_out)
    }

    /// Returns the width of the names' column; `None` if a tail does not fit on its row's line, or no row has a tail.
    fn name_width_if_tails_fit(&self, widths: &[usize], terminal: Option<usize>) -> Option<usize> {
        if self.tail.is_empty() || self.cells().all(|row| row.tail.is_empty()) {
            return None;
        }
        let names = self.cells().map(|row| columns(&row.name));
        let name = names.fold(columns(&self.name), usize::max);
        let tails = self.cells().map(|row| columns(&row.tail));
        let tail = tails.fold(columns(self.tail), usize::max);
        let row = taken(widths) + name + 2 + tail;
        terminal.is_none_or(|width| row <= width).then_some(name)
    }

    fn aligned(&self, cells: &[String], widths: &[usize]) -> String {
        let columns = cells.iter().zip(widths).enumerate();
        columns
            .filter(|(_, (_, width))| **width > 0)
            .map(|(at, (cell, width))| match at < self.numbers.len() {
                true => right(cell, *width) + "  ",
                false => left(cell, *width + 2),
            })
            .collect()
    }
}

/// Returns the heading of the names' column. In parentheses it has what all rows share: `beginning` and `property`.
pub(crate) fn heading(name: &str, beginning: &str, property: Option<String>) -> String {
    let beginning = (!beginning.is_empty()).then(|| format!("{}…", printable(beginning)));
    let shared: Vec<String> = beginning.into_iter().chain(property).collect();
    match shared[..] {
        [] => name.to_owned(),
        _ => format!("{name} ({})", shared.join(", ")),
    }
}

fn taken(widths: &[usize]) -> usize {
    let widths = widths.iter().filter(|width| **width > 0);
    widths.map(|width| width + 2).sum()
}

/// Returns `<- CALLER <- CALLER`, the innermost first. Lines may end only before an arrow.
pub(crate) fn arrows(callers: &[&String]) -> String {
    let callers = callers
        .iter()
        .map(|caller| format!("<- {}", printable(caller)));
    callers
        .map(|caller| joined(&caller))
        .collect::<Vec<_>>()
        .join(" ")
}

pub(crate) fn more_line(omitted: usize, options: &Options) -> Vec<String> {
    match omitted {
        0 => Vec::new(),
        more => options.sentence(&format!("{more} more (--top 0 shows all)")),
    }
}

pub(crate) fn sum_name(rows: usize, noun: &str) -> String {
    counted(rows as u64, &format!("more {noun}"))
}

pub(crate) fn sum_legend(indent: &str, rows: usize, noun: &str, options: &Options) -> Vec<String> {
    let text = format!("{}: their sum; --top 0 shows all)", sum_name(rows, noun));
    options.wrapped(&format!("{indent}("), &text)
}

/// Returns the beginning that all events' names share: `KIND:BINARY:`, `KIND:`, or nothing.
pub(crate) fn common_prefix<'a>(names: impl Iterator<Item = &'a str> + Clone) -> &'a str {
    shared(names.clone().map(binary_prefix))
        .or_else(|| shared(names.map(kind_prefix)))
        .unwrap_or_default()
}

pub(crate) fn shared<'a>(mut prefixes: impl Iterator<Item = Option<&'a str>>) -> Option<&'a str> {
    let first = prefixes.next()?;
    first.filter(|_| prefixes.all(|prefix| prefix == first))
}

/// Returns a name's beginning: the kind, if the name has a kind, and the binary, each with its `:`. A library's file
/// name may contain a `:` before its `.so`.
pub(crate) fn binary_prefix(name: &str) -> Option<&str> {
    let start = kind_prefix(name).map_or(0, str::len);
    let library = name[start..].find(".so").map(|at| start + at);
    let end = library.and_then(|at| single_colon(name, at + ".so".len()));
    let end = end.or_else(|| single_colon(name, start))?;
    Some(&name[..=end])
}

/// Returns the heading and the rows of a plain table. Columns of numbers are right-aligned, and empty columns are
/// omitted. Cells may be styled.
pub fn table_lines(heads: &[&str], rows: &[Vec<String>]) -> Vec<String> {
    let heads: Vec<String> = heads.iter().map(|&head| head.to_owned()).collect();
    let cells = |at: usize| rows.iter().map(move |row| row[at].as_str());
    let is_number = |at: usize| {
        let mut first = cells(at).map(|cell| cell.chars().next());
        first.all(|first| first.is_none_or(|first| first.is_ascii_digit() || first == '-'))
    };
    let shown = (0..heads.len()).filter(|at| cells(*at).any(|cell| !cell.is_empty()));
    let shown: Vec<(usize, usize, bool)> = shown
        .map(|at| {
            let widths = cells(at).chain([&*heads[at]]).map(columns);
            (at, widths.max().unwrap_or_default(), is_number(at))
        })
        .collect();
    let line = |row: &Vec<String>| {
        let cells = shown.iter().map(|&(at, width, is_number)| match is_number {
            true => right(&row[at], width),
            false => left(&row[at], width),
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    [&heads].into_iter().chain(rows).map(line).collect()
}

#[cfg(test)]
mod tests;
