//! Tables whose columns are as wide as their cells.
//!
//! A row has numbers, words, a name, and remarks or a tail, which describe the name. A row that is
//! wider than the terminal shrinks in this order: the tail moves to a line below, remarks are cut,
//! spare columns are left out. The name is cut last, because the user needs it to know what a row
//! is about. A name loses its middle, because names of C++ and Rust differ at both ends.

use crate::number::counted;
use crate::{Options, printable};

/// The least columns of a name. If fewer are left, the row is cut at its end instead.
const LEAST_NAME: usize = 12;

/// The least columns for remarks. If fewer are left, remarks are left out.
const LEAST_REMARKS: usize = 8;

/// The indent of lines below a row.
pub(crate) const BELOW: &str = "         ";

/// A table.
#[derive(Debug, Default)]
pub(crate) struct Grid {
    /// Headings of right-aligned columns.
    numbers: Vec<&'static str>,
    /// Headings of left-aligned columns between the numbers and the name.
    words: Vec<&'static str>,
    name: String,
    /// The heading of the column after the name; empty without such a column.
    tail: &'static str,
    /// The columns that are left out until all names fit, in this order.
    spare: &'static [&'static str],
    rows: Vec<GridRow>,
}

/// A row of a [`Grid`].
#[derive(Debug)]
enum GridRow {
    Cells(Cells),
    /// A sum in the first column, and a name for the rows that it sums.
    Sum(String, String),
}

/// The cells of a row.
#[derive(Debug, Default)]
pub(crate) struct Cells {
    /// A cell for each column of numbers, then of words.
    pub(crate) cells: Vec<String>,
    pub(crate) name: String,
    pub(crate) remarks: String,
    pub(crate) tail: String,
    /// Lines below the row.
    pub(crate) below: Vec<String>,
}

