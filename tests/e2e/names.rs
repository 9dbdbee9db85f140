//! Under which names functions are reported: no two of them look like one.

use tiptoe_tests::{Probe, target};

#[test]
fn overloads_are_counted_apart() {
    for via in ["agent", "kernel"] {
        let run = Probe::new(&["shop::put"])
            .with(&["--via", via])
            .run(&target("overloads"), &["1001"]);
        run.good().assert_exact(&run.expected());
        assert_eq!(run.good().events().len(), 2, "{:#}", run.good().value);
    }
}

#[test]
fn the_selected_implementation_is_named() {
    let run = Probe::new(&["twice"]).run(&target("ifunc"), &["10"]);
    let event = run.good().event("twice").expect("the event");
    assert_eq!(event["event"], "uprobe:ifunc:twice");
    assert_eq!(event["notes"][0], "selected chosen", "{event:#}");
}
