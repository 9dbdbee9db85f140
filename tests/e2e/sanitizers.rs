//! Programs with a sanitizer, whose runtime checks which libraries precede it and which addresses are mapped.

use std::path::PathBuf;
use tiptoe_tests::{Probe, WaitingTarget, skipped, target_with};

const FUNCTIONS: &[&str] = &["checked"];

fn programs() -> Vec<(String, PathBuf)> {
    let mut found = Vec::new();
    for (name, flags) in [
        ("address", &["-fsanitize=address"][..]),
        ("address-static", &["-fsanitize=address", "-static-libasan"]),
        ("thread", &["-fsanitize=thread"]),
        ("thread-static", &["-fsanitize=thread", "-static-libtsan"]),
        ("leak", &["-fsanitize=leak"]),
        ("undefined", &["-fsanitize=undefined"]),
    ] {
        match target_with("sanitized", flags) {
            Ok(program) => found.push((name.to_owned(), program)),
            Err(_) => skipped(name, "this compiler has no such sanitizer"),
        }
    }
    found
}

#[test]
fn a_sanitizers_runtime_refused_to_start() {
    for (name, program) in programs() {
        for options in [&[][..], &["--latency"], &["--via", "kernel"]] {
            let run = Probe::new(FUNCTIONS).with(options).run(&program, &[]);
            println!("{name} {options:?}: {}", run.stderr);
            run.good().assert_exact(&run.expected());
        }
        let run = Probe::lock().run(&program, &[]);
        println!("{name} lock: {}", run.stderr);
        run.good();
        assert_eq!(run.expected().0.get("checked"), Some(&3000));
    }
}

/// tiptoe preloads the runtime before the agent (tiptoe's library). The program's environment must not show the
/// runtime.
#[test]
fn the_environment_of_a_sanitized_program_is_its_own() {
    let Ok(runtime) = std::process::Command::new("gcc")
        .arg("-print-file-name=libasan.so")
        .output()
    else {
        return skipped("libasan", "no gcc");
    };
    let runtime = String::from_utf8_lossy(&runtime.stdout).trim().to_owned();
    let shell = std::path::Path::new("/bin/sh");
    for preload in [None, Some(runtime.as_str())] {
        let mut probe = Probe::new(&["libc.so.6:getenv"]).env("ASAN_OPTIONS", "detect_leaks=0");
        if let Some(preload) = preload {
            probe = probe.env("LD_PRELOAD", preload);
        }
        let run = probe.run(shell, &["-c", "echo \"[$LD_PRELOAD]\""]);
        run.good();
        let said = String::from_utf8_lossy(&run.stdout).trim().to_owned();
        assert_eq!(said, format!("[{}]", preload.unwrap_or("")));
    }
}

/// Threads wait inside the runtime, so none can load the agent.
#[test]
#[ignore = "nightly: waits five seconds for each program"]
fn a_running_sanitized_program_is_counted() {
    let looked_at = ["address", "thread"];
    let programs = programs().into_iter();
    for (name, program) in programs.filter(|(name, _)| looked_at.contains(&&**name)) {
        println!("{name}");
        let waiting = WaitingTarget::through(&["env"], &program, &[]);
        waiting.count(&Probe::new(FUNCTIONS), FUNCTIONS);
    }
}
