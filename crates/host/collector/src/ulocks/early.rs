//! Waits that were in progress when the trace began. No hook of a futex call sees their beginnings or ends.
//!
//! tiptoe looks at the process before it patches anything, and again from time to time. A wait lasts at least until
//! the last look that finds its thread in the same call, without a context switch in between. So the reported time is
//! a lower bound.

use std::time::{Duration, Instant};

use tiptoe_session::EarlyWaitSums;
use tiptoe_sys::host::procfs::Process;

use super::futex_sleeper::FutexSleeper;
use super::now::{WaitReader, owner};
use super::{Key, Names, WaitRecords};

/// The most waits to look at again, because a process may have tens of thousands of idle threads.
const MOST: usize = 1024;
/// How long the first look after the attach waits for threads to sleep again, because the attach woke them.
const SETTLING: Duration = Duration::from_millis(100);
const PAUSE: Duration = Duration::from_millis(1);

#[derive(Default)]
pub struct EarlyWaits {
    waits: Vec<EarlyWait>,
    hold: Option<EarlyHold>,
}

struct EarlyHold {
    lock: u64,
    tid: u32,
    thread: String,
    first: Instant,
    last: Instant,
    is_on: bool,
}

struct EarlyWait {
    tid: u32,
    thread: String,
    key: Key,
    asleep: FutexSleeper,
    before: Duration,
    first: Instant,
    last: Instant,
    /// The thread's context switches at the first look after the attach. Earlier switches do not count, because the
    /// attach wakes the thread.
    switches: Option<u64>,
    is_on: bool,
}

impl EarlyWaits {
    /// Finds the waits and the hold now in progress; none if the process may not be read. Must be called before
    /// anything is patched.
    pub fn look(process: Process, names: &Names, hold: Option<u64>) -> EarlyWaits {
        let Ok(look) = WaitReader::new(process, names) else {
            return EarlyWaits::default();
        };
        let threads = process.threads().unwrap_or_default();
        let held = hold.and_then(|lock| Some((lock, owner(process, lock, &threads)?)));
        let hold = held.map(|(lock, tid)| {
            let comm = process.thread_comm(tid).unwrap_or_default();
            let now = Instant::now();
            EarlyHold {
                lock,
                tid,
                thread: format!("{tid} {comm}"),
                first: now,
                last: now,
                is_on: true,
            }
        });
        let waits = threads.into_iter().filter_map(|tid| {
            let asleep = look.asleep(tid).ok()??;
            let (site, via, _) = look.walk(&asleep);
            let slept = process.thread_asleep(tid).ok().flatten();
            let comm = process.thread_comm(tid).unwrap_or_default();
            let now = Instant::now();
            Some(EarlyWait {
                tid,
                thread: format!("{tid} {comm}"),
                key: Key {
                    address: asleep.address,
                    site,
                    via: via | asleep.operation_bits(),
                },
                asleep,
                before: slept.unwrap_or_default(),
                first: now,
                last: now,
                switches: None,
                is_on: true,
            })
        });
        EarlyWaits {
            waits: waits.take(MOST).collect(),
            hold,
        }
    }

    pub fn look_again(&mut self, process: Process) {
        if let Some(hold) = self.hold.as_mut().filter(|hold| hold.is_on) {
            let owner = owner(process, hold.lock, &[hold.tid]);
            hold.is_on = owner == Some(hold.tid);
            if hold.is_on {
                hold.last = Instant::now();
            }
        }
        let until = Instant::now() + SETTLING;
        for wait in self.waits.iter_mut().filter(|wait| wait.is_on) {
            let mut switches = same_call(process, wait);
            while switches.is_none() && wait.switches.is_none() && Instant::now() < until {
                std::thread::sleep(PAUSE);
                switches = same_call(process, wait);
            }
            let is_undisturbed = wait.switches.is_none() || wait.switches == switches;
            wait.is_on = switches.is_some() && is_undisturbed;
            if wait.is_on {
                wait.switches = switches;
                wait.last = Instant::now();
            }
        }
    }

    pub fn add_to(&self, noted: &mut WaitRecords, by_thread: bool) {
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        if let Some(hold) = &self.hold {
            let seen_ns = ns(hold.last - hold.first);
            noted.early_hold = Some((hold.lock, hold.thread.clone(), seen_ns));
        }
        for wait in &self.waits {
            let before_ns = ns(wait.before);
            let early = EarlyWaitSums {
                waits: 1,
                unfinished: u64::from(wait.is_on),
                before_ns,
                total_ns: before_ns.saturating_add(ns(wait.last - wait.first)),
            };
            let who = if by_thread { &*wait.thread } else { "" };
            let sums = noted.early.entry((wait.key, who.to_owned()));
            sums.or_default().add(&early);
        }
    }
}

/// Returns the number of a thread's context switches if the thread sleeps in the call of its wait. `None` while the
/// thread falls asleep, because the number is about to rise.
fn same_call(process: Process, wait: &EarlyWait) -> Option<u64> {
    let switches = process.thread_switches(wait.tid).ok()?;
    let asleep = FutexSleeper::read(process, wait.tid).ok().flatten()?;
    let is_settled = process.thread_switches(wait.tid).ok() == Some(switches);
    (is_settled && asleep == wait.asleep).then_some(switches)
}
