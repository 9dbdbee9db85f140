//! The table of crates in ARCHITECTURE.md, and the rules on edges (which crate uses which).

use crate::metadata::Package;

const MARK: &str = "<!-- layers: read by xtask -->";

/// A crate's layer and attributes, and what it may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CrateLayer {
    /// The layer; 0 is the lowest.
    pub layer: u32,
    /// The folder under `crates/`, such as `core/wire`.
    pub folder: String,
    /// The crates that this crate may use, by the last part of their folder.
    pub may_use: Vec<String>,
    /// Whether the crate must be `#![no_std]`.
    pub is_no_std: bool,
    /// Whether the crate must be `#![forbid(unsafe_code)]`.
    pub forbids_unsafe: bool,
}

impl CrateLayer {
    /// Returns the last part of the folder: `wire`.
    pub fn name(&self) -> &str {
        self.folder.rsplit('/').next().unwrap_or(&self.folder)
    }

    /// Returns the package's name, such as `tiptoe-wire`.
    pub fn package(&self) -> String {
        match self.name() {
            "cli" => "tiptoe".to_owned(),
            name => format!("tiptoe-{name}"),
        }
    }

    fn is_engine(&self) -> bool {
        self.folder.starts_with("engines/")
    }
}

/// Parses the table. Fails with the first bad line.
pub fn table(page: &str) -> Result<Vec<CrateLayer>, String> {
    let (_, after) = page.split_once(MARK).ok_or(format!("no line `{MARK}`"))?;
    let rows = after
        .lines()
        .skip_while(|line| !line.starts_with('|'))
        .take_while(|line| line.starts_with('|'));
    rows.skip(2).map(parse_row).collect()
}

fn parse_row(line: &str) -> Result<CrateLayer, String> {
    let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
    let [layer, folder, _holds, may_use, no_std, is_unsafe] = cells[..] else {
        return Err(format!("not six cells: {line}"));
    };
    let may_use = may_use
        .split(',')
        .map(str::trim)
        .filter(|name| *name != "none");
    Ok(CrateLayer {
        layer: layer.parse().map_err(|_| format!("no layer: {line}"))?,
        folder: folder.trim_matches('`').to_owned(),
        may_use: may_use.map(str::to_owned).collect(),
        is_no_std: no_std.starts_with("yes"),
        forbids_unsafe: is_unsafe == "forbid",
    })
}

/// Returns missing crates, and packages without a row.
pub fn missing(rows: &[CrateLayer], packages: &[Package]) -> Vec<String> {
    let unbuilt = rows
        .iter()
        .filter(|row| {
            !packages
                .iter()
                .any(|package| package.folder == row.folder && package.name == row.package())
        })
        .map(|row| {
            format!(
                "{} is in the table, but there is no package {}",
                row.folder,
                row.package()
            )
        });
    let unlisted = packages
        .iter()
        .filter(|package| !rows.iter().any(|row| row.folder == package.folder))
        .map(|package| format!("{} has no row in the table", package.folder));
    unbuilt.chain(unlisted).collect()
}

/// Returns the edges that the table does not allow.
pub fn wrong_edges(rows: &[CrateLayer], packages: &[Package]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (row, package) in with_package(rows, packages) {
        for used in package
            .dependencies
            .iter()
            .filter_map(|name| by_package(rows, name))
        {
            wrong.extend(
                fault(row, used).map(|why| format!("{} -> {}: {why}", row.folder, used.folder)),
            );
        }
    }
    wrong
}

fn fault(row: &CrateLayer, used: &CrateLayer) -> Option<&'static str> {
    match used.name() {
        "cli" | "agent" => return Some("nothing depends on it"),
        "sys" | "collector" if row.name() == "report" => {
            return Some("a session from another machine must print");
        }
        _ => {}
    }
    if row.is_engine() && used.is_engine() {
        return Some("engines never depend on each other");
    }
    if used.layer >= row.layer {
        return Some("not a smaller layer");
    }
    (!row.may_use.iter().any(|name| name == used.name())).then_some("not in its row")
}

/// Returns rows that allow what the rules forbid.
pub fn wrong_rows(rows: &[CrateLayer]) -> Vec<String> {
    let mut wrong = Vec::new();
    for row in rows {
        for name in &row.may_use {
            match rows.iter().find(|used| used.name() == name) {
                None => wrong.push(format!("{}: no crate `{name}`", row.folder)),
                Some(used) => wrong
                    .extend(fault(row, used).map(|why| format!("{}: {name}: {why}", row.folder))),
            }
        }
    }
    wrong
}

/// Returns the crates that use serde and are not `allowed`.
pub fn wrong_serde(rows: &[CrateLayer], packages: &[Package], allowed: &[&str]) -> Vec<String> {
    with_package(rows, packages)
        .filter(|(row, package)| {
            package
                .dependencies
                .iter()
                .any(|name| name.starts_with("serde"))
                && !allowed.contains(&row.name())
        })
        .map(|(row, _)| format!("{} uses serde", row.folder))
        .collect()
}

/// Returns each row with its package.
pub fn with_package<'a>(
    rows: &'a [CrateLayer],
    packages: &'a [Package],
) -> impl Iterator<Item = (&'a CrateLayer, &'a Package)> {
    rows.iter().filter_map(|row| {
        Some((
            row,
            packages
                .iter()
                .find(|package| package.folder == row.folder)?,
        ))
    })
}

fn by_package<'a>(rows: &'a [CrateLayer], package: &str) -> Option<&'a CrateLayer> {
    rows.iter().find(|row| row.package() == package)
}
