//! The shared object of the agent (tiptoe's library) must need no library and have no undefined symbol.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use crate::root;

const NAME: &str = "libtiptoe_agent.so";

/// Returns the agent that `TIPTOE_AGENT_SO` names, or the newest one that was built.
pub fn agent() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("TIPTOE_AGENT_SO") {
        return Some(path.into());
    }
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    let mut found = Vec::new();
    collect(&target, 8, &mut found);
    found
        .into_iter()
        .max_by_key(|(when, _)| *when)
        .map(|(_, path)| path)
}

fn collect(folder: &Path, depth: u32, found: &mut Vec<(SystemTime, PathBuf)>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let Ok(metadata) = entry.metadata() else {
            continue;
        };
        if metadata.is_dir() && depth > 0 {
            collect(&entry.path(), depth - 1, found);
        } else if entry.file_name() == NAME {
            found.extend(metadata.modified().map(|when| (when, entry.path())));
        }
    }
}

/// Returns the needed libraries.
pub fn needed(path: &Path) -> Vec<String> {
    lines("readelf", &["-dW"], path)
        .into_iter()
        .filter(|line| line.contains("(NEEDED)"))
        .collect()
}

/// Returns the undefined symbols.
pub fn undefined(path: &Path) -> Vec<String> {
    lines("nm", &["-D", "--undefined-only"], path)
}

/// Returns the text relocations, which are forbidden because they need writable code.
pub fn text_relocations(path: &Path) -> Vec<String> {
    lines("readelf", &["-dW"], path)
        .into_iter()
        .filter(|line| line.contains("TEXTREL"))
        .collect()
}

/// Returns the vector and x87 instructions of a function and its named callees, except `but`.
pub fn vector_instructions(path: &Path, function: &str, but: &[&str]) -> Vec<String> {
    let code = lines("objdump", &["-d", "--no-show-raw-insn"], path);
    let label = |line: &str| {
        let (_, rest) = line.split_once('<')?;
        Some(rest.split_once('>')?.0.to_owned())
    };
    let mut bodies: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut current = String::new();
    for line in code {
        match line.ends_with(">:") {
            true => current = label(&line).unwrap_or_default(),
            false => bodies.entry(current.clone()).or_default().push(line),
        }
    }
    let (mut open, mut seen) = (vec![function.to_owned()], BTreeSet::new());
    let mut found = Vec::new();
    while let Some(name) = open.pop() {
        if but.contains(&&*name) || !seen.insert(name.clone()) {
            continue;
        }
        let Some(body) = bodies.get(&name) else {
            found.push(format!("there is no function {name}"));
            continue;
        };
        for line in body {
            let vector = ["%xmm", "%ymm", "%zmm", "%mm", "%st"];
            if vector.iter().any(|register| line.contains(register)) {
                found.push(format!("{name}: {}", line.trim()));
            }
            let leaves = line.contains("call ") || line.contains("jmp ");
            open.extend(label(line).filter(|target| leaves && !target.contains('+')));
        }
    }
    found
}

fn lines(tool: &str, arguments: &[&str], path: &Path) -> Vec<String> {
    let output = Command::new(tool)
        .args(arguments)
        .arg(path)
        .output()
        .unwrap_or_else(|error| panic!("{tool}: {error}"));
    assert!(
        output.status.success(),
        "{tool}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(|line| line.trim().to_owned())
        .collect()
}
