//! Sums up and names the waits for locks that threads recorded. A thread's words (its counters) are hostile data from
//! the target: none may be used as an index.

use std::collections::{BTreeMap, BTreeSet};

use tiptoe_event::Histogram as Times;
use tiptoe_kernel::futexes::{Calls, FutexCounts, FutexKey};
use tiptoe_session::{Dropped, EarlyWaitSums, Histogram, Hold, Lock, Locks, Readers, Unfinished};
use tiptoe_wire::futex::{ENTRY_WORDS, HOLDS, activity, entry as e, head};

use crate::counts::plain;
use crate::request::Split;
use crate::scopes::Tree;

mod blame;
mod early;
mod futex_sleeper;
mod hold_rows;
mod lock_kind;
mod named;
mod names;
mod now;
mod proxies;
mod refused;
#[cfg(test)]
mod tests;
mod thread_ids;
mod unfinished;
mod wait_totals;

use blame::Holders;
pub use early::EarlyWaits;
pub use lock_kind::LockKind;
pub use named::address_of;
pub use names::{Names, Stacks};
pub use now::{deadlocks, now};
pub use thread_ids::ThreadIds;
pub use unfinished::ns_between;
pub use wait_totals::WaitTotals;

const UNKNOWN_SCOPE: &str = "(scope not known)";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    address: u64,
    site: u64,
    /// The outermost address in libc, with the futex operation in the high bits. For a lock that a library reports:
    /// the address of its name, and its mode.
    via: u64,
}

#[derive(Clone, Debug, Default)]
struct Waits {
    calls: u64,
    at_once: u64,
    timed_out: u64,
    interrupted: u64,
    other: u64,
    left: u64,
    episodes: u64,
    slept_ns: u64,
    timed: u64,
    longest: u64,
    readers: u64,
    most_readers: u64,
    times: Times,
    /// By the waker's call site: how many waits were ended there, and the nanoseconds of these waits.
    wakers: BTreeMap<u64, (u64, u64)>,
    holders: Holders,
}

impl Waits {
    fn read(words: &[u64]) -> Waits {
        let word = |word: u32| words.get(word as usize).copied().unwrap_or(0);
        let durations = words.get(e::DURATIONS as usize..).unwrap_or_default();
        let mut times = Times::default();
        if let [zero, counts @ ..] = durations {
            times.add_counts(*zero, counts);
        }
        let wakers = (0..e::WAKER_COUNT).map(|i| e::WAKERS + i * e::WAKER_WORDS);
        let wakers = wakers.filter(|at| word(*at) != 0);
        Waits {
            calls: word(e::CALLS),
            at_once: word(e::AT_ONCE),
            timed_out: word(e::TIMED_OUT),
            interrupted: word(e::INTERRUPTED),
            other: word(e::OTHER),
            left: word(e::LEFT),
            episodes: word(e::EPISODES),
            slept_ns: word(e::SLEPT_NS),
            timed: word(e::TIMED),
            longest: word(e::LONGEST),
            readers: word(e::READERS),
            most_readers: word(e::MOST_READERS),
            times,
            wakers: wakers
                .map(|at| (word(at), (word(at + 1), word(at + 2))))
                .collect(),
            holders: Holders::read(words),
        }
    }

    fn of(row: &FutexCounts) -> Waits {
        let ends = row.ends;
        Waits {
            calls: row.calls(),
            at_once: ends.at_once,
            timed_out: ends.timed_out,
            interrupted: ends.interrupted,
            other: ends.other,
            left: 0,
            episodes: row.episodes,
            slept_ns: row.slept_ns,
            timed: slept(row.calls(), ends.at_once, ends.other),
            longest: row.longest_ns,
            // The BPF program does not read the lock's word.
            readers: 0,
            most_readers: 0,
            times: row.times(),
            wakers: row
                .wakers()
                .map(|waker| (waker.site, (waker.count, waker.total_ns)))
                .collect(),
            holders: Holders::default(),
        }
    }

