use super::*;
use tiptoe_wire::futex::{OPERATION_SHIFT, WIDTH};

fn names() -> Names {
    Names {
        modules: Vec::new(),
        maps: Vec::new(),
        sites: Vec::new(),
        jumps: Default::default(),
        stacks: Stacks::default(),
    }
}

fn thread(episodes: u64) -> Vec<u64> {
    let mut words = vec![0; WIDTH as usize];
    words[head::WAITS as usize] = 5;
    words[head::WAKES as usize] = 7;
    words[head::FULL as usize] = 1;
    words[head::SPS as usize] = 0x7000;
    words[(head::ACTIVITIES + activity::ADDRESS) as usize] = 0x1000;
    words[(head::ACTIVITIES + activity::SITE) as usize] = 0x40;
    let mut entry = |block: u32, values: &[(u32, u64)]| {
        for (word, value) in values {
            words[(block * ENTRY_WORDS + word) as usize] = *value;
        }
    };
    let key = [(e::ADDRESS, 0x1000), (e::SITE, 0x40)];
    entry(3, &key);
    entry(
        3,
        &[(e::VIA, 9 << OPERATION_SHIFT), (e::CALLS, 4), (e::WOKEN, 3)],
    );
    entry(3, &[(e::TIMED, 3)]);
    entry(
        3,
        &[(e::AT_ONCE, 1), (e::EPISODES, episodes), (e::SLEPT_NS, 300)],
    );
    entry(3, &[(e::LONGEST, 200), (e::DURATIONS + 1, 3)]);
    entry(3, &[(e::READERS, 10), (e::MOST_READERS, 6 - episodes)]);
    entry(
        3,
        &[(e::WAKERS, 0x50), (e::WAKERS + 1, 2), (e::WAKERS + 2, 250)],
    );
    words
}

#[test]
fn the_records_of_threads_are_summed_up() {
    const TICKS: u64 = 1 << 20;
    let mut noted = WaitRecords::at(TICKS);
    noted.add_thread("1 a", &thread(2), None, None);
    noted.add_thread("2 b", &thread(1), None, None);
    noted.add_unseen(4);
    let locks = noted.locks(&names(), Split::Lock);
    let sums = [locks.waits, locks.wakes, locks.unfinished, locks.others];
    assert_eq!(sums, [10, 14, 2, 6]);
    let [row] = &locks.rows[..] else {
        panic!("{:?}", locks.rows)
    };
    assert_eq!(
        (&*row.lock, &*row.kind, &*row.callsite),
        ("0x1000", "futex", "0x40")
    );
    let counts = [row.episodes, row.slept, row.at_once, row.total_ns];
    assert_eq!(counts, [3, 6, 2, 600]);
    assert_eq!(row.timed, None, "all were");
    let unfinished = Unfinished {
        waits: 2,
        total_ns: 2 * ns_between(0, TICKS),
    };
    assert_eq!(row.unfinished, Some(unfinished));
    assert_eq!(row.histogram.as_ref().map(|times| times.max_ns), Some(200));
    let readers = row.readers.as_ref().expect("some read");
    assert_eq!((readers.average, readers.most), (2.5, 5));
    let blame = &row.blame[0];
    assert_eq!(
        (&*blame.callsite, blame.count, blame.total_ns),
        ("0x50", 4, 500)
    );
    let by_thread = noted.locks(&names(), Split::Thread);
    let threads: Vec<&str> = by_thread.rows.iter().map(|row| &*row.lock).collect();
    assert_eq!(threads, ["1 a", "2 b"]);
}

#[test]
fn rows_whose_waits_were_not_all_timed_say_so() {
    let mut thinned = thread(1);
    thinned[(3 * ENTRY_WORDS + e::TIMED) as usize] = 1;
    let mut noted = WaitRecords::default();
    noted.add_thread("1 a", &thinned, None, None);
    noted.add_thread("2 b", &thread(1), None, None);
    let locks = noted.locks(&names(), Split::Lock);
    assert_eq!((locks.rows[0].slept, locks.rows[0].timed), (6, Some(4)));
    let by_thread = noted.locks(&names(), Split::Thread);
    let timed: Vec<_> = by_thread.rows.iter().map(|row| row.timed).collect();
    assert_eq!(timed, [Some(1), None]);
}

