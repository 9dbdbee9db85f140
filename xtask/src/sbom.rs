//! The command's software bill of materials, in CycloneDX 1.5.

use serde_json::{Value, json};

use crate::dependencies::{Dependencies, Package};

/// Returns the document, which depends only on the sources.
pub fn document(dependencies: &Dependencies) -> Value {
    let packages = dependencies.packages();
    let (command, others): (Vec<&Package>, Vec<&Package>) = packages
        .iter()
        .partition(|package| package.is_own() && package.name() == "tiptoe");
    let reference = |id: &str| packages.iter().find(|package| package.id() == id).map(purl);
    let edges = packages.iter().map(|package| {
        let used = dependencies.used_by(package.id()).into_iter();
        let used: Vec<String> = used.filter_map(reference).collect();
        json!({"ref": purl(package), "dependsOn": used})
    });
    json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": command.first().map(|package| component(package, "application"))},
        "components": others.iter().map(|package| component(package, "library")).collect::<Vec<_>>(),
        "dependencies": edges.collect::<Vec<_>>(),
    })
}

fn component(package: &Package, kind: &str) -> Value {
    let checksum = package.checksum();
    let hashes = checksum.map(|content| json!({"alg": "SHA-256", "content": content}));
    json!({
        "type": kind,
        "bom-ref": purl(package),
        "name": package.name(),
        "version": package.version(),
        "purl": purl(package),
        "scope": if package.is_runtime { "required" } else { "excluded" },
        "licenses": [{"expression": package.license()}],
        "hashes": Vec::from_iter(hashes),
    })
}

fn purl(package: &Package) -> String {
    format!("pkg:cargo/{}@{}", package.name(), package.version())
}
