//! Tracks libraries that are loaded and closed during a session.
//!
//! The loader calls an empty function, made for debuggers, before and after each change of its list of libraries. At
//! the second call a new library is mapped, but not relocated, and none of its code has run. A hook (our patch) of that
//! function runs [`changed`](crate::library_changes::changed) under the loader's lock, so in one thread at a time.
//!
//! | library | then |
//! |---|---|
//! | new | it is reported to tiptoe, and the thread waits |
//! | the same file as before at the same address, with probes | the agent's thread patches it, and the thread waits |
//! | the same file as before at the same address, without probes | nothing |
//! | closed | traps at its addresses are no longer ours ([`Libraries::is_closed`]); its counts stay |
//!
//! If the wait times out, the library runs without probes until tiptoe has made them, and tiptoe reports that. No
//! thread waits if tiptoe is dead. If tiptoe has served nothing since the last time-out, a thread waits only for the
//! agent's thread or for an unwinder's hooks.

use core::mem::size_of;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed};
use core::sync::atomic::{AtomicUsize, Ordering::Release};

use tiptoe_sys::raw::{self, futex};
use tiptoe_wire::Data;

use crate::loader::{Entry, FileIdentity, Record};
use crate::owner::is_owned;

/// The most pairs of library and address in a session.
pub const MOST: usize = 4096;
/// The longest wait of a loading thread once [`RESERVE_NS`] is used up, unless an unwinder is loaded.
const PATIENCE_NS: u64 = 20_000_000;
/// How long a session's waits together may exceed [`PATIENCE_NS`], because tiptoe may get a CPU late.
const RESERVE_NS: u64 = 300_000_000;
/// The longest wait if an unwinder is loaded. Until its hooks are patched, the unwinder must not see return thunks (our
/// stubs for calls' returns).
const UNWINDER_PATIENCE_NS: u64 = 500_000_000;
/// The interval at which a waiting thread wakes the agent's thread again, which may miss a wake before its sleep.
const AGAIN_NS: u64 = 200_000;
/// Values of `task`: the agent's thread must patch the library, or could not patch it.
const PATCH: u64 = 1;
const STALE: u64 = 2;

/// A file at an address. The loading thread writes these words. That thread only reads `start`, `end` and `sites`, once
/// tiptoe has served the report. The agent's thread writes these three, ends tasks, and sets `reported` to request
/// another report.
pub struct Library {
    /// The address of the loader's entry while the library is loaded, else 0.
    entry: AtomicU64,
    base: AtomicU64,
    file: [AtomicU64; FileIdentity::WORDS],
    /// The number of the report ([`Data::report`]) that last contained the library.
    reported: AtomicU64,
    /// The number of the last walk that found the library.
    met: AtomicU64,
    task: AtomicU64,
    /// The range of the library's code, and the number of its sites (places to patch).
    pub(crate) start: AtomicU64,
    pub(crate) end: AtomicU64,
    pub(crate) sites: AtomicU64,
}

const _: () = assert!(size_of::<Library>() == 96);

pub struct Libraries {
    all: &'static [Library],
    used: AtomicUsize,
    record: AtomicU64,
    walks: AtomicU64,
    tasks: AtomicU32,
    /// How many reports tiptoe had served at the last time-out, plus 1.
    given_up: AtomicU64,
    reserve_used: AtomicU64,
    /// The number of the report that contained an unwinder.
    unwinder: AtomicU64,
    /// [`FREE`], or which side is changing code.
    code: AtomicU32,
}

/// States of a lock: either the loader maps the code of libraries, or the agent's thread patches it. Without the lock,
/// the loader could map a new file between the steps in which a patch is written. The jump would then end with the new
/// file's bytes.
const FREE: u32 = 0;
const PATCHED: u32 = 1;
const MAPPED: u32 = 2;
/// The longest wait for this lock, after which the thread continues without it. The wait is long, because a batch of
/// patches may wait for a CPU, and the loader may relocate a large library.
const CODE_PATIENCE_NS: u64 = 1_000_000_000;
const LOOK_NS: u64 = 50_000;

#[derive(Default)]
pub struct WalkResult {
    pub has_reported: bool,
    must_patch: bool,
}

