//! Builds and links the agent, tiptoe's library in a traced program.
//!
//! The agent needs its own profile (abort on panic, one codegen unit), so a second cargo builds it. The second has
//! its own target folder, because the first locks its own folder until this script ends.

use std::path::{Path, PathBuf};
use std::process::Command;

const AGENT: &str = "../agent";

fn main() {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    for watched in [
        AGENT,
        "../../core/sys/src/raw.rs",
        "../../core/sys/src/rights.rs",
        "../../core/event",
        "../../core/port",
        "../../core/sync",
        "../../core/wire",
        "../../code/stack",
        "../../engines/breakpoint",
        "../../engines/futex",
        "../../engines/label",
        "../../engines/uprobe",
    ] {
        println!("cargo:rerun-if-changed={watched}");
    }
    let archive = compile(&out.join("agent"));
    let library = out.join("libtiptoe_agent.so");
    link(&archive, &library);
    println!("cargo:rustc-env=TIPTOE_AGENT_SO={}", library.display());
    // Packages that depend on this one read DEP_TIPTOE_AGENT_SO.
    println!("cargo:so={}", library.display());
}

fn compile(target: &Path) -> PathBuf {
    let cargo = std::env::var_os("CARGO").expect("cargo sets CARGO");
    let manifest = Path::new(AGENT).join("Cargo.toml");
    let mut build = Command::new(cargo);
    build
        .args([
            "rustc",
            "--quiet",
            "--offline",
            "--locked",
            "--lib",
            "--profile",
            "agent",
        ])
        .args(["--crate-type", "staticlib", "--manifest-path"])
        .arg(manifest)
        .env("CARGO_TARGET_DIR", target)
        .env(
            "RUSTFLAGS",
            "-Crelocation-model=pic -Cforce-frame-pointers=no -Cforce-unwind-tables=yes",
        )
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("RUSTC_WORKSPACE_WRAPPER");
    run(&mut build);
    target.join("agent/libtiptoe_agent.a")
}

/// Links the agent without any library, because the traced program may lack that library.
fn link(archive: &Path, library: &Path) {
    let script = library.with_extension("map");
    std::fs::write(&script, "{ global: tiptoe_agent_entry; local: *; };\n")
        .expect("the build folder is writable");
    // Each mapping slows each fork of a traced program, so the image has only three: code and constants, relocated
    // data, and other data. Zeroed data that is not in the file would be a fourth mapping.
    let zeroed = library.with_extension("ld");
    std::fs::write(
        &zeroed,
        "SECTIONS { .zeroed : { BYTE(0) *(.bss .bss.*) } } INSERT AFTER .data;\n",
    )
    .expect("the build folder is writable");
    let mut cc = Command::new("cc");
    cc.args([
        "-shared",
        "-nostdlib",
        "-nostartfiles",
        "-Wl,--gc-sections",
        "-Wl,--no-undefined",
    ])
    .args([
        "-Wl,-z,initfirst",
        "-Wl,-z,now",
        "-Wl,-z,noexecstack",
        "-Wl,-z,noseparate-code",
        "-Wl,--build-id=none",
    ])
    .args([
        "-Wl,-soname,libtiptoe_agent.so",
        "-Wl,-u,tiptoe_agent_entry",
        "-Wl,-u,TIPTOE_NAME",
        "-Wl,-u,TIPTOE_KEY",
    ])
    .arg(format!("-Wl,--version-script={}", script.display()))
    .arg(format!("-Wl,-T,{}", zeroed.display()))
    .arg("-o")
    .arg(library)
    .arg(archive);
    run(&mut cc);
}

fn run(command: &mut Command) {
    let status = command
        .status()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(status.success(), "{command:?} failed: {status}");
}
