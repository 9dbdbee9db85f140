//! Writes what `tiptoe --version --verbose` prints.

#[path = "build/description.rs"]
mod description;

use std::path::{Path, PathBuf};

const BPF_PROGRAMS: &str = "../../host/kernel/bpf";

fn main() {
    let variable = |name: &str| {
        let value = std::env::var_os(name);
        PathBuf::from(value.unwrap_or_else(|| panic!("cargo sets {name}")))
    };
    for watched in ["build", BPF_PROGRAMS] {
        println!("cargo:rerun-if-changed={watched}");
    }
    for watched in description::files_of_the_commit(&description::root()) {
        println!("cargo:rerun-if-changed={}", watched.display());
    }
    let agent = variable("DEP_TIPTOE_AGENT_SO");
    // Tests compare this file's checksum with the printed one.
    println!("cargo:rustc-env=TIPTOE_AGENT_SO={}", agent.display());
    let description = description::describe(&agent, Path::new(BPF_PROGRAMS));
    let to = variable("OUT_DIR").join("description.txt");
    std::fs::write(to, description).expect("the build folder is writable");
}