    fn add(&mut self, other: &Waits) {
        let sums = [
            (&mut self.calls, other.calls),
            (&mut self.at_once, other.at_once),
            (&mut self.timed_out, other.timed_out),
            (&mut self.interrupted, other.interrupted),
            (&mut self.other, other.other),
            (&mut self.left, other.left),
            (&mut self.episodes, other.episodes),
            (&mut self.slept_ns, other.slept_ns),
            (&mut self.timed, other.timed),
            (&mut self.readers, other.readers),
        ];
        for (sum, more) in sums {
            *sum = sum.saturating_add(more);
        }
        self.longest = self.longest.max(other.longest);
        self.most_readers = self.most_readers.max(other.most_readers);
        self.times.merge(&other.times);
        self.holders.add(&other.holders);
        for (site, (count, ns)) in &other.wakers {
            let sum = self.wakers.entry(*site).or_default();
            *sum = (sum.0.saturating_add(*count), sum.1.saturating_add(*ns));
        }
    }
}

#[derive(Default)]
pub struct WaitRecords {
    /// The sums of waits, by key, and by the thread's or scope's name.
    waits: BTreeMap<(Key, String), Waits>,
    early: BTreeMap<(Key, String), EarlyWaitSums>,
    /// The holds of the lock of `--hold`, by the lock's address and the call site that took the lock.
    holds: BTreeMap<(u64, u64), Waits>,
    /// The hold that was in progress when the trace began: the lock, the thread, and the observed ns.
    early_hold: Option<(u64, String, u64)>,
    stacks: Stacks,
    /// The names that libraries give their locks, by `via`.
    reported: BTreeMap<u64, String>,
    threads: BTreeMap<u32, String>,
    all_waits: u64,
    all_wakes: u64,
    unfinished: BTreeMap<(Key, String), Unfinished>,
    unfinished_without_row: u64,
    /// When the words were read, in ticks.
    now: u64,
    others: u64,
    drops: Vec<Dropped>,
}

impl WaitRecords {
    /// Adds the records in a thread's words, by scope if `scopes` is given. For an ended thread, `last_seen` returns
    /// how many ns a wait lasted, by the wait's index among nested waits. A wait in which a thread ended counts as
    /// left, because it never returned.
    pub fn add_thread(
        &mut self,
        thread: &str,
        words: &[u64],
        scopes: Option<&Tree>,
        last_seen: Option<&dyn Fn(u32) -> u64>,
    ) {
        let mut blocks = words.chunks_exact(ENTRY_WORDS as usize);
        let first = blocks.next().unwrap_or_default();
        let word = |word: u32| first.get(word as usize).copied().unwrap_or(0);
        self.others = self.others.saturating_add(word(head::FULL));
        self.stacks.add(word(head::EPISODE_FRAME), thread);
        self.all_waits = self.all_waits.saturating_add(word(head::WAITS));
        self.all_wakes = self.all_wakes.saturating_add(word(head::WAKES));
        let on = (0..activity::DEPTH).take_while(|index| word(head::SPS + index) != 0);
        for index in on {
            let at = |part| word(head::ACTIVITIES + index * activity::WORDS + part);
            let [address, site, via] = [activity::ADDRESS, activity::SITE, activity::VIA].map(at);
            let key = Key { address, site, via };
            let who = match scopes {
                Some(_) => UNKNOWN_SCOPE,
                None => thread,
            };
            match last_seen {
                _ if address == 0 => {}
                None => self.add_open_wait(key, who, at(activity::SINCE)),
                Some(ns) => {
                    let left = Waits {
                        calls: 1,
                        left: 1,
                        slept_ns: ns(index),
                        ..Waits::default()
                    };
                    let sums = self.waits.entry((key, who.to_owned()));
                    sums.or_default().add(&left);
                }
            }
        }
        for block in blocks {
            let [address, site, via] = [e::ADDRESS, e::SITE, e::VIA].map(|at| block[at as usize]);
            if address == 0 || site == 0 && via == 0 {
                continue;
            }
            if via == HOLDS {
                let sums = self.holds.entry((address, site)).or_default();
                sums.add(&Waits::read(block));
                continue;
            }
            if let Some(name) = reported_name(block) {
                self.reported.insert(via, name);
            }
            let key = Key { address, site, via };
            let who = match scopes {
                Some(scopes) => scopes.name(block[e::SCOPE as usize]),
                None => thread.to_owned(),
            };
            let sums = self.waits.entry((key, who)).or_default();
            sums.add(&Waits::read(block));
        }
    }

