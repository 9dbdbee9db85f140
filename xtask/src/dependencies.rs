//! The command's dependencies, by `cargo metadata`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::metadata::{ask, list};
use crate::read;

const ROOTS: [&str; 2] = ["tiptoe", "tiptoe-agent"];

/// The resolved packages of this workspace.
#[derive(Debug)]
pub struct Dependencies {
    metadata: Value,
    runtime: BTreeSet<String>,
    all: BTreeSet<String>,
}

/// One package.
#[derive(Clone, Copy, Debug)]
pub struct Package<'a> {
    value: &'a Value,
    /// Whether the package's code is in the command.
    pub is_runtime: bool,
}

impl Dependencies {
    /// Resolves the dependencies.
    pub fn resolve() -> Dependencies {
        let metadata = ask(&["--filter-platform", "x86_64-unknown-linux-gnu"]);
        let mut dependencies = Dependencies {
            metadata,
            runtime: BTreeSet::new(),
            all: BTreeSet::new(),
        };
        dependencies.runtime = dependencies.reached(false);
        dependencies.all = dependencies.reached(true);
        dependencies
    }

    /// Returns all packages by name.
    pub fn packages(&self) -> Vec<Package<'_>> {
        let all =
            list(&self.metadata["packages"]).filter(|value| self.all.contains(text(&value["id"])));
        let mut packages: Vec<Package> = all
            .map(|value| Package {
                value,
                is_runtime: self.runtime.contains(text(&value["id"])),
            })
            .collect();
        packages.sort_by_key(|package| (package.name(), package.version()));
        packages
    }

    /// Returns a package's dependencies.
    pub fn used_by(&self, id: &str) -> Vec<&str> {
        self.edges(id, true)
    }

    fn reached(&self, has_build_edges: bool) -> BTreeSet<String> {
        let is_root =
            |value: &&Value| ROOTS.contains(&text(&value["name"])) && value["source"].is_null();
        let roots = list(&self.metadata["packages"]).filter(is_root);
        let mut open: Vec<&str> = roots.map(|value| text(&value["id"])).collect();
        let mut reached = BTreeSet::new();
        while let Some(id) = open.pop() {
            if reached.insert(id.to_owned()) {
                open.extend(self.edges(id, has_build_edges));
            }
        }
        reached
    }

    /// Returns a package's dependencies. Those whose code is not in the command (procedural macros, what build
    /// scripts use) are included only if `has_build_edges`.
    fn edges(&self, id: &str, has_build_edges: bool) -> Vec<&str> {
        let nodes = list(&self.metadata["resolve"]["nodes"]);
        let edges = nodes
            .filter(|node| node["id"] == id)
            .flat_map(|node| list(&node["deps"]));
        let is_used = |edge: &&Value| {
            let mut kinds = list(&edge["dep_kinds"]).map(|kind| kind["kind"].as_str());
            kinds.any(|kind| kind.is_none() || has_build_edges && kind == Some("build"))
        };
        let used = edges.filter(is_used).map(|edge| text(&edge["pkg"]));
        used.filter(|id| has_build_edges || !self.is_macro(id))
            .collect()
    }

    fn is_macro(&self, id: &str) -> bool {
        let mut packages = list(&self.metadata["packages"]);
        let package = packages.find(|package| package["id"] == id);
        let targets = package
            .into_iter()
            .flat_map(|package| list(&package["targets"]));
        targets
            .flat_map(|target| list(&target["kind"]))
            .any(|kind| kind == "proc-macro")
    }
}

impl<'a> Package<'a> {
    /// Returns Cargo's identifier.
    pub fn id(&self) -> &'a str {
        text(&self.value["id"])
    }

    /// Returns the name.
    pub fn name(&self) -> &'a str {
        text(&self.value["name"])
    }

    /// Returns the version.
    pub fn version(&self) -> &'a str {
        text(&self.value["version"])
    }

    /// Returns the licence as an SPDX expression.
    pub fn license(&self) -> String {
        // Some older packages write a slash instead of OR.
        text(&self.value["license"]).replace('/', " OR ")
    }

    /// Returns whether the package is ours.
    pub fn is_own(&self) -> bool {
        self.value["source"].is_null()
    }

    /// Returns the package's SHA-256 in Cargo.lock.
    pub fn checksum(&self) -> Option<String> {
        let lock = read("Cargo.lock");
        let head = format!(
            "\nname = \"{}\"\nversion = \"{}\"\n",
            self.name(),
            self.version()
        );
        let entry = lock
            .split("[[package]]")
            .find(|entry| entry.starts_with(&head))?;
        let checksum = entry.split("\nchecksum = \"").nth(1)?;
        Some(checksum.split('"').next()?.to_owned())
    }

    /// Returns whether the sources have unsafe code.
    pub fn has_unsafe(&self) -> bool {
        let folder = Path::new(text(&self.value["manifest_path"])).parent();
        sources(&folder.expect("a manifest is in a folder").join("src"))
            .iter()
            .filter_map(|path| std::fs::read_to_string(path).ok())
            .any(|source| source.lines().any(is_unsafe))
    }
}

fn is_unsafe(line: &str) -> bool {
    let code = line.split("//").next().unwrap_or_default();
    let mut after = code.split("unsafe").skip(1).map(str::trim_start);
    after.any(|rest| {
        ["{", "fn ", "impl", "trait ", "extern "]
            .iter()
            .any(|word| rest.starts_with(word))
    })
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .flat_map(|entry| match entry.path() {
            path if path.is_dir() => sources(&path),
            path if path.extension().is_some_and(|end| end == "rs") => vec![path],
            _ => Vec::new(),
        })
        .collect()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsafe_in_comments_is_not_unsafe_code() {
        for line in [
            "    unsafe { f() }",
            "pub unsafe fn f() {",
            "unsafe impl Send for A {}",
        ] {
            assert!(is_unsafe(line), "{line}");
        }
        for line in [
            "// unsafe { }",
            "#![forbid(unsafe_code)]",
            "let x = 1; // unsafe fn",
        ] {
            assert!(!is_unsafe(line), "{line}");
        }
    }
}