impl WalkResult {
    pub fn any(&self) -> bool {
        self.has_reported || self.must_patch
    }
}

impl Libraries {
    pub fn new(all: &'static [Library]) -> Libraries {
        Libraries {
            all,
            used: AtomicUsize::new(0),
            record: AtomicU64::new(0),
            walks: AtomicU64::new(0),
            tasks: AtomicU32::new(0),
            given_up: AtomicU64::new(0),
            reserve_used: AtomicU64::new(0),
            unwinder: AtomicU64::new(0),
            code: AtomicU32::new(FREE),
        }
    }

    /// Locks the code; `false` if it stays locked too long.
    fn take_code(&self, holder: u32) -> bool {
        let until = raw::monotonic_ns() + CODE_PATIENCE_NS;
        loop {
            // Acquire: pairs with the Release in `free_code`.
            let taken = self.code.compare_exchange(FREE, holder, Acquire, Relaxed);
            // If an earlier change left the word `MAPPED`, the holder of the loader's lock takes it over.
            if taken.is_ok() || holder == MAPPED && taken == Err(MAPPED) {
                return true;
            }
            if raw::monotonic_ns() > until {
                return false;
            }
            raw::sleep_ns(LOOK_NS);
        }
    }

    fn free_code(&self, holder: u32) {
        // Release: pairs with the Acquire in `take_code`. The exchange fails if `take_code` timed out.
        let _ = self.code.compare_exchange(holder, FREE, Release, Relaxed);
    }

    /// Marks the begin or end of a change by the loader, whose lock the caller must hold.
    pub fn set_mapping(&self, begins: bool) {
        match begins {
            true => drop(self.take_code(MAPPED)),
            false => self.free_code(MAPPED),
        }
    }

    /// Patches code under the lock, or without the lock after a time-out. The caller must hold the session's lock.
    pub fn while_mapped<R>(&self, patch: impl FnOnce() -> R) -> R {
        let is_taken = self.take_code(PATCHED);
        let patched = patch();
        // If the code stayed `MAPPED`, probably no hook saw the end of the loader's change. The code is unlocked here,
        // because otherwise each later batch would wait.
        self.free_code(if is_taken { PATCHED } else { MAPPED });
        patched
    }

    /// Unlocks the code, because a forked child's copy of the word may be locked.
    pub fn free_all_code(&self) {
        self.code.store(FREE, Release); // pairs with `take_code`
    }

    /// Forgets all libraries. Another thread may still be in a walk.
    pub fn forget(&self) {
        // The record is cleared first, because without a record no thread begins a walk. Acquire keeps the stores below
        // after this exchange.
        self.record.swap(0, Acquire);
        let used = self.used();
        used.iter().for_each(|library| {
            library.entry.store(0, Relaxed); // Relaxed: read under the loader's lock, as all below
            library.task.store(0, Relaxed);
        });
        self.used.store(0, Relaxed);
        self.walks.store(0, Relaxed);
        self.tasks.store(0, Relaxed);
        self.given_up.store(0, Relaxed);
        self.reserve_used.store(0, Relaxed);
        self.unwinder.store(0, Relaxed);
        self.free_all_code();
    }

    pub fn watch(&self, record: u64) {
        self.record.store(record, Release); // pairs with `record`
        // If a change began before this store, no hook locked the code, so this thread does. If that change has ended
        // meanwhile, no hook will unlock the code.
        let is_changing = || Record::at(record).is_some_and(Record::is_changing);
        if is_changing() && self.take_code(MAPPED) && !is_changing() {
            self.free_code(MAPPED);
        }
    }

