//! Programs that may make only some system calls. The agent (tiptoe's library) must end before a program confines
//! itself, because the filter would kill the program for the agent's calls.

use tiptoe_tests::{Probe, Report, WaitingTarget, skipped, target};

const FUNCTIONS: &[&str] = &["guarded"];

fn under(filter: &str, options: &[&str]) -> Report {
    let waiting =
        WaitingTarget::through(&["env"], &target("sandboxed"), &[filter, "5000", "first"]);
    waiting.count(&Probe::new(FUNCTIONS).with(options), FUNCTIONS)
}

fn notes(report: &Report) -> String {
    report.value["notes"].to_string()
}

#[test]
fn the_kernel_counts_whatever_the_filter_does() {
    for filter in ["refuse", "kill", "mild"] {
        let report = under(filter, &[]);
        assert_eq!(report.via("kernel"), 1, "{filter}: {:#}", report.value);
        assert!(
            notes(&report).contains("under seccomp"),
            "{}",
            notes(&report)
        );
        assert!(notes(&report).contains("--force"), "{}", notes(&report));
    }
}

#[test]
fn force_enters_if_the_filter_allows_it() {
    let report = under("mild", &["--force"]);
    assert_eq!(report.via("agent"), 1, "{:#}", report.value);
}

/// Under the filter, the thread that should load the agent may not map memory. The test cannot wait for patched
/// code, because the failing attach patches code, too.
#[test]
fn force_is_refused_if_the_filter_refuses() {
    let waiting =
        WaitingTarget::through(&["env"], &target("sandboxed"), &["refuse", "5000", "first"]);
    let forced = Probe::new(FUNCTIONS).with(&["--force", "--duration", "0.3"]);
    let run = forced.attach_and_wait(&[waiting.pid]);
    let report = run.good();
    assert_eq!(waiting.end().0.get("guarded"), Some(&5000));
    assert_eq!(report.via("kernel"), 1, "{:#}", report.value);
    assert!(
        notes(report).contains("may it map memory?"),
        "{}",
        notes(report)
    );
}

/// The filter refuses a call that the agent's thread makes if the program has several threads.
#[test]
fn force_is_refused_if_the_filter_forbids_membarrier() {
    let report = under("unfenced", &["--force"]);
    assert_eq!(report.via("kernel"), 1, "{:#}", report.value);
    assert!(
        notes(&report).contains("the agent could not begin"),
        "{}",
        notes(&report)
    );
}

#[test]
fn a_program_may_sandbox_itself_while_traced() {
    for filter in ["strict", "kill", "refuse", "mild"] {
        sandboxes_itself(filter, "late");
    }
}

/// With TSYNC, seccomp(2) confines all threads at once, so the agent's thread must have ended.
#[test]
fn a_program_may_sandbox_all_of_its_threads_while_traced() {
    for filter in ["strict", "kill", "mild"] {
        sandboxes_itself(filter, "tsync");
    }
}

fn sandboxes_itself(filter: &str, when: &str) {
    let program = target("sandboxed");
    let run = Probe::new(FUNCTIONS).run(&program, &[filter, "5000", when]);
    assert_eq!(
        run.expected().0.get("guarded"),
        Some(&5000),
        "{filter}: {}",
        run.stderr
    );
    assert!(
        notes(run.good()).contains("put itself under seccomp"),
        "{}",
        notes(run.good())
    );

    let waiting = WaitingTarget::through(&["env"], &program, &[filter, "5000", when]);
    let site = waiting.site("guarded");
    let attached = Probe::new(FUNCTIONS).attach(&[waiting.pid]);
    site.wait_probed();
    assert_eq!(waiting.end().0.get("guarded"), Some(&5000), "{filter}");
    let report = attached.finish();
    assert!(
        notes(&report).contains("put itself under seccomp"),
        "{}",
        notes(&report)
    );
}

#[test]
fn a_sandboxed_package_prints_what_it_prints() {
    let Some(file) = tiptoe_tests::installed("file") else {
        return skipped("file", "not installed");
    };
    let arguments = ["/bin/ls", "/etc/passwd"];
    let alone = std::process::Command::new(&file)
        .args(arguments)
        .output()
        .expect("file runs");
    let run = Probe::new(&["libmagic.so.1:magic_*"]).run(&file, &arguments);
    run.good();
    assert_eq!(run.stdout, alone.stdout);
}

/// A child's trap bytes must be removed before the child installs a filter or is traced by its parent.
#[test]
fn a_forked_child_made_calls_of_the_agents() {
    let functions = ["turned", "fixed"];
    for mode in ["unseen", "filter", "exec", "traced"] {
        for options in [&[][..], &["--latency"]] {
            let run = Probe::new(&functions)
                .with(options)
                .run(&target("child_filters"), &[mode, "1000"]);
            println!("{mode} {options:?}: {}", run.stderr);
            run.good().assert_exact(&run.expected());
        }
    }
}

#[test]
fn a_dispatcher_of_system_calls_got_those_of_the_agent() {
    let program = target("dispatched");
    let alone = std::process::Command::new(&program)
        .arg("100")
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&alone.stdout);
    if said.contains("no dispatch") {
        return skipped("dispatch", "the kernel has no syscall user dispatch");
    }
    for (arguments, options) in [
        (&["100"][..], &["--via", "agent"][..]),
        (&["100"], &[]),
        (&["100"], &["--latency"]),
        (&["100", "own"], &["--via", "agent"]),
    ] {
        let run = Probe::new(&["only_trap"])
            .with(options)
            .run(&program, arguments);
        println!("{arguments:?} {options:?}: {}", run.stderr);
        let report = run.good();
        assert!(
            run.stdout == alone.stdout,
            "{}",
            String::from_utf8_lossy(&run.stdout)
        );
        assert!(
            notes(report).contains("sent its system calls to a signal handler"),
            "{}",
            notes(report)
        );
    }
}
