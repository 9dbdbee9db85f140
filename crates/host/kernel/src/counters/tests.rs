use super::*;

fn groups(list: &str) -> Vec<Vec<Counter<'_>>> {
    let groups = tiptoe_event::counter_groups(list);
    groups
        .map(|group| group.unwrap().events().collect())
        .collect()
}

fn counting(list: &str) -> Option<CounterSet> {
    let tid = std::fs::read_link("/proc/thread-self").ok()?;
    let tid = tid.file_name()?.to_str()?.parse().ok()?;
    match CounterSet::open(&groups(list), &CountTarget::Threads(vec![tid])) {
        Ok(set) => {
            set.enable().unwrap();
            Some(set)
        }
        Err(error) => {
            crate::skipped::skipped("counters", &error.to_string());
            None
        }
    }
}

fn count(set: &CounterSet, event: usize) -> u64 {
    let read = set.read().unwrap();
    let counts = read[event].iter().filter_map(|(_, counts)| *counts);
    counts.map(|counts| counts.count).sum()
}

#[test]
fn faults_are_counted_and_inherited() {
    const PAGES: usize = 64;
    let touch = || {
        let mut pages = vec![0u8; PAGES * 4096];
        pages.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
        std::hint::black_box(&pages);
    };
    let Some(set) = counting("{page-faults:u,task-clock}") else {
        return;
    };
    std::thread::spawn(touch).join().unwrap();
    set.disable().unwrap();
    let faults = count(&set, 0);
    assert!(faults >= PAGES as u64, "{faults}");
    assert!(count(&set, 1) > 0);
    touch();
    assert_eq!(count(&set, 0), faults, "it is switched off");
}

#[test]
fn an_event_that_the_machine_lacks_is_omitted() {
    let Some(set) = counting("r7777777777777777,page-faults") else {
        return;
    };
    let support: Vec<Support> = set.events().map(|(_, support)| support).collect();
    assert_eq!(support[0], Support::None);
    assert_ne!(support[1], Support::None);
    assert!(set.read().unwrap()[0].is_empty());
}

#[test]
fn an_event_without_a_known_name_is_an_error() {
    for (list, message) in [
        ("no_pmu_here/x/", "this machine has no PMU 'no_pmu_here'"),
        ("sched:sched_swich", "no tracepoint 'sched:sched_swich'"),
    ] {
        let error = CounterSet::open(&groups(list), &CountTarget::Threads(vec![0])).unwrap_err();
        let is_closed = matches!(error, Error::NoTracefs { .. });
        assert!(is_closed || error.to_string().contains(message), "{error}");
    }
    let gone = CounterSet::open(
        &groups("page-faults"),
        &CountTarget::Processes(vec![u32::MAX / 2]),
    );
    assert!(gone.is_err());
}
