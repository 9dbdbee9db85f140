//! The two segments shared with one agent, and requests to it.
//!
//! While a [`Link`] lives, a thread of its own holds the owner word as a robust futex: when tiptoe dies,
//! in whatever way, the kernel marks the word and wakes the agent, which then puts everything back.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tiptoe_wire::{
    Clock, Copy, Data, Geometry, Hello, Library, Map, Plan, Site, State, Words, futex, scopes,
};

use crate::request::Error;

mod owner;

use owner::Owner;

/// How long an agent may take for one request before it is given up.
const PATIENCE: Duration = Duration::from_secs(10);

/// A mapped memfd.
pub struct Segment {
    file: File,
    base: *mut u8,
    len: usize,
}

// SAFETY: the mapping is only seen as atomics, from any thread.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}

impl Segment {
    /// Maps `len` bytes of a memfd that is sized and cannot shrink any more.
    pub fn map(fd: OwnedFd, len: u64) -> io::Result<Segment> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_NORESERVE;
        let len = len as usize;
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                protection,
                flags,
                fd.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Segment {
            file: File::from(fd),
            base: base.cast(),
            len,
        })
    }

    fn words(&self) -> Words<'_> {
        // SAFETY: mapped for the life of `self`, page-aligned; the seals keep the
        // target from shrinking it.
        unsafe { Words::from_raw(self.base, self.len) }
    }

    /// The memfd, for reading parts without touching the mapping.
    pub fn file(&self) -> &File {
        &self.file
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length; no view outlives `self`.
        unsafe { libc::munmap(self.base.cast(), self.len) };
    }
}

/// What an agent is told before it begins.
#[derive(Clone, Copy, Debug, Default)]
pub struct Terms {
    /// A dead thread's slab is never given to another.
    pub keep_slabs: bool,
    /// How calls are timed and paid for.
    pub clock: Clock,
    /// From which slot on waits for locks are noted; 0 where none are.
    pub lock_slot: u32,
    /// From which slot on scopes are noted; 0 where none are.
    pub scope_slot: u32,
}

/// What is shared with one agent.
pub struct Link {
    /// Dropped first: the agent is let go before the segments are.
    owner: Option<Owner>,
    data: Segment,
    plan: Segment,
    geometry: Geometry,
    /// As the [`Terms`] had it.
    pub lock_slot: u32,
    /// Likewise.
    pub scope_slot: u32,
    gone: Box<dyn Fn() -> bool + Send>,
}

impl Link {
    /// Takes both segments, writes the plan's header, and holds the owner word.
    /// `gone` tells whether the target is no more.
    pub fn new(
        data: OwnedFd,
        plan: OwnedFd,
        geometry: Geometry,
        terms: &Terms,
        gone: Box<dyn Fn() -> bool + Send>,
    ) -> io::Result<Link> {
        let data = Segment::map(data, geometry.data_bytes())?;
        let plan = Segment::map(plan, Plan::BYTES)?;
        let mut link = Link {
            owner: None,
            data,
            plan,
            geometry,
            lock_slot: terms.lock_slot,
            scope_slot: terms.scope_slot,
            gone,
        };
        link.plan().format(geometry, terms.keep_slabs);
        link.plan().set_clock(&terms.clock);
        link.plan().set_lock_slot(terms.lock_slot);
        link.plan().set_scope_slot(terms.scope_slot);
        link.owner = Some(Owner::hold(&link.data)?);
        Ok(link)
    }

