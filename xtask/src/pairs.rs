//! Compares locks of `tiptoe-lock`'s example `pairs`: without a hook (callback), a lock must have the bare lock's
//! instructions.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{root, steps};

/// Functions' instructions, by name.
pub type Bodies = BTreeMap<String, Vec<String>>;

/// Builds the compared functions, optimised.
pub fn build() -> PathBuf {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    let target = target.join("pairs");
    let output = Command::new(env!("CARGO"))
        .args([
            "build",
            "--locked",
            "--release",
            "--quiet",
            "-p",
            "tiptoe-lock",
        ])
        .args(["--example", "pairs", "--target-dir"])
        .arg(&target)
        // Symbols name the functions, but the release profile strips them.
        .env("CARGO_PROFILE_RELEASE_STRIP", "none")
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(
        output.status.success(),
        "cargo build: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    target.join("release/examples/pairs")
}

/// Returns how many instructions each way to take a free lock executes, bare and with the hook `Waits`.
pub fn executed(program: &Path) -> BTreeMap<String, [usize; 2]> {
    let output = Command::new("nm").arg(program).output();
    let output = output.unwrap_or_else(|error| panic!("nm: {error}"));
    let text = String::from_utf8_lossy(&output.stdout);
    let symbols = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let (address, _, name) = (words.next()?, words.next()?, words.next()?);
        let is_ours = name.ends_with("_bare") || name.ends_with("_waits");
        let address = u64::from_str_radix(address, 16).ok()?;
        is_ours.then(|| (name.to_owned(), address))
    });
    let counts = steps::count(program, &symbols.collect());
    let pairs = counts.iter().filter_map(|(name, bare)| {
        let name = name.strip_suffix("_bare")?;
        Some((
            name.to_owned(),
            [*bare, *counts.get(&format!("{name}_waits"))?],
        ))
    });
    pairs.collect()
}

/// Disassembles a program.
pub fn bodies(program: &Path) -> Bodies {
    let output = Command::new("objdump")
        .args(["-d", "--no-show-raw-insn", "--no-addresses"])
        .arg(program)
        .output()
        .unwrap_or_else(|error| panic!("objdump: {error}"));
    assert!(
        output.status.success(),
        "objdump: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    parse(&String::from_utf8_lossy(&output.stdout))
}

fn parse(code: &str) -> Bodies {
    let mut bodies = Bodies::new();
    let mut current = String::new();
    for line in code.lines().map(str::trim) {
        let label = line
            .strip_prefix('<')
            .and_then(|line| line.strip_suffix(">:"));
        match label {
            Some(label) => current = label.to_owned(),
            None if line.is_empty() || line.ends_with(':') => {}
            None => bodies
                .entry(current.clone())
                .or_default()
                .push(line.to_owned()),
        }
    }
    bodies
}

/// Returns the number of pairs, and those whose instructions differ.
pub fn differences(bodies: &Bodies) -> (usize, Vec<String>) {
    let pairs: Vec<_> = bodies
        .iter()
        .filter_map(|(name, bare)| {
            let name = name.strip_suffix("_bare")?;
            Some((name, bare, bodies.get(&format!("{name}_wrapped"))))
        })
        .collect();
    let different = pairs.iter().filter_map(|(name, bare, wrapped)| {
        let wrapped = wrapped.map_or(&[][..], Vec::as_slice);
        let [bare, wrapped] = [bare, wrapped].map(kinds);
        let numbers = format!("{name}: {} bare, {} wrapped", bare.len(), wrapped.len());
        (bare != wrapped).then_some(numbers)
    });
    (pairs.len(), different.collect())
}

fn kinds(body: &[String]) -> Vec<&str> {
    let mut kinds: Vec<&str> = body
        .iter()
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    while kinds.last().is_some_and(|kind| {
        kind.starts_with("nop") || ["int3", "xchg", "cs", "data16"].contains(kind)
    }) {
        kinds.pop();
    }
    kinds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_instruction_more_is_found() {
        let code = |more: &str| {
            let bare = "<a_bare>:\n\tmov %rax,%rbx\n\tret\n\tnop\n\n";
            format!(
                "Disassembly of section .text:\n\n{bare}<a_wrapped>:\n{more}\tmov %rcx,%rdx\n\tret\n"
            )
        };
        assert_eq!(differences(&parse(&code(""))), (1, Vec::new()));
        let (_, different) = differences(&parse(&code("\tpush %rax\n")));
        assert_eq!(different, ["a: 2 bare, 3 wrapped"]);
    }
}
