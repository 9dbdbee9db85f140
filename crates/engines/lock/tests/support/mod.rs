//! A fake raw lock, whose state a test sets, and hooks that log their events.
#![allow(dead_code, reason = "each test uses some of it")]

use std::cell::{Cell, RefCell};
use std::time::Duration;

use lock_api::{
    GuardNoSend, RawMutex, RawMutexFair, RawMutexTimed, RawRwLock, RawRwLockDowngrade,
    RawRwLockFair, RawRwLockRecursive, RawRwLockRecursiveTimed, RawRwLockTimed, RawRwLockUpgrade,
    RawRwLockUpgradeDowngrade, RawRwLockUpgradeFair, RawRwLockUpgradeTimed,
};
use tiptoe_lock::{Hook, Lock, Mode, Outcome, Way};

thread_local! {
    static LOG: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    static STATE: Cell<State> = const { Cell::new(State::Free) };
    static PANICS: RefCell<Option<String>> = const { RefCell::new(None) };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Free,
    /// A try fails; a wait takes the lock at once.
    Taken,
    /// A try and a timed wait fail.
    Kept,
    /// A wait panics.
    Broken,
}

pub fn locks_are(state: State) {
    STATE.set(state);
}

pub fn panics_at(words: Option<&str>) {
    PANICS.with(|panics| *panics.borrow_mut() = words.map(str::to_owned));
}

pub fn log() -> Vec<String> {
    LOG.with(|log| log.take())
}

fn note(words: String) {
    LOG.with(|log| log.borrow_mut().push(words.clone()));
    let panics = PANICS.with(|panics| panics.borrow_mut().take_if(|at| *at == words));
    assert!(panics.is_none(), "the event at which it panics");
}

pub struct Fake;

fn attempt() -> bool {
    STATE.get() == State::Free
}

fn wait() {
    assert_ne!(STATE.get(), State::Broken, "broken");
}

fn timed() -> bool {
    wait();
    STATE.get() != State::Kept
}

fn gives(what: &str) {
    note(format!("raw {what}"));
}

// SAFETY: one thread uses the lock, and never takes it twice, so no two guards exist.
unsafe impl RawMutex for Fake {
    const INIT: Self = Fake;
    type GuardMarker = GuardNoSend;
    fn lock(&self) {
        wait();
    }
    fn try_lock(&self) -> bool {
        attempt()
    }
    unsafe fn unlock(&self) {
        gives("unlock");
    }
}

// SAFETY: as above.
unsafe impl RawMutexFair for Fake {
    unsafe fn unlock_fair(&self) {
        gives("unlock_fair");
    }
}

// SAFETY: as above.
unsafe impl RawMutexTimed for Fake {
    type Duration = Duration;
    type Instant = u64;
    fn try_lock_for(&self, _: Duration) -> bool {
        timed()
    }
    fn try_lock_until(&self, _: u64) -> bool {
        timed()
    }
}

// SAFETY: as above.
unsafe impl RawRwLock for Fake {
    const INIT: Self = Fake;
    type GuardMarker = GuardNoSend;
    fn lock_shared(&self) {
        wait();
    }
    fn try_lock_shared(&self) -> bool {
        attempt()
    }
    unsafe fn unlock_shared(&self) {
        gives("unlock_shared");
    }
    fn lock_exclusive(&self) {
        wait();
    }
    fn try_lock_exclusive(&self) -> bool {
        attempt()
    }
    unsafe fn unlock_exclusive(&self) {
        gives("unlock_exclusive");
    }
}

// SAFETY: as above.
unsafe impl RawRwLockFair for Fake {
    unsafe fn unlock_shared_fair(&self) {
        gives("unlock_shared_fair");
    }
    unsafe fn unlock_exclusive_fair(&self) {
        gives("unlock_exclusive_fair");
    }
}

// SAFETY: as above.
unsafe impl RawRwLockDowngrade for Fake {
    unsafe fn downgrade(&self) {
        gives("downgrade");
    }
}

// SAFETY: as above.
unsafe impl RawRwLockTimed for Fake {
    type Duration = Duration;
    type Instant = u64;
    fn try_lock_shared_for(&self, _: Duration) -> bool {
        timed()
    }
    fn try_lock_shared_until(&self, _: u64) -> bool {
        timed()
    }
    fn try_lock_exclusive_for(&self, _: Duration) -> bool {
        timed()
    }
    fn try_lock_exclusive_until(&self, _: u64) -> bool {
        timed()
    }
}

// SAFETY: as above.
unsafe impl RawRwLockRecursive for Fake {
    fn lock_shared_recursive(&self) {
        wait();
    }
    fn try_lock_shared_recursive(&self) -> bool {
        attempt()
    }
}

// SAFETY: as above.
unsafe impl RawRwLockRecursiveTimed for Fake {
    fn try_lock_shared_recursive_for(&self, _: Duration) -> bool {
        timed()
    }
    fn try_lock_shared_recursive_until(&self, _: u64) -> bool {
        timed()
    }
}

// SAFETY: as above.
unsafe impl RawRwLockUpgrade for Fake {
    fn lock_upgradable(&self) {
        wait();
    }
    fn try_lock_upgradable(&self) -> bool {
        attempt()
    }
    unsafe fn unlock_upgradable(&self) {
        gives("unlock_upgradable");
    }
    unsafe fn upgrade(&self) {
        wait();
    }
    unsafe fn try_upgrade(&self) -> bool {
        attempt()
    }
}

// SAFETY: as above.
unsafe impl RawRwLockUpgradeFair for Fake {
    unsafe fn unlock_upgradable_fair(&self) {
        gives("unlock_upgradable_fair");
    }
}

// SAFETY: as above.
unsafe impl RawRwLockUpgradeDowngrade for Fake {
    unsafe fn downgrade_upgradable(&self) {
        gives("downgrade_upgradable");
    }
    unsafe fn downgrade_to_upgradable(&self) {
        gives("downgrade_to_upgradable");
    }
}

// SAFETY: as above.
unsafe impl RawRwLockUpgradeTimed for Fake {
    fn try_lock_upgradable_for(&self, _: Duration) -> bool {
        timed()
    }
    fn try_lock_upgradable_until(&self, _: u64) -> bool {
        timed()
    }
    unsafe fn try_upgrade_for(&self, _: Duration) -> bool {
        timed()
    }
    unsafe fn try_upgrade_until(&self, _: u64) -> bool {
        timed()
    }
}

pub struct Waiting;

impl Hook for Waiting {
    const INIT: Self = Waiting;
    const WAITS: bool = true;

    fn contention_begin(&self, _: &Lock, mode: Mode) {
        note(format!("begin {}", mode.word()));
    }

    fn contention_end(&self, _: &Lock, mode: Mode, outcome: Outcome, _: Duration) {
        note(format!("end {}, {}", mode.word(), outcome.word()));
    }
}

pub struct Holding;

impl Hook for Holding {
    const INIT: Self = Holding;
    const HOLDS: bool = true;

    fn acquiring(&self, lock: &Lock, mode: Mode) {
        note(format!("wants {} at {}", mode.word(), lock.depth));
    }

    fn acquired(&self, _: &Lock, mode: Mode, way: Way) {
        note(format!("has {} by {way:?}", mode.word()));
    }

    fn downgraded(&self, _: &Lock, from: Mode, to: Mode) {
        note(format!("{} to {}", from.word(), to.word()));
    }

    fn released(&self, _: &Lock, mode: Mode) {
        note(format!("gives {}", mode.word()));
    }
}