    pub(crate) fn plan(&self) -> Plan<'_> {
        Plan::new(self.plan.words())
    }

    /// The data segment.
    pub fn data(&self) -> Data<'_> {
        Data::new(self.data.words(), self.geometry).expect("mapped with this geometry")
    }

    /// The data segment's file.
    pub fn data_file(&self) -> &File {
        self.data.file()
    }

    /// The data segment's shape.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Whether the target is no more.
    pub fn is_gone(&self) -> bool {
        (self.gone)()
    }

    /// Why the agent cannot serve, where it said so before it greeted.
    pub fn refusal(&self) -> Option<io::Error> {
        let data = self.data();
        let refused = data.state() == State::Dormant && data.hello().is_none();
        refused.then(|| io::Error::from_raw_os_error(data.outcome() as i32))
    }

    /// Waits for the agent to say who it is; `None` when the target is gone or `patience` is over.
    pub fn wait_for_hello(&self, patience: Duration) -> Option<Hello> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(hello) = self.data().hello() {
                return Some(hello);
            }
            if self.is_gone() || Instant::now() > deadline {
                return None;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Publishes a request whose records stand in the plan and waits for the answer.
    pub(crate) fn ask(&self, request: tiptoe_wire::Request, count: usize) -> Result<(), Error> {
        let sequence = self.plan().publish(request, count);
        let deadline = Instant::now() + PATIENCE;
        let mut pause = Duration::from_micros(20);
        while self.data().acknowledged() < sequence {
            if self.is_gone() {
                return Err(Error::new("the target ended while it was being traced"));
            }
            if request == tiptoe_wire::Request::Settle && self.data().state() == State::Dormant {
                // It did not wait any longer.
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(
                    Error::new(format!("the agent did not answer request {request:?}"))
                        .with_hint("is the target stopped (SIGSTOP, a debugger)?"),
                );
            }
            self.wake();
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(1));
        }
        match self.data().outcome() {
            0 => Ok(()),
            errno => {
                let why = io::Error::from_raw_os_error(errno as i32);
                Err(Error::new(format!(
                    "the agent could not serve request {request:?}: {why}"
                )))
            }
        }
    }

    /// Has the agent's thread look what it is asked.
    pub(crate) fn wake(&self) {
        self.data().owner().map(wake);
    }

    fn results(&self, count: usize) -> Vec<u64> {
        (0..count).map(|index| self.data().result(index)).collect()
    }

    /// Maps arenas; each result is 0 or an errno.
    pub fn map(&self, arenas: &[Map]) -> Result<Vec<u64>, Error> {
        let mut results = Vec::new();
        for chunk in arenas.chunks(Plan::MAX_RECORDS) {
            for (index, arena) in chunk.iter().enumerate() {
                self.plan().put_map(index, *arena);
            }
            self.ask(tiptoe_wire::Request::Map, chunk.len())?;
            results.extend(self.results(chunk.len()));
        }
        Ok(results)
    }

    /// Writes code at addresses inside arenas.
    pub fn copy(&self, codes: &[(u64, &[u8])]) -> Result<(), Error> {
        let mut rest = codes;
        while !rest.is_empty() {
            let taken = self.copy_some(rest)?;
            rest = &rest[taken..];
        }
        Ok(())
    }

    /// Writes as many codes as one request carries.
    fn copy_some(&self, codes: &[(u64, &[u8])]) -> Result<usize, Error> {
        let mut offset = 0;
        let mut count = 0;
        for (address, code) in codes.iter().take(Plan::MAX_RECORDS) {
            if offset + code.len() > Plan::BLOB_BYTES {
                break;
            }
            let copy = Copy {
                address: *address,
                offset: offset as u32,
                len: code.len() as u32,
            };
            self.plan().put_blob(offset, code);
            self.plan().put_copy(count, copy);
            offset = (offset + code.len()).next_multiple_of(8);
            count += 1;
        }
        self.ask(tiptoe_wire::Request::Copy, count)?;
        match self.results(count).iter().all(|result| *result == 0) {
            true => Ok(count),
            false => Err(Error::new("the agent could not write a trampoline")),
        }
    }

    /// Patches sites, ascending by address; each result is a patcher's outcome.
    pub fn arm(&self, sites: &[Site]) -> Result<Vec<u64>, Error> {
        let mut results = Vec::new();
        for chunk in sites.chunks(Plan::MAX_RECORDS) {
            for (index, site) in chunk.iter().enumerate() {
                self.plan().put_site(index, site);
            }
            self.ask(tiptoe_wire::Request::Arm, chunk.len())?;
            results.extend(self.results(chunk.len()));
        }
        Ok(results)
    }

    /// Patches sites that the agent knows from an earlier session.
    pub fn arm_again(&self, addresses: &[u64]) -> Result<Vec<u64>, Error> {
        self.by_address(tiptoe_wire::Request::ArmAgain, addresses)
    }

    /// Makes the sites with these trampolines, in ascending order, those that [`Link::arm_again`] finds.
    pub fn recall(&self, trampolines: &[u64]) -> Result<(), Error> {
        self.by_address(tiptoe_wire::Request::Recall, trampolines)
            .map(|_| ())
    }

    /// Puts the original bytes of known sites back.
    pub fn disarm(&self, addresses: &[u64]) -> Result<Vec<u64>, Error> {
        self.by_address(tiptoe_wire::Request::Disarm, addresses)
    }

    /// Puts the original bytes of sites back and patches them again, `times` times.
    pub fn toggle(&self, addresses: &[u64], times: u64) -> Result<(), Error> {
        let addresses = &addresses[..addresses.len().min(Plan::MAX_RECORDS)];
        for (index, address) in addresses.iter().enumerate() {
            self.plan().put_address(index, *address);
        }
        self.plan().put_times(times);
        self.ask(tiptoe_wire::Request::Toggle, addresses.len())
    }

    /// Calls resolvers of indirect functions; each result is what it chose.
    pub fn resolve(&self, resolvers: &[u64]) -> Result<Vec<u64>, Error> {
        self.by_address(tiptoe_wire::Request::Resolve, resolvers)
    }

    fn by_address(
        &self,
        request: tiptoe_wire::Request,
        addresses: &[u64],
    ) -> Result<Vec<u64>, Error> {
        let mut results = Vec::new();
        for chunk in addresses.chunks(Plan::MAX_RECORDS) {
            for (index, address) in chunk.iter().enumerate() {
                self.plan().put_address(index, *address);
            }
            self.ask(request, chunk.len())?;
            results.extend(self.results(chunk.len()));
        }
        Ok(results)
    }

    /// Opens ports of the program's; each result is 0, or an errno.
    pub fn open_ports(&self, addresses: &[u64]) -> Result<Vec<u64>, Error> {
        self.by_address(tiptoe_wire::Request::Ports, addresses)
    }

    /// The first slot that no words of waits or scopes have.
    pub fn free_slot(&self) -> u32 {
        let behind = |slot, width| if slot == 0 { 0 } else { slot + width };
        let locks = behind(self.lock_slot, futex::WIDTH);
        locks.max(behind(self.scope_slot, scopes::WIDTH))
    }

    /// Makes the agent own its signals and opens the gates. Returns what the request does.
    pub fn prepare(&self) -> Result<[u64; 3], Error> {
        self.ask(tiptoe_wire::Request::Prepare, 0)?;
        Ok([0, 1, 2].map(|index| self.data().result(index)))
    }

    /// Makes the agent ready to follow calls, with as many ways back; 0 for none.
    pub fn make_thunks(&self, count: usize) -> Result<(), Error> {
        match count {
            0 => Ok(()),
            _ => self.ask(tiptoe_wire::Request::Thunks, count.max(8192)),
        }
    }

    /// Says where the program's unwinders tell the address of a frame.
    pub fn name_unwinders(&self, addresses: &[u64]) -> Result<(), Error> {
        match addresses {
            [] => Ok(()),
            _ => self
                .by_address(tiptoe_wire::Request::Unwinders, addresses)
                .map(drop),
        }
    }

    /// Says where code is to which followed calls may return: at most [`MAX_EXTENTS`], ascending and apart.
    ///
    /// [`MAX_EXTENTS`]: tiptoe_wire::calls::MAX_EXTENTS
    pub fn describe(&self, code: &[Range<u64>]) -> Result<(), Error> {
        let ends = code.iter().flat_map(|range| [range.start, range.end]);
        let ends: Vec<u64> = ends.collect();
        self.by_address(tiptoe_wire::Request::Described, &ends)
            .map(drop)
    }

    /// Has the agent look at the loader's list of libraries from now on, whose record is there.
    pub fn watch(&self, record: u64) -> Result<(), Error> {
        self.by_address(tiptoe_wire::Request::Watch, &[record])
            .map(drop)
    }

    /// Says which sites are of which libraries.
    pub fn own_libraries(&self, libraries: &[Library]) -> Result<(), Error> {
        for chunk in libraries.chunks(Plan::MAX_RECORDS) {
            for (index, library) in chunk.iter().enumerate() {
                self.plan().put_library(index, library);
            }
            self.ask(tiptoe_wire::Request::Libraries, chunk.len())?;
        }
        Ok(())
    }

    /// Lets a loading thread go on that waits for the change `told`.
    pub fn answer_loader(&self, told: u64) {
        self.data().serve(told);
        if let Some(turn) = self.data().turn() {
            turn.fetch_add(1, Ordering::Release); // pairs with the agent's Acquire
            wake(turn);
        }
    }

    /// Has what threads that are no more were in counted as left.
    pub fn bury(&self) -> Result<(), Error> {
        self.unless_gone(self.ask(tiptoe_wire::Request::Bury, 0))
    }

    /// Has the list of mappings read again.
    pub fn read_maps(&self) -> Result<(), Error> {
        self.unless_gone(self.ask(tiptoe_wire::Request::ReadMaps, 0))
    }

    /// Lets a program that was started under tiptoe run.
    pub fn go(&self) -> Result<(), Error> {
        self.unless_gone(self.ask(tiptoe_wire::Request::Go, 0))
    }

    /// A target that ended meanwhile needs nothing any more.
    fn unless_gone(&self, asked: Result<(), Error>) -> Result<(), Error> {
        asked.or_else(|error| if self.is_gone() { Ok(()) } else { Err(error) })
    }

    /// Has the agent's thread take on the credentials that the program has now.
    pub fn follow(&self) -> Result<(), Error> {
        self.unless_gone(self.ask(tiptoe_wire::Request::Follow, 0))
    }

    /// Puts everything back and waits until the agent sleeps. Once no trap byte stands any more, `last` runs, which
    /// has to call what it is given: that takes out the last hooks.
    pub fn detach(&self, last: impl FnOnce(&mut dyn FnMut())) -> Result<(), Error> {
        let wait = |is_over: &dyn Fn(State) -> bool| {
            let deadline = Instant::now() + PATIENCE;
            while !is_over(self.data().state()) && !self.is_gone() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        let asked = self.ask(tiptoe_wire::Request::Detach, 0);
        self.unless_gone(asked)?;
        wait(&|state| matches!(state, State::Unhooked | State::Dormant));
        if self.data().state() == State::Unhooked {
            let mut settled = Ok(());
            last(&mut || settled = self.ask(tiptoe_wire::Request::Settle, 0));
            self.unless_gone(settled)?;
        }
        wait(&|state| state == State::Dormant);
        Ok(())
    }

    /// Says whether no trap byte may be written.
    pub fn set_quiet(&self, quiet: bool) {
        self.plan().set_quiet(quiet);
    }

    /// Runs requests of which the agent knows that every thread of the program stands still.
    pub fn while_still<R>(&self, act: impl FnOnce() -> R) -> R {
        self.plan().set_still(true);
        let result = act();
        self.plan().set_still(false);
        result
    }
}

fn wake(word: &AtomicU32) {
    // SAFETY: FUTEX_WAKE reads no memory; the word's address is its key.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}
