//! Traced programs that trace their own child.

use tiptoe_tests::{Probe, target};

#[test]
fn a_tracer_saw_our_trap_bytes_in_its_child() {
    for mode in ["traceme", "own", "seize", "attach"] {
        let probe = Probe::new(&["only_trap"]).with(&["--via", "agent"]);
        let run = probe.run(&target("traced_child"), &[mode, "100"]);
        println!("{mode}: {}", run.stderr);
        let report = run.good();
        report.assert_exact(&run.expected());
        assert_eq!(report.via("agent"), 1, "{mode}: {:#}", report.value);
        let said = String::from_utf8_lossy(&run.stdout);
        assert!(
            said.contains("trapped\n"),
            "{mode}: no trap byte was there: {said}"
        );
        assert!(said.contains("foreign stops 0\n"), "{mode}: {said}");
    }
}