    fn used(&self) -> &'static [Library] {
        // Acquire: pairs with the Release in `add`.
        let used = self.used.load(Acquire).min(self.all.len());
        self.all.get(..used).unwrap_or(&[])
    }

    pub fn get(&self, number: usize) -> Option<&'static Library> {
        self.used().get(number)
    }

    pub fn is_closed(&self, number: usize) -> bool {
        // Relaxed: a thread runs a library's code only after the library was loaded.
        let loaded = |library: &Library| library.entry.load(Relaxed) != 0;
        !self.get(number).is_some_and(loaded)
    }

    /// Returns the library that is loaded at `base`, or else the only one that was ever loaded there.
    pub fn at(&self, base: u64) -> Option<usize> {
        let open = self
            .at_base(base)
            .find(|(_, library)| library.entry.load(Relaxed) != 0);
        let only = || {
            self.at_base(base)
                .next()
                .filter(|_| self.at_base(base).count() == 1)
        };
        open.or_else(only).map(|(number, _)| number)
    }

    fn at_base(&self, base: u64) -> impl Iterator<Item = (usize, &'static Library)> {
        let all = self.used().iter().enumerate();
        // Relaxed, also in `at`: written before the library was reported to tiptoe.
        all.filter(move |(_, library)| library.base.load(Relaxed) == base)
    }

    /// Requests a report of closed libraries at `base` at their next load. tiptoe could not read them in time.
    pub fn report_again(&self, base: u64) {
        let closed = |library: &&Library| library.entry.load(Relaxed) == 0;
        let all = self
            .at_base(base)
            .map(|(_, library)| library)
            .filter(closed);
        // Relaxed: read under the loader's lock, at the next load.
        all.for_each(|library| library.reported.store(u64::MAX, Relaxed));
    }

    /// Requests a report, at its next load, of the library that contains an address.
    pub fn report_always(&self, address: u64) {
        // Relaxed, here and below: as in `at_base` and `report_again`.
        let below = |library: &&Library| {
            library.entry.load(Relaxed) != 0 && library.base.load(Relaxed) <= address
        };
        let all = self.used().iter().filter(below);
        if let Some(library) = all.max_by_key(|library| library.base.load(Relaxed)) {
            library.reported.store(u64::MAX, Relaxed);
        }
    }

    pub fn tasks(&self) -> impl Iterator<Item = (usize, &'static Library)> {
        let all = self.used().iter().enumerate();
        // Acquire: pairs with the Release in `opened`.
        all.filter(|(_, library)| library.task.load(Acquire) == PATCH)
    }

    pub fn has_tasks(&self) -> bool {
        self.tasks.load(Relaxed) != 0 // Relaxed: `tasks` acquires each task
    }

    /// Ends a task. If not `whole`, tiptoe must plan the library anew.
    pub fn end_task(&self, library: &Library, whole: bool) {
        let task = if whole { 0 } else { STALE };
        // Release: pairs with the Acquire in `stale`.
        let ended = library.task.compare_exchange(PATCH, task, Release, Relaxed);
        if ended.is_ok() {
            self.tasks.fetch_sub(1, Release); // pairs with the Acquire in `wait`
        }
    }

    pub fn record(&self) -> Option<Record> {
        Record::at(self.record.load(Acquire)) // Acquire: pairs with the Release in `watch`
    }

    pub fn is_first_walk(&self) -> bool {
        self.walks.load(Relaxed) == 0 // Relaxed: ordered by the loader's lock
    }

    pub fn walk(&self, record: &Record, data: &Data) -> WalkResult {
        // Relaxed, here and below: the loader's lock orders these accesses.
        let walk = self.walks.load(Relaxed) + 1;
        self.walks.store(walk, Relaxed);
        let mut found = WalkResult::default();
        let mut next = 0;
        for entry in record.entries() {
            let number = self.position(entry.address(), next);
            let number = number.or_else(|| self.opened(&entry, data, &mut found));
            if let Some(library) = number.and_then(|number| self.get(number)) {
                library.met.store(walk, Relaxed);
            }
            next = number.map_or(next, |number| number + 1);
        }
        for library in self.used() {
            if library.met.load(Relaxed) != walk {
                library.entry.store(0, Relaxed);
                self.end_task(library, true);
            }
        }
        found
    }

    fn position(&self, entry: u64, hint: usize) -> Option<usize> {
        let used = self.used();
        let is = |library: &Library| library.entry.load(Relaxed) == entry;
        match used.get(hint) {
            Some(library) if is(library) => Some(hint),
            _ => used.iter().position(is),
        }
    }

    fn opened(&self, entry: &Entry, data: &Data, found: &mut WalkResult) -> Option<usize> {
        let (base, file) = (entry.base(), FileIdentity::of(entry));
        let known = self.used().iter().position(|library| {
            let words = library.file.iter().zip(file.0);
            library.entry.load(Relaxed) == 0
                && library.base.load(Relaxed) == base
                && words.clone().all(|(word, is)| word.load(Relaxed) == is)
        });
        let Some(number) = known.or_else(|| self.add(base, &file)) else {
            data.miss();
            return None;
        };
        let library = self.all.get(number)?;
        library.entry.store(entry.address(), Relaxed);
        if entry.is_unwinder() {
            self.unwinder.store(data.reported() + 1, Relaxed);
        }
        if known.is_none() || library.reported.load(Relaxed) > data.served() {
            self.report(library, data, found);
        } else if library.sites.load(Relaxed) > 0 {
            self.tasks.fetch_add(1, Relaxed); // Relaxed: published by the next line
            library.task.store(PATCH, Release); // pairs with the Acquire in `tasks`
            found.must_patch = true;
        }
        Some(number)
    }

    fn add(&self, base: u64, file: &FileIdentity) -> Option<usize> {
        let number = self.used.load(Relaxed);
        let library = self.all.get(number)?;
        library.base.store(base, Relaxed);
        let words = library.file.iter().zip(file.0);
        words.for_each(|(word, is)| word.store(is, Relaxed));
        library.task.store(0, Relaxed);
        library.sites.store(0, Relaxed);
        self.used.store(number + 1, Release); // pairs with the Acquire in `used`
        Some(number)
    }

    fn report(&self, library: &Library, data: &Data, found: &mut WalkResult) {
        data.put_fresh(library.base.load(Relaxed));
        library.reported.store(data.reported() + 1, Relaxed); // Relaxed: released by `report`
        found.has_reported = true;
    }

    /// Reports the libraries that the agent's thread could not patch.
    fn stale(&self, data: &Data) -> bool {
        let mut found = WalkResult::default();
        for library in self.used() {
            // Acquire: pairs with the Release in `end_task`.
            if library.task.load(Acquire) == STALE {
                library.task.store(0, Relaxed);
                self.report(library, data, &mut found);
            }
        }
        found.has_reported
    }

    /// Waits until a walk's libraries have their probes, or until the deadline.
    pub fn wait(&self, data: &Data, found: &WalkResult) {
        if found.has_reported {
            ring(data);
        }
        // Relaxed, here and below: the loader's lock orders these accesses.
        let unwinder = self.unwinder.load(Relaxed) > data.served();
        let used = self.reserve_used.load(Relaxed);
        let patience = match unwinder {
            true => UNWINDER_PATIENCE_NS,
            false => PATIENCE_NS + RESERVE_NS.saturating_sub(used),
        };
        let begin = raw::monotonic_ns();
        let until = begin + patience;
        let (Some(owner), Some(turn)) = (data.owner(), data.turn()) else {
            return;
        };
        // tiptoe probably does not run if it has served nothing since the last time-out.
        let answers = unwinder || data.served() + 1 != self.given_up.load(Relaxed);
        while is_owned(owner.load(Acquire)) {
            let seen = turn.load(Acquire); // Acquire: pairs with `answered`, and with a Release of tiptoe
            // Acquire: pairs with the Release in `end_task`.
            let patching = self.tasks.load(Acquire) > 0;
            if !patching && self.stale(data) {
                ring(data);
            }
            let now = raw::monotonic_ns();
            if !unwinder {
                let longer = now.saturating_sub(begin + PATIENCE_NS);
                self.reserve_used.store(used + longer, Relaxed);
            }
            if !patching && data.served() >= data.reported() {
                return;
            }
            let left = until.saturating_sub(now);
            if left == 0 || !(patching || answers) {
                break;
            } else if patching {
                futex::wake(owner, u32::MAX);
            }
            let _ = futex::wait(turn, seen, Some(left.min(AGAIN_NS)));
        }
        data.give_up(data.reported());
        self.given_up.store(data.served() + 1, Relaxed); // Relaxed: as above
    }
}

pub fn ring(data: &Data) {
    data.report(raw::monotonic_ns());
    if let Some(bell) = data.doorbell() {
        futex::wake(bell, u32::MAX);
    }
}

pub fn answered(data: &Data) {
    if let Some(turn) = data.turn() {
        turn.fetch_add(1, Release); // pairs with `wait`
        futex::wake(turn, u32::MAX);
    }
}
