//! Tables: columns are as wide as their cells, and what was asked for is cut last.
//!
//! A row is numbers, then a name, then remarks. Where a row is wider than the terminal its remarks are cut first, because
//! they can be read elsewhere (`--json`). A name that does not fit alone loses its middle: names of C++ and Rust differ at
//! both ends.

use crate::Options;

/// Fewer columns than this are no name: the row is then cut at its end instead.
const LEAST_NAME: usize = 12;

/// With fewer columns left the remarks are left out.
const LEAST_REMARKS: usize = 8;

/// A table.
#[derive(Debug, Default)]
pub(crate) struct Grid {
    heads: Vec<&'static str>,
    name: String,
    rows: Vec<GridRow>,
}

/// A row of a [`Grid`].
#[derive(Debug)]
enum GridRow {
    Cells {
        cells: Vec<String>,
        name: String,
        remarks: String,
    },
    /// A number in the first column, and what it is the sum of.
    Sum(String, String),
}

impl Grid {
    /// Creates a table with these right-aligned columns, then the name's.
    pub(crate) fn new(heads: &[&'static str], name: String) -> Grid {
        Grid {
            heads: heads.to_vec(),
            name,
            rows: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, cells: Vec<String>, name: String, remarks: String) {
        self.rows.push(GridRow::Cells {
            cells,
            name,
            remarks,
        });
    }

    pub(crate) fn add_sum(&mut self, number: String, of: String) {
        self.rows.push(GridRow::Sum(number, of));
    }

    /// Returns the heading and the rows, which fit the terminal.
    pub(crate) fn lines(&self, options: &Options) -> Vec<String> {
        let widths = self.widths();
        let heads: Vec<String> = self.heads.iter().map(|&head| head.to_owned()).collect();
        let heading = aligned(&heads, &widths) + &self.name;
        let mut lines = vec![options.heading(&options.fit(&heading))];
        for row in &self.rows {
            lines.push(match row {
                GridRow::Sum(number, of) => {
                    let width = widths.first().copied().unwrap_or_default();
                    options.fit(&format!("{number:>width$}  {of}"))
                }
                GridRow::Cells {
                    cells,
                    name,
                    remarks,
                } => {
                    let mut row = aligned(cells, &widths);
                    match options.width {
                        Some(width) => {
                            row += &shortened(name, width.saturating_sub(chars(&row)));
                            if width >= chars(&row) + LEAST_REMARKS {
                                row += remarks;
                            }
                        }
                        None => row += &format!("{name}{remarks}"),
                    }
                    options.fit(&row)
                }
            });
        }
        lines
    }

    /// The width of each column; 0 where all of its cells are empty, and the column is left out.
    fn widths(&self) -> Vec<usize> {
        let width = |at: usize| {
            let cells = self.rows.iter().filter_map(|row| match row {
                GridRow::Cells { cells, .. } => cells.get(at),
                GridRow::Sum(number, _) if at == 0 => Some(number),
                GridRow::Sum(..) => None,
            });
            match cells.map(|cell| chars(cell)).max().unwrap_or_default() {
                0 => 0,
                widest => widest.max(chars(self.heads[at])),
            }
        };
        (0..self.heads.len()).map(width).collect()
    }
}

/// The cells, with two spaces after each.
fn aligned(cells: &[String], widths: &[usize]) -> String {
    let columns = cells.iter().zip(widths).filter(|(_, width)| **width > 0);
    columns
        .map(|(cell, width)| format!("{cell:>width$}  "))
        .collect()
}

/// A name within this many columns, without its middle if it is longer.
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

/// Returns the part of events' names that is the same in all: kind and binary (`uprobe:redis-server:`), the kind, or
/// nothing.
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

    #[test]
    fn what_all_events_share_is_kind_and_binary() {
        let common = |names: &[&'static str]| common_prefix(names.iter().copied());
        assert_eq!(common(&["uprobe:a:f", "uprobe:a:ns::g"]), "uprobe:a:");
        assert_eq!(common(&["uprobe:a:ns::f"]), "uprobe:a:");
        assert_eq!(common(&["uprobe:a:f", "uprobe:b:f"]), "uprobe:");
        assert_eq!(common(&["uprobe:a:f", "uretprobe:a:f"]), "");
        assert_eq!(common(&[]), "");
    }
}
