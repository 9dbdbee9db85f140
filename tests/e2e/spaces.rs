//! The agent (tiptoe's library) decides by its model of the address space whether a trap is its own.

use std::fs::{File, read_to_string};
use std::os::unix::fs::FileExt;

use tiptoe_tests::{ExpectedCounts, Probe, Process, Report, Site, target};

fn hex(word: &str) -> u64 {
    u64::from_str_radix(word, 16).expect("a number")
}

/// Returns the number and bytes of mappings of code. Adjacent mappings of a file count as one.
fn code(pid: u32) -> (u64, u64) {
    let list = read_to_string(format!("/proc/{pid}/maps")).expect("it lives");
    let (mut count, mut bytes, mut last) = (0, 0, None);
    for line in list.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if !words[1].contains('x') || words[4] == "0" {
            continue;
        }
        let (start, end) = words[0].split_once('-').expect("a range");
        let (start, end, offset) = (hex(start), hex(end), hex(words[2]));
        let file = (words[3].to_owned(), words[4].to_owned());
        count += u64::from(last != Some((start, offset, file.clone())));
        bytes += end - start;
        last = Some((end, offset + (end - start), file));
    }
    (count, bytes)
}

#[test]
fn the_model_of_a_changing_address_space_equals_the_kernels_list() {
    let program = target("mappings");
    let mut process = Process::waiting(&program, &["150"]);
    let site = Site::new(process.pid(), &program, "tiny");
    let attached = Probe::new(&["tiny"]).attach(&[process.pid()]);
    site.wait_probed();
    process.go();
    let counted = process.line();
    assert_eq!(process.line(), "settled");
    let (mappings, bytes) = code(process.pid());
    let report = attached.interrupt();
    report.assert_exact(&ExpectedCounts::parse(&counted));
    let space = &report.value["targets"][0]["address_space"];
    let number = |key: &str| {
        space[key]
            .as_u64()
            .unwrap_or_else(|| panic!("{key}: {space}"))
    };
    assert_eq!((number("mappings"), number("bytes")), (mappings, bytes));
    assert_eq!(number("corrected"), 0, "{space}");
    // Nine calls of each round change mappings of code.
    assert!(number("changes") >= 3 * 150 * 9, "{space}");
    assert!(
        number("speculative") > 0 && number("readings") > 0,
        "{space}"
    );
    let ways = ["speculative", "locked", "missed", "unsure"];
    let lookups: u64 = ways.map(number).iter().sum();
    assert!(lookups >= report.count("tiny"), "{space}");
    let (_, status) = process.finish();
    assert!(
        status.success(),
        "the program found something wrong: {status}"
    );
}

/// Zeroes the model's mappings and probes, which are in the largest private memory that forked
/// children do not get. Its first page has the lock and the counts.
fn empty_the_model(pid: u32) {
    let list = read_to_string(format!("/proc/{pid}/smaps")).expect("it lives");
    let (mut model, mut range, mut is_private) = (0..0, 0..0, false);
    for line in list.lines() {
        let mut words = line.split_whitespace();
        if let Some((start, end)) = words.next().and_then(|word| word.split_once('-')) {
            range = hex(start)..hex(end);
            is_private = words.next() == Some("rw-p");
        }
        let is_own = is_private && line.starts_with("VmFlags:") && line.contains(" dc");
        if is_own && range.end - range.start > model.end - model.start {
            model = range.clone();
        }
    }
    assert!(model.end - model.start > 2 << 20, "{model:x?}");
    let options = File::options().write(true).open(format!("/proc/{pid}/mem"));
    let zeroes = vec![0; (model.end - model.start) as usize - 4096];
    let emptied = options.and_then(|memory| memory.write_all_at(&zeroes, model.start + 4096));
    emptied.expect("our own child's memory");
}

