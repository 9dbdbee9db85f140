//! The packages under `crates/`.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::root;

/// One of our packages.
#[derive(Debug, Clone)]
pub struct Package {
    /// The name, such as `tiptoe-wire`.
    pub name: String,
    /// The folder under `crates/`, such as `core/wire`.
    pub folder: String,
    /// Normal and build dependencies.
    pub dependencies: Vec<String>,
}

/// Returns the packages of this workspace.
pub fn packages() -> Vec<Package> {
    let value = ask(&["--no-deps"]);
    list(&value["packages"]).filter_map(package).collect()
}

pub(crate) fn ask(arguments: &[&str]) -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--offline", "--locked"])
        .args(arguments)
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(
        output.status.success(),
        "cargo metadata: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).expect("cargo metadata is JSON")
}

fn package(value: &Value) -> Option<Package> {
    let manifest = Path::new(value["manifest_path"].as_str()?).parent()?;
    let folder = manifest.strip_prefix(root().join("crates")).ok()?;
    let used = list(&value["dependencies"]).filter(|dependency| dependency["kind"] != "dev");
    Some(Package {
        name: value["name"].as_str()?.to_owned(),
        folder: folder.to_str()?.to_owned(),
        dependencies: used
            .filter_map(|dependency| Some(dependency["name"].as_str()?.to_owned()))
            .collect(),
    })
}

pub(crate) fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}
