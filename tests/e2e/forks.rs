//! The cost of forks of a traced program.

use tiptoe_tests::{Probe, Report, WaitingTarget, target};

const FORKS: &str = "40";

fn has_forks(report: &Report) {
    let forks = &report.value["cost"]["forks"];
    assert_eq!(forks["count"].as_u64(), Some(40), "{:#}", report.value);
    assert!(forks["unit_ns"].as_f64() > Some(0.0), "{:#}", report.value);
}

#[test]
fn forks_are_part_of_the_cost() {
    for probe in [Probe::new(&["called"]), Probe::lock()] {
        let run = probe.run(&target("forks"), &[FORKS]);
        assert_eq!(run.status, 0, "{}", run.stderr);
        has_forks(run.good());
    }
    let waiting = WaitingTarget::through(&["env"], &target("forks"), &[FORKS]);
    has_forks(&waiting.count(&Probe::new(&["called"]), &["called"]));
}

#[test]
fn a_program_without_forks_has_no_cost_of_forks() {
    let run = Probe::new(&["add"]).run(&target("hot"), &["2", "1000"]);
    assert!(run.good().value["cost"].get("forks").is_none());
}

#[derive(Clone, Copy, Debug)]
struct ForkSize {
    mappings: u64,
    /// Pages whose page-table entries a fork copies, which are the pages of mappings with a private page.
    pages: u64,
}

impl ForkSize {
    fn of(pid: u32) -> ForkSize {
        let smaps = std::fs::read_to_string(format!("/proc/{pid}/smaps")).expect("it lives");
        let mut copied = ForkSize {
            mappings: 0,
            pages: 0,
        };
        let (mut resident, mut own) = (0, 0);
        for line in smaps.lines() {
            let kilobytes = || {
                let number = line.split_whitespace().nth(1);
                number.and_then(|number| number.parse::<u64>().ok())
            };
            match line.split_once(':').map_or("", |(name, _)| name) {
                "Rss" => resident = kilobytes().expect("a number"),
                "Anonymous" => own = kilobytes().expect("a number"),
                // `VmFlags` ends a mapping's lines. A fork copies no `dc` mapping, and copies a `wf` mapping
                // without its pages.
                "VmFlags" if !line.contains(" dc") => {
                    copied.mappings += 1;
                    if own > 0 && !line.contains(" wf") {
                        copied.pages += resident / 4;
                    }
                }
                _ => {}
            }
        }
        copied
    }
}

fn added(probe: &Probe) -> [u64; 2] {
    let mut waiting = WaitingTarget::through(&["env"], &target("forks"), &[FORKS]);
    let bare = ForkSize::of(waiting.pid);
    let attached = probe.attach(&[waiting.pid]);
    attached.wait_ready();
    let traced = ForkSize::of(waiting.pid);
    waiting.process.go();
    waiting.ended();
    attached.finish();
    let mappings = traced.mappings.saturating_sub(bare.mappings);
    [mappings, traced.pages.saturating_sub(bare.pages)]
}

#[test]
fn one_patched_page_made_forks_copy_all_code() {
    let [mappings, pages] = added(&Probe::new(&["called"]));
    assert!(mappings <= 16, "{mappings}");
    assert!(pages <= 180, "{pages}");
}

#[test]
fn trampolines_were_copied_by_forks() {
    for options in [&[][..], &["--latency"]] {
        let probe = Probe::new(&["libc.so.6:*"]).with(options);
        let [mappings, pages] = added(&probe);
        assert!(mappings <= 32, "{mappings} {options:?}");
        assert!(pages <= 600, "{pages} {options:?}");
    }
}
