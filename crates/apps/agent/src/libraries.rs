//! Libraries that come and go while a session is on.
//!
//! The loader calls a function that does nothing, for debuggers, when its list of libraries
//! is about to change and when it has: a new library is mapped then, and neither relocated
//! nor has any of its code run. There [`changed`] runs: on the loading thread, under the
//! loader's lock, so one thread at a time.
//!
//! | library | then |
//! |---|---|
//! | new | tiptoe is told, and waited for |
//! | the same file was at the same place before, and had probes | the agent's thread patches it, and is waited for |
//! | likewise, and had none | nothing |
//! | gone | its traps are nobody's ([`Libraries::is_gone`]); counts stay |
//!
//! Nothing but an unwinder is waited for longer than [`PATIENCE_NS`]: the library then runs without probes
//! until tiptoe has made them, which says so. A tiptoe that is dead, or did not answer the
//! last time, is not waited for at all.

use core::mem::size_of;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed};
use core::sync::atomic::{AtomicUsize, Ordering::Release};

use tiptoe_sys::raw::{self, futex};
use tiptoe_wire::Data;

use crate::loader::{Entry, File, Record};
use crate::shared::{self, Shared};
use crate::space;
use crate::thread;

/// Most libraries, each at one place, that a session tells apart.
pub const MOST: usize = 4096;
/// How long a loading thread waits for the probes of its library, at most.
const PATIENCE_NS: u64 = 20_000_000;
/// The same where the library is an unwinder, which must not see return thunks: it is
/// loaded once, if ever.
const UNWINDER_PATIENCE_NS: u64 = 500_000_000;
/// After this time it wakes the agent's thread again, which may have been about to sleep.
const AGAIN_NS: u64 = 200_000;
/// In a library's `task`: the agent's thread is to patch it, or could not.
const PATCH: u64 = 1;
const STALE: u64 = 2;

/// A file at a place. All words are the loading thread's but the last five, which the
/// agent's thread writes and the loading thread reads once it was answered.
pub struct Library {
    /// The loader's entry while it is loaded, else 0.
    entry: AtomicU64,
    base: AtomicU64,
    file: [AtomicU64; File::WORDS],
    /// The change with which tiptoe was told of it last.
    told: AtomicU64,
    /// The walk that met it last.
    met: AtomicU64,
    task: AtomicU64,
    /// Where its code is, and how many sites are in it.
    pub(crate) start: AtomicU64,
    pub(crate) end: AtomicU64,
    pub(crate) sites: AtomicU64,
}

const _: () = assert!(size_of::<Library>() == 96);

/// All libraries of a session.
pub struct Libraries {
    all: &'static [Library],
    used: AtomicUsize,
    /// The loader's record; 0 while nobody wants to know.
    record: AtomicU64,
    walks: AtomicU64,
    /// Libraries that the agent's thread is to patch.
    tasks: AtomicU32,
    /// What was served when a thread last gave up waiting, and 1.
    given_up: AtomicU64,
    /// The change with which an unwinder was told.
    unwinder: AtomicU64,
}

/// What a walk found.
#[derive(Default)]
struct Found {
    /// Libraries that tiptoe is told of.
    fresh: bool,
    /// Libraries that the agent's thread is to patch.
    known: bool,
}

impl Found {
    fn any(&self) -> bool {
        self.fresh || self.known
    }
}

impl Libraries {
    /// Over zeroed storage.
    pub fn new(all: &'static [Library]) -> Libraries {
        Libraries {
            all,
            used: AtomicUsize::new(0),
            record: AtomicU64::new(0),
            walks: AtomicU64::new(0),
            tasks: AtomicU32::new(0),
            given_up: AtomicU64::new(0),
            unwinder: AtomicU64::new(0),
        }
    }

    /// Forgets all; no thread walks now, or only one that is late. (agent's thread)
    pub fn forget(&self) {
        self.record.store(0, Release); // before the rest; nobody walks without it
        let used = self.used();
        used.iter().for_each(|library| {
            library.entry.store(0, Relaxed); // read under the loader's lock, as all below
            library.task.store(0, Relaxed);
        });
        self.used.store(0, Relaxed);
        self.walks.store(0, Relaxed);
        self.tasks.store(0, Relaxed);
        self.given_up.store(0, Relaxed);
        self.unwinder.store(0, Relaxed);
    }

