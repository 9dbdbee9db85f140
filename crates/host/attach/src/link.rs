//! The two memory segments shared with one agent (tiptoe's library), and requests to the agent. tiptoe writes the
//! *plan*: requests, then trampolines (code that counts). The agent writes the *data*: counters and answers.
//!
//! While a [`Link`] lives, a thread of tiptoe holds the data segment's owner word as a robust futex. If tiptoe dies
//! in any way, the kernel marks the word and wakes the agent, which restores the program.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use tiptoe_sys::host::procfs::{Process, RunningProgram};
use tiptoe_sys::raw::futex;
use tiptoe_wire::{Clock, Data, Geometry, Hello, Library, Plan, Site, State, scopes};

use crate::error::AttachError;

mod code;
mod owner;
mod pulse;
mod segment;

use code::CodeUse;
use owner::Owner;
use pulse::{Pulse, Wait};
pub use segment::Segment;

/// The longest time for one request.
const PATIENCE: Duration = Duration::from_secs(10);

/// What an agent reads from the plan before it begins.
#[derive(Clone, Copy, Debug, Default)]
pub struct Terms {
    /// Whether a dead thread's slab (its counters) must never be reused.
    pub keep_slabs: bool,
    /// How calls are timed, and how much the timing may cost.
    pub clock: Clock,
    /// The first slot (counter) of waits for locks; 0 if waits are not traced.
    pub lock_slot: u32,
    /// The first slot of scopes (parts of the run that the program names); 0 if scopes are not traced.
    pub scope_slot: u32,
    /// Whether the agent may write trap bytes (int3) from the start.
    pub trap_bytes: bool,
    /// Whether every lookup of a trap's probe takes the lock of the agent's tree of mappings (for benches).
    pub locked_lookups: bool,
}

/// The segments shared with one agent.
pub struct Link {
    /// Must be dropped before the segments, because the agent uses them until the owner word is released.
    owner: Option<Owner>,
    data: Segment,
    /// The plan, then the trampolines.
    plan: Segment,
    code: Mutex<CodeUse>,
    geometry: Geometry,
    /// See [`Terms::lock_slot`].
    pub lock_slot: u32,
    /// See [`Terms::scope_slot`].
    pub scope_slot: u32,
    has_ended: Box<dyn Fn() -> bool + Send + Sync>,
    /// How to see whether the agent lives; set once the agent is in the process.
    pulse: OnceLock<Pulse>,
    /// The number of the request that the agent did not answer in time. Until the answer, later requests fail at
    /// once. Relaxed: only one thread at a time sends requests, and is joined before the next thread starts.
    unanswered: AtomicU64,
}

impl Link {
    /// Maps both segments, writes the plan's header, and holds the owner word.
    pub fn new(
        data: OwnedFd,
        plan: OwnedFd,
        geometry: Geometry,
        terms: &Terms,
        has_ended: Box<dyn Fn() -> bool + Send + Sync>,
    ) -> io::Result<Link> {
        let data = Segment::map(data, geometry.data_bytes())?;
        let plan = Segment::map(plan, Plan::FILE_BYTES)?;
        let mut link = Link {
            owner: None,
            data,
            plan,
            code: Mutex::new(CodeUse::new()),
            geometry,
            lock_slot: terms.lock_slot,
            scope_slot: terms.scope_slot,
            has_ended,
            pulse: OnceLock::new(),
            unanswered: AtomicU64::new(0),
        };
        link.plan().format(geometry, terms.keep_slabs);
        link.plan().set_clock(&terms.clock);
        link.plan().set_lock_slot(terms.lock_slot);
        link.plan().set_scope_slot(terms.scope_slot);
        link.plan().set_trap_bytes(terms.trap_bytes);
        link.plan().set_locked_lookups(terms.locked_lookups);
        link.owner = Some(Owner::hold(&link.data)?);
        Ok(link)
    }

