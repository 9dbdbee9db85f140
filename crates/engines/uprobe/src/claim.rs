//! Assigns *slabs* (arrays of counters) to threads.
//!
//! A thread's first hit of a probe claims a *descriptor* for the thread's life. Trampolines (the code that counts) read
//! the slab's address from the descriptor's first word. If that is 0, they call the agent, our library in the target.
//!
//! The kernel wipes descriptors on fork, so a child never writes its parent's slabs.
//!
//! INVARIANT: a slab has at most one writer, because a descriptor is taken over only from a thread that the kernel
//! reports dead. The next owner continues the counts, which are never reset.
//!
//! Opening a slab races with the end of a session:
//!
//! | thread ([`Claims::open`]) | agent ([`Claims::end`]) |
//! |---|---|
//! | store the slab; SeqCst fence; load the session | store the session; SeqCst fence; clear all slabs |
//!
//! The side whose fence is second sees the other's store, so at least one side clears the thread's word.

use crate::primitive::{AtomicU32, AtomicU64, Ordering, fence};

/// A thread's descriptor, alone on its cache line. A TLS word points to it.
#[repr(C, align(64))]
pub struct Descriptor {
    /// The thread's slab, or 0. Trampolines read offset 0.
    pub slab: AtomicU64,
    /// Low half: the owning thread, or 0. High half: the number of takeovers, which makes an exchange fail if a new
    /// thread with a reused id has claimed the descriptor.
    owner: AtomicU64,
}

impl Descriptor {
    /// Returns a free descriptor.
    pub fn new() -> Self {
        Descriptor {
            slab: AtomicU64::new(0),
            owner: AtomicU64::new(0),
        }
    }

    /// Returns the owning thread, or 0.
    pub fn owner(&self) -> u32 {
        // Relaxed: callers compare the owner with their own id, which no other thread replaces while they live.
        self.owner.load(Ordering::Relaxed) as u32
    }
}

impl Default for Descriptor {
    fn default() -> Self {
        Self::new()
    }
}

/// While fresh descriptors with slabs are left, a claim checks this many owners; otherwise it checks all.
const LOOKS: usize = 4;

/// A process's descriptors and session.
pub struct Claims<'a> {
    descriptors: &'a [Descriptor],
    /// The number of descriptors ever taken. Also wiped on fork.
    used: &'a AtomicU32,
    cursor: AtomicU32,
    /// Odd while a session is active.
    session: AtomicU64,
}

impl<'a> Claims<'a> {
    /// Returns claims over zeroed storage.
    pub fn new(descriptors: &'a [Descriptor], used: &'a AtomicU32) -> Self {
        let (cursor, session) = (AtomicU32::new(0), AtomicU64::new(0));
        Claims {
            descriptors,
            used,
            cursor,
            session,
        }
    }