    /// Looks at the loader's list from now on. (agent's thread)
    pub fn watch(&self, record: u64) {
        self.record.store(record, Release); // pairs with `changed`
    }

    fn used(&self) -> &'static [Library] {
        // Acquire: pairs with the Release in `add`.
        let used = self.used.load(Acquire).min(self.all.len());
        self.all.get(..used).unwrap_or(&[])
    }

    /// A library by its number.
    pub fn get(&self, number: usize) -> Option<&'static Library> {
        self.used().get(number)
    }

    /// Whether a library of this number is not loaded now.
    pub fn is_gone(&self, number: usize) -> bool {
        // Relaxed: a thread that runs a library's code has it loaded.
        let loaded = |library: &Library| library.entry.load(Relaxed) != 0;
        !self.get(number).is_some_and(loaded)
    }

    /// The library that is loaded at `base` now, or the only one that ever was. (agent's
    /// thread)
    pub fn at(&self, base: u64) -> Option<usize> {
        let open = self
            .there(base)
            .find(|(_, library)| library.entry.load(Relaxed) != 0);
        let only = || {
            self.there(base)
                .next()
                .filter(|_| self.there(base).count() == 1)
        };
        open.or_else(only).map(|(number, _)| number)
    }

    fn there(&self, base: u64) -> impl Iterator<Item = (usize, &'static Library)> {
        let all = self.used().iter().enumerate();
        // Relaxed, here and above: tiptoe was told of it after it was written.
        all.filter(move |(_, library)| library.base.load(Relaxed) == base)
    }

    /// Tells of the libraries at `base` again that were closed before tiptoe had looked.
    /// (agent's thread)
    pub fn tell_again(&self, base: u64) {
        let closed = |library: &&Library| library.entry.load(Relaxed) == 0;
        let all = self.there(base).map(|(_, library)| library).filter(closed);
        // Relaxed: read under the loader's lock, when it is loaded again.
        all.for_each(|library| library.told.store(u64::MAX, Relaxed));
    }

    /// Tells of the library that is loaded around an address whenever it is loaded again. (agent's thread)
    pub fn tell_always(&self, address: u64) {
        // Relaxed, here and below: as in `there` and `tell_again`.
        let below = |library: &&Library| {
            library.entry.load(Relaxed) != 0 && library.base.load(Relaxed) <= address
        };
        let all = self.used().iter().filter(below);
        if let Some(library) = all.max_by_key(|library| library.base.load(Relaxed)) {
            library.told.store(u64::MAX, Relaxed);
        }
    }

    /// The libraries that are to be patched, with their numbers. (agent's thread)
    pub fn tasks(&self) -> impl Iterator<Item = (usize, &'static Library)> {
        let all = self.used().iter().enumerate();
        // Acquire: pairs with the Release in `opened`.
        all.filter(|(_, library)| library.task.load(Acquire) == PATCH)
    }

    /// Whether there are any. (agent's thread)
    pub fn has_tasks(&self) -> bool {
        self.tasks.load(Relaxed) != 0 // the tasks themselves are acquired
    }

    /// Answers such a task: with `false` tiptoe has to plan anew. (agent's thread)
    pub fn done(&self, library: &Library, whole: bool) {
        self.end_task(library, if whole { 0 } else { STALE });
    }

    /// Ends a task that is not ended yet.
    fn end_task(&self, library: &Library, task: u64) {
        // Release: pairs with the Acquire in `stale`.
        let ended = library.task.compare_exchange(PATCH, task, Release, Relaxed);
        if ended.is_ok() {
            self.tasks.fetch_sub(1, Release); // pairs with the Acquire in `wait`
        }
    }

    /// Compares what is loaded with what was: notes what is gone, and tells of what is new.
    fn walk(&self, record: &Record, data: &Data) -> Found {
        // Relaxed, here and below: under the loader's lock.
        let walk = self.walks.load(Relaxed) + 1;
        self.walks.store(walk, Relaxed);
        let mut found = Found::default();
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
                self.end_task(library, 0);
            }
        }
        found
    }

    /// The library with this entry; most likely the `hint`th.
    fn position(&self, entry: u64, hint: usize) -> Option<usize> {
        let used = self.used();
        let is = |library: &Library| library.entry.load(Relaxed) == entry;
        match used.get(hint) {
            Some(library) if is(library) => Some(hint),
            _ => used.iter().position(is),
        }
    }

    /// Notes a library that was not loaded before; `None` where there is no room for it.
    fn opened(&self, entry: &Entry, data: &Data, found: &mut Found) -> Option<usize> {
        let (base, file) = (entry.base(), File::of(entry));
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
            self.unwinder.store(data.told() + 1, Relaxed);
        }
        if known.is_none() || library.told.load(Relaxed) > data.served() {
            self.tell_of(library, data, found);
        } else if library.sites.load(Relaxed) > 0 {
            self.tasks.fetch_add(1, Relaxed); // before the task, which is released
            library.task.store(PATCH, Release); // pairs with the Acquire in `tasks`
            found.known = true;
        }
        Some(number)
    }

    fn add(&self, base: u64, file: &File) -> Option<usize> {
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

    fn tell_of(&self, library: &Library, data: &Data, found: &mut Found) {
        data.put_fresh(library.base.load(Relaxed));
        library.told.store(data.told() + 1, Relaxed); // released by `tell`
        found.fresh = true;
    }

    /// Hands over what the agent's thread could not patch; whether there was any.
    fn stale(&self, data: &Data) -> bool {
        let mut found = Found::default();
        for library in self.used() {
            // Acquire: pairs with the Release in `done`.
            if library.task.load(Acquire) == STALE {
                library.task.store(0, Relaxed);
                self.tell_of(library, data, &mut found);
            }
        }
        found.fresh
    }

    /// Waits until all that was found has its probes, or time is over.
    fn wait(&self, data: &Data, found: &Found) {
        if found.fresh {
            ring(data);
        }
        // Relaxed, here and below: under the loader's lock.
        let unwinder = self.unwinder.load(Relaxed) > data.served();
        let patience = match unwinder {
            true => UNWINDER_PATIENCE_NS,
            false => PATIENCE_NS,
        };
        let until = raw::monotonic_ns() + patience;
        let (Some(owner), Some(turn)) = (data.owner(), data.turn()) else {
            return;
        };
        // Who did nothing since he was given up is not there.
        let answers = unwinder || data.served() + 1 != self.given_up.load(Relaxed);
        while thread::is_owned(owner.load(Acquire)) {
            let seen = turn.load(Acquire); // pairs with `answered` and tiptoe's
            // Acquire: pairs with the Release in `end_task`.
            let patching = self.tasks.load(Acquire) > 0;
            if !patching && self.stale(data) {
                ring(data);
            }
            if !patching && data.served() >= data.told() {
                return;
            }
            let left = until.saturating_sub(raw::monotonic_ns());
            if left == 0 || !(patching || answers) {
                break;
            } else if patching {
                futex::wake(owner, u32::MAX);
            }
            let _ = futex::wait(turn, seen, Some(left.min(AGAIN_NS)));
        }
        data.give_up(data.told());
        self.given_up.store(data.served() + 1, Relaxed); // as above
    }
}

