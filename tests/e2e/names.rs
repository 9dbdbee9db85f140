//! No two functions are reported by one name.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use tiptoe_tests::process::output;
use tiptoe_tests::{Probe, Run, command, go_target, skipped, target};

#[test]
fn overloads_are_counted_separately() {
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

fn check_each(specs: &[&str], calls: u64) {
    let run = Probe::new(specs).run(&target("abi_tags"), &[&calls.to_string()]);
    let events = run.good().events();
    assert_eq!(events.len(), specs.len(), "{:#}", run.good().value);
    for event in events {
        assert_eq!(event["count"], calls, "{event:#}");
    }
}

#[test]
fn names_with_tags_of_an_abi_are_found_as_written_and_as_shown() {
    check_each(
        &[
            "tagged",
            "shop::Box::label",
            "main::{lambda(int)#1}::operator()(int)",
        ],
        300,
    );
    check_each(&["tagged(int)", "shop::Box::label()"], 30);
    check_each(
        &[
            "tagged[abi:cxx11]",
            "abi_tags:shop::Box::label[abi:cxx11]() const",
        ],
        20,
    );
    check_each(&["tag*[abi:cxx11]", "*::label"], 20);
    for under in ["tagged", "tagged[abi:cxx11]"] {
        let run = Probe::new(&["shop::Box::label"])
            .with(&["--under", under])
            .run(&target("abi_tags"), &["10"]);
        assert_eq!(run.good().count("shop::Box::label[abi:cxx11]"), 0);
    }
}

/// A `[` in a library's name does not begin a glob's set of characters.
#[test]
fn libraries_of_any_name_are_found() {
    let folder = std::env::temp_dir().join(format!("tiptoe-odd-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    for (name, spec) in [
        (&b"a:b.so"[..], "a:b.so:plugin_work"),
        (b"a[1]:b.so", "a[1]:b.so:plugin_work"),
        (b"\xffodd.so", "*odd.so:plugin_work"),
        (b"\xffodd.so", "\u{fffd}odd.so:plugin_work"),
        (b"new\nline.so", "new?line.so:plugin_work"),
    ] {
        let library = folder.join(OsStr::from_bytes(name));
        fs::copy(target("plugin"), &library).expect("a copy");
        let (mut command, report) = Probe::new(&[spec]).launch(&target("dlopens"));
        let run = Run::new(output(command.arg(&library).arg("5")), &report);
        let events = run.good().events();
        assert_eq!(events.len(), 1, "{spec}: {:#}", run.good().value);
        assert_eq!(events[0]["count"], 10, "{spec}");
    }
    fs::remove_dir_all(&folder).expect("the folder");
}

/// Go's own functions are named `type:.eq…`, `go:…`.
#[test]
fn names_of_go_with_a_single_colon_are_found() {
    let program = match go_target("parks", &[]) {
        Ok(program) => program,
        Err(why) => return skipped("a program of Go's", &why),
    };
    for spec in ["type:.eq.*", "parks:type:.eq.*"] {
        let run = Probe::new(&[spec])
            .with(&["--via", "kernel"])
            .run(&program, &["2", "2"]);
        assert!(!run.good().events().is_empty(), "{spec}: {}", run.stderr);
    }
}

#[test]
fn a_function_that_is_inlined_everywhere_is_said() {
    let mut tiptoe = command();
    tiptoe.args(["probe", "body", "--"]).arg(target("inlined"));
    let output = tiptoe.output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("no function `body`"), "{said}");
    let hint = "hint: the compiler inlined all calls of `body`, into `all`, `hot`\n";
    assert!(said.contains(hint), "{said}");
}

#[test]
fn places_where_a_function_is_inlined_are_noted() {
    for via in ["agent", "kernel"] {
        let run = Probe::new(&["hot", "all"])
            .with(&["--via", via])
            .run(&target("inlined"), &["100"]);
        run.good().assert_exact(&run.expected());
        let event = run.good().event("hot").expect("the event");
        assert_eq!(
            event["notes"][0], "1 inlined place is not counted: in all",
            "{event:#}"
        );
        let other = run.good().event("all").expect("the event");
        assert!(
            other["notes"].is_null() || other["notes"] == serde_json::json!([]),
            "{other:#}"
        );
    }
}