    /// Returns the descriptor at `index`.
    pub fn descriptor(&self, index: usize) -> Option<&'a Descriptor> {
        self.descriptors.get(index)
    }

    /// Returns how many descriptors were ever taken.
    pub fn used(&self) -> usize {
        // Relaxed: a bound for searches, which check each descriptor.
        (self.used.load(Ordering::Relaxed) as usize).min(self.descriptors.len())
    }

    /// Takes a descriptor for thread `tid`. If `keep`, dead threads keep their descriptors. Otherwise first tries to
    /// take over one of the first `most`, because only these have slabs. `taken` returns whether an owner still needs
    /// its descriptor. If no takeover succeeds, takes a fresh descriptor; `None` if none is left. A signal handler that
    /// interrupts a claim claims a second descriptor.
    pub fn claim(
        &self,
        tid: u32,
        keep: bool,
        most: usize,
        taken: impl Fn(usize, u32) -> bool,
    ) -> Option<usize> {
        let most = most.min(self.descriptors.len());
        let used = (self.used.load(Ordering::Relaxed) as usize).min(most);
        if !keep && used > 0 {
            // Relaxed: the cursor only spreads the searches.
            let start = self.cursor.fetch_add(LOOKS as u32, Ordering::Relaxed) as usize;
            let full = used == most;
            let looks = if full { used } else { LOOKS.min(used) };
            let found = (start..start + looks)
                .map(|position| position % used)
                .find(|index| self.take_over(*index, tid, &taken));
            if found.is_some() {
                return found;
            }
        }
        self.take_fresh(tid)
    }

    fn take_over(&self, index: usize, tid: u32, taken: &impl Fn(usize, u32) -> bool) -> bool {
        let Some(descriptor) = self.descriptors.get(index) else {
            return false;
        };
        // Acquire: pairs with the exchange below and the store in `take_fresh`, so that `taken` runs after the owner
        // wrote its id. Earlier the owner may not have existed yet, and `taken` would report the owner dead.
        let held = descriptor.owner.load(Ordering::Acquire);
        let owner = held as u32;
        let free = owner == tid || (owner != 0 && !taken(index, owner));
        let next = (held >> 32).wrapping_add(1) << 32 | u64::from(tid);
        // AcqRel: pairs with the next claimant's Acquire. The dead owner's writes are visible, because the kernel
        // reports a death after them.
        free && descriptor
            .owner
            .compare_exchange(held, next, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    fn take_fresh(&self, tid: u32) -> Option<usize> {
        if self.used.load(Ordering::Relaxed) as usize >= self.descriptors.len() {
            return None; // Relaxed: the increment below decides
        }
        // Relaxed: uniqueness needs only atomicity.
        let index = self.used.fetch_add(1, Ordering::Relaxed) as usize;
        let descriptor = self.descriptors.get(index)?;
        descriptor.owner.store(tid.into(), Ordering::Release); // pairs with `take_over`'s exchange
        Some(index)
    }

    /// Keeps a dead thread's descriptor from new threads until `holder` calls [`Claims::release`]. Returns the dead
    /// owner; `None` if the owner lives, or a new thread was faster.
    pub fn hold(&self, index: usize, holder: u32, alive: impl Fn(u32) -> bool) -> Option<u32> {
        let descriptor = self.descriptors.get(index)?;
        // Acquire: as in `take_over`.
        let held = descriptor.owner.load(Ordering::Acquire);
        let owner = held as u32;
        let next = (held >> 32).wrapping_add(1) << 32 | u64::from(holder);
        let dead = owner != 0 && owner != holder && !alive(owner);
        // AcqRel: as in `take_over`.
        let exchanged = dead
            && descriptor
                .owner
                .compare_exchange(held, next, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok();
        exchanged.then_some(owner)
    }

    /// Restores the dead `owner`, so that a new thread may take the descriptor over.
    pub fn release(&self, index: usize, owner: u32) {
        if let Some(descriptor) = self.descriptors.get(index) {
            let taken = descriptor.owner.load(Ordering::Relaxed) >> 32; // our own write
            let next = taken.wrapping_add(1) << 32 | u64::from(owner);
            // Release: pairs with the Acquire in `take_over`, because the next owner must see the holder's writes.
            descriptor.owner.store(next, Ordering::Release);
        }
    }

    /// Begins a session. Called only by the agent's thread.
    pub fn begin(&self) {
        self.session.fetch_or(1, Ordering::Release); // pairs with the load in `session`
    }

    /// Returns whether a session is active.
    pub fn active(&self) -> bool {
        self.session().is_some()
    }

    /// Returns the active session. Must be called before looking up slabs, so that [`Claims::open`] refuses an ended
    /// session's slabs.
    pub fn session(&self) -> Option<u64> {
        let session = self.session.load(Ordering::Acquire); // pairs with `begin`
        (session & 1 == 1).then_some(session)
    }

    /// Makes trampolines find a thread's slab. Returns `false` if the session has ended.
    pub fn open(&self, index: usize, slab: u64, session: u64) -> bool {
        let Some(descriptor) = self.descriptors.get(index) else {
            return false;
        };
        descriptor.slab.store(slab, Ordering::Relaxed); // ordered by the fence
        // SeqCst: orders the store above before the load below; see the table.
        fence(Ordering::SeqCst);
        if self.session.load(Ordering::Relaxed) != session {
            descriptor.slab.store(0, Ordering::Relaxed); // our own word
            return false;
        }
        true
    }

    /// Ends the session. Trampolines then find no slab, unless they have already read its address. Called only by the
    /// agent's thread.
    pub fn end(&self) {
        let session = self.session.load(Ordering::Relaxed); // our own write
        if session & 1 == 1 {
            self.session.store(session + 1, Ordering::Relaxed); // ordered by the fence
        }
        // SeqCst: orders the store above before the clearing below; see the table.
        fence(Ordering::SeqCst);
        for descriptor in self
            .descriptors
            .iter()
            .take(self.used.load(Ordering::Relaxed) as usize)
        {
            descriptor.slab.store(0, Ordering::Relaxed); // ordered by the fence
        }
    }
}

#[cfg(all(test, not(tiptoe_loom)))]
mod tests {
    use super::*;

    #[test]
    fn slabs_of_dead_threads_are_reused_before_slabs_run_out() {
        const MOST: usize = 16;
        let descriptors: [_; 2 * MOST] = core::array::from_fn(|_| Descriptor::new());
        let used = AtomicU32::new(0);
        let claims = Claims::new(&descriptors, &used);
        let lives = |_, tid| tid < 10;
        for tid in 1..10 {
            claims.claim(tid, false, MOST, lives).expect("room");
        }
        for tid in 10..1000 {
            let index = claims.claim(tid, false, MOST, lives);
            assert!(index.is_some_and(|index| index < MOST), "{index:?}");
        }
    }
}