    /// Returns the plan segment.
    pub fn plan(&self) -> Plan<'_> {
        Plan::new(self.plan.words())
    }

    /// Returns the data segment.
    pub fn data(&self) -> Data<'_> {
        Data::new(self.data.words(), self.geometry).expect("mapped with this geometry")
    }

    /// Returns the data segment's file.
    pub fn data_file(&self) -> &File {
        self.data.file()
    }

    /// Returns the data segment's geometry.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Records the agent's process and program.
    pub fn is_in(&self, process: Process, program: RunningProgram) {
        // If the memory cannot be opened, only missing answers show that the process called exec.
        if self.pulse.get().is_none()
            && let Ok(memory) = process.open_memory()
        {
            let _ = self.pulse.set(Pulse {
                process,
                program,
                memory,
            });
        }
    }

    /// Returns whether the target has ended, or runs another program.
    pub fn has_lost_target(&self) -> bool {
        let is_over = |pulse: &Pulse| pulse.is_over(&*self.has_ended);
        (self.has_ended)() || self.pulse.get().is_some_and(is_over)
    }

    /// Returns the agent's error if the agent refused to serve.
    pub fn refusal(&self) -> Option<io::Error> {
        let data = self.data();
        let refused = data.state() == State::Dormant && data.hello().is_none();
        refused.then(|| io::Error::from_raw_os_error(data.outcome() as i32))
    }

    /// Waits for the agent's hello (its first message); `None` if the agent refuses, the target ends, or `patience`
    /// is over.
    pub fn wait_for_hello(&self, patience: Duration) -> Option<Hello> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(hello) = self.data().hello() {
                return Some(hello);
            }
            if self.refusal().is_some() || self.has_lost_target() || Instant::now() > deadline {
                return None;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Publishes a request whose records are in the plan, and waits for the answer.
    pub fn ask(&self, request: tiptoe_wire::Request, count: usize) -> Result<(), AttachError> {
        if self.data().acknowledged() < self.unanswered.load(Ordering::Relaxed) {
            return Err(AttachError::Silent { request });
        }
        let sequence = self.plan().publish(request, count);
        let mut wait = Wait::new(self);
        let mut pause = Duration::from_micros(20);
        while !self.is_answered(sequence, pause) {
            if self.has_lost_target() {
                return Err(AttachError::TargetEnded);
            }
            if request == tiptoe_wire::Request::Settle && self.data().state() == State::Dormant {
                // The agent has stopped waiting for this request, and has detached without it.
                return Ok(());
            }
            if wait.is_over() {
                self.unanswered.store(sequence, Ordering::Relaxed);
                return Err(AttachError::Silent { request });
            }
            pause = (pause * 2).min(Duration::from_millis(1));
        }
        match self.data().outcome() {
            0 => Ok(()),
            errno => {
                let why = io::Error::from_raw_os_error(errno as i32);
                Err(AttachError::Refused { request, why })
            }
        }
    }

    fn is_answered(&self, sequence: u64, moment: Duration) -> bool {
        let seen = self.data().acknowledged();
        if seen < sequence {
            self.wake();
            if let Some(word) = self.data().answered() {
                let _ = futex::wait_low(word, seen as u32, Some(moment.as_nanos() as u64));
            }
        }
        self.data().acknowledged() >= sequence
    }

    /// Makes the agent's thread sleep for ever when it next looks for requests, because a seccomp filter forbids
    /// that thread other system calls.
    pub fn silence(&self) {
        self.plan().silence();
    }

    /// Records that tiptoe has just checked whether the program confined itself (seccomp, rights). Without such
    /// records, the agent's thread does this check.
    pub fn note_look(&self) {
        self.plan().note_look();
    }

    /// Makes the agent's thread look for requests.
    pub fn wake(&self) {
        self.data().owner().map(wake);
    }

    /// Makes each range of code a mapping of its own.
    pub fn split_mappings(&self, ranges: &[Range<u64>]) -> Result<(), AttachError> {
        self.by_range(tiptoe_wire::Request::SplitMaps, ranges)
    }

    /// Patches sites (places that shall jump to trampolines), which must be sorted by address. Returns the patcher's
    /// outcome for each site.
    pub fn arm(&self, sites: &[Site]) -> Result<Vec<u64>, AttachError> {
        self.ask_in_parts(tiptoe_wire::Request::Arm, sites, |index, site| {
            self.plan().put_site(index, site);
        })
    }

    /// Patches sites that the agent knows from an earlier session.
    pub fn arm_again(&self, addresses: &[u64]) -> Result<Vec<u64>, AttachError> {
        self.by_address(tiptoe_wire::Request::ArmAgain, addresses)
    }

    /// Selects the sites for [`Link::arm_again`] by their trampolines' addresses, which must be sorted.
    pub fn recall(&self, trampolines: &[u64]) -> Result<(), AttachError> {
        self.by_address(tiptoe_wire::Request::Recall, trampolines)
            .map(|_| ())
    }

    /// Restores the bytes of known sites.
    pub fn disarm(&self, addresses: &[u64]) -> Result<Vec<u64>, AttachError> {
        self.by_address(tiptoe_wire::Request::Disarm, addresses)
    }

    /// Restores and patches sites, `times` times, as a test.
    pub fn toggle(&self, addresses: &[u64], times: u64) -> Result<(), AttachError> {
        let addresses = &addresses[..addresses.len().min(Plan::MAX_RECORDS)];
        for (index, address) in addresses.iter().enumerate() {
            self.plan().put_address(index, *address);
        }
        self.plan().put_times(times);
        self.ask(tiptoe_wire::Request::Toggle, addresses.len())
    }

    /// Calls resolvers of indirect functions. Returns the addresses that the resolvers chose.
    pub fn resolve(&self, resolvers: &[u64]) -> Result<Vec<u64>, AttachError> {
        self.by_address(tiptoe_wire::Request::Resolve, resolvers)
    }

    fn ask_in_parts<T>(
        &self,
        request: tiptoe_wire::Request,
        records: &[T],
        put: impl Fn(usize, &T),
    ) -> Result<Vec<u64>, AttachError> {
        let mut results = Vec::new();
        for part in records.chunks(Plan::MAX_RECORDS) {
            for (index, record) in part.iter().enumerate() {
                put(index, record);
            }
            self.ask(request, part.len())?;
            results.extend((0..part.len()).map(|index| self.data().result(index)));
        }
        Ok(results)
    }

    fn by_address(
        &self,
        request: tiptoe_wire::Request,
        addresses: &[u64],
    ) -> Result<Vec<u64>, AttachError> {
        self.ask_in_parts(request, addresses, |index, address| {
            self.plan().put_address(index, *address);
        })
    }

    fn by_range(
        &self,
        request: tiptoe_wire::Request,
        ranges: &[Range<u64>],
    ) -> Result<(), AttachError> {
        // A range is two records, which must be in one request.
        const { assert!(Plan::MAX_RECORDS.is_multiple_of(2)) };
        let ends = ranges.iter().flat_map(|range| [range.start, range.end]);
        self.by_address(request, &ends.collect::<Vec<u64>>())
            .map(drop)
    }

    /// Opens ports, tables through which the program reports its own locks and scopes. Returns 0 or an errno for each
    /// port.
    pub fn open_ports(&self, addresses: &[u64]) -> Result<Vec<u64>, AttachError> {
        self.by_address(tiptoe_wire::Request::Ports, addresses)
    }

    /// Returns the first slot after those of waits and scopes.
    pub fn free_slot(&self) -> u32 {
        let after = |slot, width| if slot == 0 { 0 } else { slot + width };
        let locks = after(self.lock_slot, tiptoe_wire::futex::WIDTH);
        locks.max(after(self.scope_slot, scopes::WIDTH))
    }

    /// Makes the agent handle SIGTRAP and SIGILL. Returns [`tiptoe_wire::Request::Prepare`]'s results.
    pub fn prepare(&self) -> Result<[u64; 3], AttachError> {
        self.ask(tiptoe_wire::Request::Prepare, 0)?;
        Ok([0, 1, 2].map(|index| self.data().result(index)))
    }

    /// Sets the functions of the program's unwinders that return a frame's code address (`_Unwind_GetIP`).
    pub fn name_unwinders(&self, addresses: &[u64]) -> Result<(), AttachError> {
        self.by_address(tiptoe_wire::Request::Unwinders, addresses)
            .map(drop)
    }

    /// Sets the code whose calls may be traced up to their return: at most [`MAX_EXTENTS`] ranges, sorted and disjoint.
    ///
    /// [`MAX_EXTENTS`]: tiptoe_wire::calls::MAX_EXTENTS
    pub fn describe(&self, code: &[Range<u64>]) -> Result<(), AttachError> {
        self.by_range(tiptoe_wire::Request::Described, code)
    }

    /// Makes the agent watch the loader's list of libraries; `record` is the address of the loader's `r_debug`.
    pub fn watch(&self, record: u64) -> Result<(), AttachError> {
        self.by_address(tiptoe_wire::Request::Watch, &[record])
            .map(drop)
    }

    /// Sends the program's libraries, so that the agent knows the library of each site.
    pub fn own_libraries(&self, libraries: &[Library]) -> Result<(), AttachError> {
        let put = |index, library: &Library| self.plan().put_library(index, library);
        self.ask_in_parts(tiptoe_wire::Request::Libraries, libraries, put)
            .map(drop)
    }

    /// Answers a thread that changed the loader's list and waits for tiptoe, so that the thread continues.
    pub fn answer_loader(&self, change: u64) {
        self.data().serve(change);
        if let Some(turn) = self.data().turn() {
            turn.fetch_add(1, Ordering::Release); // pairs with the Acquire of that thread
            wake(turn);
        }
    }

    /// Makes the agent count the unfinished calls of ended threads as calls that never return.
    pub fn bury(&self) -> Result<(), AttachError> {
        self.unless_gone(self.ask(tiptoe_wire::Request::Bury, 0))
    }

    /// Makes the agent read the mappings again.
    pub fn read_maps(&self) -> Result<(), AttachError> {
        self.unless_gone(self.ask(tiptoe_wire::Request::ReadMaps, 0))
    }

    /// Lets a command run.
    pub fn go(&self) -> Result<(), AttachError> {
        self.unless_gone(self.ask(tiptoe_wire::Request::Go, 0))
    }

    fn unless_gone(&self, result: Result<(), AttachError>) -> Result<(), AttachError> {
        result.or_else(|error| {
            if self.has_lost_target() {
                Ok(())
            } else {
                Err(error)
            }
        })
    }

    /// Makes the agent restore the program, and waits until the agent's thread sleeps. Calls `last` when no trap byte
    /// is left. `last` must call its argument, which makes the agent remove the last hooks.
    pub fn detach(&self, last: impl FnOnce(&mut (dyn FnMut() + Send))) -> Result<(), AttachError> {
        let deadline = Instant::now() + PATIENCE;
        let wait = |is_over: &dyn Fn(State) -> bool| {
            while !is_over(self.data().state())
                && !self.has_lost_target()
                && Instant::now() < deadline
            {
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        let detached = self.ask(tiptoe_wire::Request::Detach, 0);
        self.unless_gone(detached)?;
        wait(&|state| matches!(state, State::Unhooked | State::Dormant));
        if self.data().state() == State::Unhooked {
            let mut settled = Ok(());
            last(&mut || settled = self.ask(tiptoe_wire::Request::Settle, 0));
            self.unless_gone(settled)?;
        }
        wait(&|state| state == State::Dormant);
        Ok(())
    }

    /// Sets whether trap bytes may be written.
    pub fn set_trap_bytes(&self, allowed: bool) {
        self.plan().set_trap_bytes(allowed);
    }

    /// Runs `act`, whose requests write patches without trap bytes. The caller must have stopped all threads of the
    /// program, because only trap bytes would keep a running thread out of a half-written patch.
    pub fn while_still<R>(&self, act: impl FnOnce() -> R) -> R {
        self.plan().set_still(true);
        let result = act();
        self.plan().set_still(false);
        result
    }
}

fn wake(word: &AtomicU32) {
    futex::wake(word, i32::MAX.cast_unsigned());
}