impl Grid {
    /// Returns a table with these right-aligned columns, then the name's.
    pub(crate) fn new(numbers: &[&'static str], name: String) -> Grid {
        Grid {
            numbers: numbers.to_vec(),
            name,
            ..Grid::default()
        }
    }

    /// Adds left-aligned columns before the name.
    pub(crate) fn with_words(mut self, words: &[&'static str]) -> Grid {
        self.words = words.to_vec();
        self
    }

    /// Adds a column after the name.
    pub(crate) fn with_tail(mut self, heading: &'static str) -> Grid {
        self.tail = heading;
        self
    }

    /// Sets the spare columns.
    pub(crate) fn with_spare(mut self, spare: &'static [&'static str]) -> Grid {
        self.spare = spare;
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

    /// Adds the sum of the rows that are left out, if there are any.
    pub(crate) fn add_left_out(&mut self, rows: usize, noun: &str, sum: String) {
        if rows > 0 {
            let rows = counted(rows, &format!("more {noun}"));
            self.add_sum(sum, format!("in {rows} (--top 0 shows all)"));
        }
    }

    /// Returns the lines of the heading and of the rows. Each line fits the terminal.
    pub(crate) fn lines(&self, options: &Options) -> Vec<String> {
        let (widths, left_out) = self.widths(options.width);
        let name_width = self.name_width_if_tails_fit(&widths, options.width);
        let heads: Vec<String> = self.heads().map(str::to_owned).collect();
        let mut heading = self.aligned(&heads, &widths) + &self.name;
        if let Some(name) = name_width {
            heading += &pad(&self.name, name);
            heading += self.tail;
        }
        let mut lines = vec![options.heading(&options.fit(&heading))];
        for row in &self.rows {
            match row {
                GridRow::Sum(number, of) => {
                    let width = widths.first().copied().unwrap_or_default();
                    lines.push(options.fit(&format!("{number:>width$}  {of}")));
                }
                GridRow::Cells(row) => {
                    self.row_lines(row, &widths, name_width, options, &mut lines)
                }
            }
        }
        if !left_out.is_empty() {
            let left_out = left_out.join(", ");
            lines.push(options.fit(&format!("({left_out}: on a wider terminal, or --json)")));
        }
        lines
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
        let room = options
            .width
            .map(|width| width.saturating_sub(chars(&line)));
        line += &room.map_or_else(|| name.clone(), |room| shortened(name, room));
        match name_width {
            Some(width) => line += &(pad(name, width) + tail),
            None if options
                .width
                .is_none_or(|width| width >= chars(&line) + LEAST_REMARKS) =>
            {
                line += remarks;
            }
            None => {}
        }
        lines.push(options.fit(&line));
        if name_width.is_none() && !tail.is_empty() {
            let line = format!("{BELOW}{} ", self.tail);
            let room = options
                .width
                .map(|width| width.saturating_sub(chars(&line)));
            let tail = room.map_or_else(|| tail.clone(), |room| shortened(tail, room));
            lines.push(options.fit(&(line + &tail)));
        }
        lines.extend(below.iter().map(|below| options.fit(below)));
    }

    fn heads(&self) -> impl Iterator<Item = &'static str> {
        self.numbers.iter().chain(&self.words).copied()
    }

    fn cells(&self) -> impl Iterator<Item = &Cells> + Clone {
        self.rows.iter().filter_map(|row| match row {
            GridRow::Cells(row) => Some(row),
            GridRow::Sum(..) => None,
        })
    }

    /// Returns the width of each column, and the headings of the spare columns that do not fit. A width of 0 leaves
    /// its column out: all its cells are empty, or it does not fit.
    fn widths(&self, terminal: Option<usize>) -> (Vec<usize>, Vec<&'static str>) {
        let width = |(at, head): (usize, &str)| {
            let cells = self.cells().filter_map(|row| row.cells.get(at));
            let sums = self.rows.iter().filter_map(|row| match row {
                GridRow::Sum(number, _) if at == 0 => Some(number),
                _ => None,
            });
            match cells.chain(sums).map(|cell| chars(cell)).max() {
                None | Some(0) => 0,
                Some(widest) => widest.max(chars(head)),
            }
        };
        let mut widths: Vec<usize> = self.heads().enumerate().map(width).collect();
        let longest = self.cells().map(|row| chars(&row.name)).max();
        let needed = longest.unwrap_or_default().max(chars(&self.name));
        let mut left_out = Vec::new();
        for spare in self.spare {
            let fits = terminal.is_none_or(|width| taken(&widths) + needed <= width);
            let at = self.heads().position(|head| head == *spare);
            if let Some(at) = at.filter(|at| !fits && widths[*at] > 0) {
                widths[at] = 0;
                left_out.push(*spare);
            }
        }
        (widths, left_out)
    }

    /// Returns the width of the names' column if all tails fit after it; `None` if there are no tails, or if one does
    /// not fit.
    fn name_width_if_tails_fit(&self, widths: &[usize], terminal: Option<usize>) -> Option<usize> {
        if self.tail.is_empty() || self.cells().all(|row| row.tail.is_empty()) {
            return None;
        }
        let names = self.cells().map(|row| chars(&row.name));
        let name = names.fold(chars(&self.name), usize::max);
        let tails = self.cells().map(|row| chars(&row.tail));
        let tail = tails.fold(chars(self.tail), usize::max);
        let row = taken(widths) + name + 2 + tail;
        terminal.is_none_or(|width| row <= width).then_some(name)
    }

    /// Returns the cells in their columns, with two spaces after each.
    fn aligned(&self, cells: &[String], widths: &[usize]) -> String {
        let columns = cells.iter().zip(widths).enumerate();
        columns
            .filter(|(_, (_, width))| **width > 0)
            .map(|(at, (cell, width))| match at < self.numbers.len() {
                true => format!("{cell:>width$}  "),
                false => format!("{cell:<width$}  "),
            })
            .collect()
    }
}

/// Returns the heading of the names' column, with what all rows share: the beginning of their names, if it is not
/// empty, and one more property.
pub(crate) fn heading(name: &str, beginning: &str, property: Option<String>) -> String {
    let beginning = (!beginning.is_empty()).then(|| format!("{}…", printable(beginning)));
    let shared: Vec<String> = beginning.into_iter().chain(property).collect();
    match shared[..] {
        [] => name.to_owned(),
        _ => format!("{name} ({})", shared.join(", ")),
    }
}

/// Returns the sum of the widths and of the two spaces after each column.
fn taken(widths: &[usize]) -> usize {
    let widths = widths.iter().filter(|width| **width > 0);
    widths.map(|width| width + 2).sum()
}

/// Returns the spaces from the end of a name to the next column.
fn pad(name: &str, width: usize) -> String {
    " ".repeat((width + 2).saturating_sub(chars(name)))
}

/// Returns the name, without its middle if it has more columns than `room`.
fn shortened(name: &str, room: usize) -> String {
    let count = chars(name);
    if count <= room || room < LEAST_NAME {
        return name.to_owned();
    }
    let end = (room - 1) / 2;
    let begin = name.chars().take(room - 1 - end);
    let end = name.chars().skip(count - end);
    begin.chain(std::iter::once('…')).chain(end).collect()
}

fn chars(text: &str) -> usize {
    text.chars().count()
}

/// Returns the beginning that all events' names share: kind and binary (`uprobe:redis-server:`), the kind, or nothing.
pub(crate) fn common_prefix<'a>(names: impl Iterator<Item = &'a str> + Clone) -> &'a str {
    let Some(first) = names.clone().next() else {
        return "";
    };
    let ends = first.match_indices(':').map(|(at, _)| at + 1).take(2);
    let prefixes = ends.map(|end| &first[..end]);
    let is_shared = |prefix: &&str| names.clone().all(|name| name.starts_with(prefix));
    prefixes.filter(is_shared).last().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(width: usize, name: &str, remarks: &str, expected: &str) {
        let mut grid = Grid::new(&["count", "cost"], "event".to_owned());
        grid.add(
            vec!["12".into(), String::new()],
            name.into(),
            remarks.into(),
        );
        let options = Options {
            width: Some(width),
            ..Options::default()
        };
        assert_eq!(grid.lines(&options)[1], expected);
    }

    #[test]
    fn remarks_are_cut_before_names_and_names_in_the_middle() {
        check(
            40,
            "shop::Basket::add(int)",
            "",
            "   12  shop::Basket::add(int)",
        );
        let also = "  (also shop::add)";
        check(
            47,
            "shop::Basket::add(int)",
            also,
            "   12  shop::Basket::add(int)  (also shop::add)",
        );
        check(
            40,
            "shop::Basket::add(int)",
            also,
            "   12  shop::Basket::add(int)  (also sh…",
        );
        check(
            24,
            "shop::Basket::add(int)",
            also,
            "   12  shop::Ba…add(int)",
        );
    }

    /// Returns the lines of a table of locks, whose tails are the call sites.
    fn two_locks(width: usize) -> Vec<String> {
        let mut grid = Grid::new(&["total", "p50", "p99"], "lock".to_owned())
            .with_words(&["type"])
            .with_tail("mostly from")
            .with_spare(&["p50"]);
        for (name, kind) in [("cache_lock", "mutex"), ("lru_locks[3]", "rwlock")] {
            grid.add_row(Cells {
                cells: ["1.00s", "1us", "20us", kind].map(str::to_owned).to_vec(),
                name: name.into(),
                tail: "item_get+0x12".into(),
                ..Cells::default()
            });
        }
        let options = Options {
            width: Some(width),
            ..Options::default()
        };
        grid.lines(&options)
    }

    /// A table of locks was 110 columns wide, so that 80 columns cut off the locks' names.
    #[test]
    fn a_tail_goes_below_and_spare_columns_go_before_a_name_is_cut() {
        let wide = [
            "total  p50   p99  type    lock          mostly from",
            "1.00s  1us  20us  mutex   cache_lock    item_get+0x12",
            "1.00s  1us  20us  rwlock  lru_locks[3]  item_get+0x12",
        ];
        assert_eq!(two_locks(60), wide);
        let narrow = [
            "total  p50   p99  type    lock",
            "1.00s  1us  20us  mutex   cache_lock",
            "         mostly from item_get+0x12",
            "1.00s  1us  20us  rwlock  lru_locks[3]",
            "         mostly from item_get+0x12",
        ];
        assert_eq!(two_locks(40), narrow);
        let narrower = [
            "total   p99  type    lock",
            "1.00s  20us  mutex   cache_lock",
            "         mostly from item_g…+0x12",
            "1.00s  20us  rwlock  lru_locks[3]",
            "         mostly from item_g…+0x12",
            "(p50: on a wider terminal, or --…",
        ];
        assert_eq!(two_locks(33), narrower);
    }

    #[test]
    fn the_common_prefix_is_kind_and_binary() {
        let common = |names: &[&'static str]| common_prefix(names.iter().copied());
        assert_eq!(common(&["uprobe:a:f", "uprobe:a:ns::g"]), "uprobe:a:");
        assert_eq!(common(&["uprobe:a:ns::f"]), "uprobe:a:");
        assert_eq!(common(&["uprobe:a:f", "uprobe:b:f"]), "uprobe:");
        assert_eq!(common(&["uprobe:a:f", "uretprobe:a:f"]), "");
        assert_eq!(common(&[]), "");
    }
}