#[test]
fn hostile_words_of_a_target_are_only_reported() {
    let mut noted = WaitRecords::default();
    noted.add_thread("1 a", &vec![u64::MAX; WIDTH as usize], None, None);
    noted.add_thread("2 b", &[u64::MAX; 5], None, None);
    let locks = noted.locks(&names(), Split::Type);
    assert_eq!(locks.wakes, u64::MAX);
    let mut hostile = thread(1);
    hostile[(3 * ENTRY_WORDS + e::AT_ONCE) as usize] = u64::MAX;
    hostile[(3 * ENTRY_WORDS + e::OTHER) as usize] = u64::MAX;
    noted.add_thread("3 c", &hostile, None, None);
    noted.add_thread("4 d", &hostile, None, None);
    assert_eq!(noted.locks(&names(), Split::Callsite).rows.len(), 2);
}

/// Returns a thread's words: waits of 300 ns with these holders.
fn thread_with(holders: &[(u64, u64)]) -> Vec<u64> {
    let mut words = thread(1);
    for (slot, (key, ns)) in (0..).zip(holders) {
        let at = (3 * ENTRY_WORDS + e::HOLDERS + slot * e::HOLDER_WORDS) as usize;
        (words[at], words[at + 2]) = (*key, *ns);
    }
    words
}

#[test]
fn holders_are_reported_if_nearly_all_are_known() {
    use tiptoe_wire::futex::holder::{READERS, THREAD, UNKNOWN, UNSEEN};
    let check = |holders: &[(u64, u64)], want: Option<&[(&str, u64)]>| {
        let mut noted = WaitRecords::default();
        noted.add_thread("1 a", &thread_with(holders), None, None);
        noted.add_holder(7, "7 b");
        let locks = noted.locks(&names(), Split::Lock);
        let row = &locks.rows[0];
        let name = |holder: &tiptoe_session::Holder| match (&holder.callsite, &holder.thread) {
            (Some(name), None) | (None, Some(name)) => name.clone(),
            _ => String::new(),
        };
        let reported = row.holders.iter().map(|one| (name(one), one.total_ns));
        let reported: Vec<(String, u64)> = reported.collect();
        let want = want.unwrap_or_default().iter();
        let want: Vec<(String, u64)> = want.map(|(name, ns)| ((*name).to_owned(), *ns)).collect();
        assert_eq!(reported, want);
        let known: u64 = want.iter().map(|(_, ns)| ns).sum();
        let unknown = (!want.is_empty()).then_some(300 - known);
        assert_eq!(row.unknown_ns, unknown);
    };
    let thread = |id: u64| THREAD | id;
    check(
        &[(0x60, 100), (thread(7), 150), (READERS, 40), (UNSEEN, 10)],
        Some(&[("7 b", 150), ("0x60", 100), ("", 40)]),
    );
    check(&[(0x60, 285), (UNKNOWN, 15)], Some(&[("0x60", 285)]));
    check(&[(0x60, 280), (UNKNOWN, 20)], None);
    check(&[(0x60, 200)], None);
    // The lock's word contained a number that is no thread's id.
    check(&[(0x60, 200), (thread(8), 100)], None);
    check(&[(UNSEEN, 300)], None);
}

#[test]
fn a_cancelled_wait_was_reported_as_unfinished() {
    let mut noted = WaitRecords::default();
    let seen: &dyn Fn(u32) -> u64 = &|index| 1_000 + u64::from(index);
    noted.add_thread("1 a", &thread(1), None, Some(seen));
    let locks = noted.locks(&names(), Split::Lock);
    assert_eq!(locks.unfinished, 0);
    let sums = |sum: fn(&Lock) -> u64| locks.rows.iter().map(sum).sum::<u64>();
    assert_eq!(sums(|row| row.left), 1);
    assert_eq!(sums(|row| row.total_ns), 300 + 1_000);
    assert!(
        locks.rows.iter().all(|row| row.timed.is_none()),
        "{:?}",
        locks.rows
    );
}