    pub fn add_holder(&mut self, tid: u32, thread: &str) {
        self.threads.insert(tid, thread.to_owned());
    }

    pub fn add_unseen(&mut self, calls: u64) {
        self.others = self.others.saturating_add(calls);
    }

    /// `ended_inside` is how many threads ended during a wait.
    pub fn add_in_kernel(
        &mut self,
        rows: &[(FutexKey, FutexCounts)],
        calls: Calls,
        ended_inside: u64,
    ) {
        self.all_waits = self.all_waits.saturating_add(calls.waits);
        self.all_wakes = self.all_wakes.saturating_add(calls.wakes);
        self.unfinished_without_row = self.unfinished_without_row.saturating_add(ended_inside);
        for (key, row) in rows {
            let FutexKey {
                address,
                site,
                via,
                thread,
            } = *key;
            let thread = match thread {
                0 => String::new(),
                tid => format!("{tid} {}", row.name()),
            };
            let key = Key { address, site, via };
            let sums = self.waits.entry((key, thread)).or_default();
            sums.add(&Waits::of(row));
        }
    }

    /// Adds an unfinished wait that the BPF program saw begin `ns` ago. `who` is empty if rows are not by thread.
    pub fn add_open_in_kernel(&mut self, key: FutexKey, who: &str, ns: u64) {
        let FutexKey {
            address, site, via, ..
        } = key;
        self.add_unfinished(Key { address, site, via }, who, ns);
    }

    pub fn add_drops(&mut self, drops: Vec<Dropped>) {
        self.drops.extend(drops);
    }

    pub fn locks(&self, names: &Names, by: Split) -> Locks {
        let mut groups: BTreeMap<Group, Rows> = BTreeMap::new();
        let sampled = self.waits.iter().filter(|(_, waits)| waits.is_sampled());
        let sampled: BTreeSet<u64> = sampled.map(|((key, _), _)| key.address).collect();
        for ((key, who), waits) in &self.waits {
            let group = self.group(by, key, who, names);
            let rows = groups.entry(group).or_default();
            rows.is_sampled |= is_near(&sampled, key.address);
            let site = rows.sites.entry(key.site).or_default();
            *site = site.saturating_add(waits.slept_ns);
            rows.all.add(waits);
        }
        for ((key, who), early) in &self.early {
            let group = self.group(by, key, who, names);
            let rows = groups.entry(group).or_default();
            let site = rows.sites.entry(key.site).or_default();
            *site = site.saturating_add(early.total_ns);
            rows.early.add(early);
        }
        for ((key, who), unfinished) in &self.unfinished {
            let group = self.group(by, key, who, names);
            let rows = groups.entry(group).or_default();
            let site = rows.sites.entry(key.site).or_default();
            *site = site.saturating_add(unfinished.total_ns);
            rows.unfinished.add(unfinished);
        }
        let groups = groups.into_iter();
        let mut rows: Vec<Lock> = groups
            .map(|(group, rows)| rows.into_lock(group, names, &self.threads))
            .collect();
        worst_first(&mut rows);
        Locks {
            by: by.word().to_owned(),
            rows,
            holds: self.lock_holds(names),
            waits: self.all_waits,
            wakes: self.all_wakes,
            unfinished: self.unfinished_waits(),
            others: self.others,
            drops: self.drops.clone(),
            ..Locks::default()
        }
    }

    fn group(&self, by: Split, key: &Key, who: &str, names: &Names) -> Group {
        let kind = names.kind(key.via, false);
        let name = match by {
            Split::Callsite => names.code(key.site),
            Split::Scope if who.is_empty() => UNKNOWN_SCOPE.to_owned(),
            Split::Thread | Split::Scope => who.to_owned(),
            Split::Type => kind.name.to_owned(),
            _ => match self.reported.get(&key.via).filter(|_| kind.is_reported) {
                Some(name) => name.clone(),
                None => names.awaited(key.address, key.site, &kind, &self.stacks),
            },
        };
        Group {
            name,
            kind: kind.name.to_owned(),
            mode: kind.mode.map(str::to_owned),
            is_idle: kind.is_idle,
        }
    }
}