/// A trap must not be passed over, because the site may be the agent's own hook, as of sigaction(2) or fork(2).
#[test]
fn with_an_empty_model_each_trap_is_found_by_its_address() {
    let program = target("mappings");
    let mut process = Process::waiting(&program, &["50"]);
    let site = Site::new(process.pid(), &program, "tiny");
    let attached = Probe::new(&["tiny"]).attach(&[process.pid()]);
    site.wait_probed();
    empty_the_model(process.pid());
    process.go();
    let counted = process.line();
    assert_eq!(process.line(), "settled");
    let report = attached.interrupt();
    report.assert_exact(&ExpectedCounts::parse(&counted));
    let space = &report.value["targets"][0]["address_space"];
    let number = |key: &str| space[key].as_u64().expect("a number");
    assert_eq!((number("speculative"), number("locked")), (0, 0), "{space}");
    let unconfirmed = number("missed") + number("unsure");
    assert!(unconfirmed >= report.count("tiny"), "{space}");
    let (_, status) = process.finish();
    assert!(status.success(), "{status}");
}

fn replaced(by: &str) {
    let run = Probe::new(&["tiny"]).run(&target("replaced"), &[by]);
    run.good().assert_exact(&run.expected());
}

#[test]
fn a_trap_in_a_new_mapping_at_a_probes_address_is_the_programs() {
    replaced("other");
}

/// Some programs copy their code, with our trap bytes, to larger pages at the same addresses.
#[test]
fn a_probe_whose_code_was_copied_still_counts() {
    replaced("copy");
}

#[test]
fn functions_that_a_second_mapping_lacks_were_probed_there() {
    let mut process = Process::waiting(&target("mapped_twice"), &["5000"]);
    let attached = Probe::new(&["mapped_twice:page_*"]).attach(&[process.pid()]);
    attached.wait_ready();
    process.go();
    let (counted, _) = process.finish();
    let report = attached.finish();
    report.assert_exact(&ExpectedCounts::parse(&counted));
    let said = format!("{:#}", report.value);
    assert!(!said.contains("another tracer"), "{said}");
    assert!(!said.contains("differs from its file"), "{said}");
    assert_eq!(report.via("kernel"), 0, "{said}");
}

/// Counts of functions whose code is mapped twice are lower bounds.
fn check(how: &str, report: &Report, expected: &ExpectedCounts, is_at_least: bool) {
    report.assert_exact(expected);
    for name in ["long_one", "tiny"] {
        let event = report.event(name).expect("it was requested");
        assert_eq!(event["at_least"] == true, is_at_least, "{how}: {event}");
    }
    let notes = report.value["typed_notes"].to_string();
    assert_eq!(notes.contains("code-moved"), is_at_least, "{how}: {notes}");
    assert!(!notes.contains("other-tracer"), "{how}: {notes}");
}

fn moved(how: &str, is_at_least: bool) {
    let library = target("costly_plugin").display().to_string();
    let words = [how, "1000", &library];
    let probe = Probe::new(&["long_one", "tiny", "libcostly_plugin.so:plugin_trap"]);
    let run = probe.run(&target("moved"), &words);
    check(how, run.good(), &run.expected(), is_at_least);
}

/// Regression: a page moved by mremap kept its patches, whose relative jumps then missed their targets, so the
/// program got SIGSEGV.
#[test]
fn a_program_that_moves_probed_code_was_killed() {
    for how in ["move", "all", "keep", "inline"] {
        moved(how, true);
    }
}

#[test]
fn a_forked_child_that_moves_probed_code_was_killed() {
    moved("child", false);
}

#[test]
fn calls_in_a_second_mapping_of_probed_code_were_missing() {
    for how in ["again", "grown", "fixed"] {
        moved(how, true);
    }
}

/// tiptoe learns only from the list of mappings that mprotect made code executable, so it may miss early calls.
#[test]
fn calls_in_code_that_becomes_executable_were_missing() {
    let mut process = Process::waiting(&target("moved"), &["written", "1000"]);
    let attached = Probe::new(&["long_one", "tiny"]).attach(&[process.pid()]);
    attached.wait_ready();
    process.go();
    let counted = [process.line(), process.line()].join("\n");
    assert_eq!(process.line(), "done");
    let report = attached.interrupt();
    check("written", &report, &ExpectedCounts::parse(&counted), true);
}

/// Regression: in arrays near libc or at a closed library's address, each byte equal to a trap byte was replaced.
#[test]
fn arrays_were_taken_for_code() {
    moved("array", false);
    moved("stale", false);
}