/// Tells tiptoe of a change.
fn ring(data: &Data) {
    data.tell(raw::monotonic_ns());
    if let Some(bell) = data.doorbell() {
        futex::wake(bell, u32::MAX);
    }
}

/// Wakes a thread that waits for its library. (agent's thread)
pub fn answered(data: &Data) {
    if let Some(turn) = data.turn() {
        turn.fetch_add(1, Release); // pairs with `wait`
        futex::wake(turn, u32::MAX);
    }
}

/// The loader's list changes, or has changed.
pub fn changed() {
    let Some((shared, data)) = here() else { return };
    let libraries = &shared.libraries;
    // Acquire: pairs with the Release in `watch`.
    let Some(record) = Record::at(libraries.record.load(Acquire)) else {
        return;
    };
    // Relaxed: under the loader's lock. At the first change all that is loaded is noted.
    let first = libraries.walks.load(Relaxed) == 0;
    let settled = record.is_consistent();
    // Before the agent's thread looks where the new library is.
    space::loading(!settled);
    if !settled {
        data.set_changing(true);
    }
    if settled || first {
        let found = libraries.walk(&record, &data);
        match settled {
            // The first look may have met what is only being loaded.
            true if found.any() || data.served() < data.told() => libraries.wait(&data, &found),
            false if found.fresh => ring(&data),
            _ => {}
        }
    }
    if settled {
        data.set_changing(false);
    }
}

/// Where a session is on in this very process.
fn here() -> Option<(&'static Shared, Data<'static>)> {
    let shared = shared::at_home()?;
    let data = shared.data()?;
    shared.claims.active().then_some((shared, data))
}