fn reported_name(entry: &[u64]) -> Option<String> {
    let (first, most) = (e::NAME as usize, e::NAME_WORDS as usize);
    let len = *entry.get(first)? as usize;
    let words = entry.get(first + 1..=first + most)?;
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let name = bytes.get(..len)?;
    (!name.is_empty()).then(|| plain(name))
}

fn longest_first(holds: &mut [Hold]) {
    holds.sort_by_key(|hold| u64::MAX - hold.total_ns);
}

/// Sorts by the time slept, longest first, and rows of idle threads last.
fn worst_first(rows: &mut [Lock]) {
    rows.sort_by_key(|row| {
        let early_ns = row.early.as_ref().map_or(0, |early| early.total_ns);
        let open_ns = row.unfinished.as_ref().map_or(0, |open| open.total_ns);
        let total_ns = row
            .total_ns
            .saturating_add(early_ns)
            .saturating_add(open_ns);
        (row.idle, u64::MAX - total_ns, u64::MAX - row.episodes)
    });
}

pub fn add(all: &mut Locks, more: Locks) {
    all.rows.extend(more.rows);
    all.drops.extend(more.drops);
    all.deadlocks.extend(more.deadlocks);
    worst_first(&mut all.rows);
    all.holds.extend(more.holds);
    longest_first(&mut all.holds);
    let sums = [
        (&mut all.waits, more.waits),
        (&mut all.wakes, more.wakes),
        (&mut all.unfinished, more.unfinished),
        (&mut all.others, more.others),
    ];
    for (sum, more) in sums {
        *sum = sum.saturating_add(more);
    }
}

impl Waits {
    fn is_sampled(&self) -> bool {
        self.timed.saturating_add(self.left) < slept(self.calls, self.at_once, self.other)
    }
}

fn slept(calls: u64, at_once: u64, other: u64) -> u64 {
    calls.saturating_sub(at_once.saturating_add(other))
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Group {
    name: String,
    kind: String,
    mode: Option<String>,
    is_idle: bool,
}

#[derive(Default)]
struct Rows {
    all: Waits,
    early: EarlyWaitSums,
    unfinished: Unfinished,
    sites: BTreeMap<u64, u64>,
    /// Whether any wait for one of the row's locks was not timed, even in another row.
    is_sampled: bool,
}

/// Returns whether the address may be in the same lock as one of `sampled`. A rwlock has several addresses at which
/// threads wait.
fn is_near(sampled: &BTreeSet<u64>, address: u64) -> bool {
    const LONGEST_LOCK: u64 = 64;
    let near = address.saturating_sub(LONGEST_LOCK)..address.saturating_add(LONGEST_LOCK);
    sampled.range(near).next().is_some()
}

impl Rows {
    fn into_lock(self, group: Group, names: &Names, threads: &BTreeMap<u32, String>) -> Lock {
        let all = self.all;
        let most = self.sites.iter().max_by_key(|(_, ns)| **ns);
        let slept = slept(all.calls, all.at_once, all.other);
        let timed = all.is_sampled().then_some(all.timed);
        // A wait that sampling skipped recorded no holder, so holders are reported only if all waits were timed.
        let held = all.holders.by_name(names, threads, all.slept_ns);
        let held = held.filter(|_| !self.is_sampled && !group.is_idle);
        let (holders, unknown_ns) = held.unzip();
        Lock {
            lock: group.name,
            kind: group.kind,
            mode: group.mode,
            idle: group.is_idle,
            callsite: most.map_or_else(String::new, |(site, _)| names.code(*site)),
            callsites: self.sites.len() as u64,
            episodes: all.episodes,
            slept,
            at_once: all.at_once,
            timed_out: all.timed_out,
            interrupted: all.interrupted,
            left: all.left,
            total_ns: all.slept_ns,
            timed,
            readers: (all.most_readers > 0).then(|| Readers {
                average: all.readers as f64 / all.calls.max(1) as f64,
                most: all.most_readers,
            }),
            histogram: (slept > 0 && all.times.total() > 0)
                .then(|| Histogram::new(&all.times, all.longest)),
            blame: all.blame(names),
            unknown_ns,
            holders: holders.unwrap_or_default(),
            early: (self.early.waits > 0).then_some(self.early),
            unfinished: (self.unfinished.waits > 0).then_some(self.unfinished),
        }
    }
}
