//! Counts accesses to a process's variables: hardware breakpoints run a BPF program in the accessing thread, after the
//! access.
//!
//! Events on each CPU ([`wide`]) see all threads and cost nothing at a context switch. Events on each thread
//! ([`tasks`]) need no right to watch whole CPUs, and do not see other processes.
//!
//! 1. Rows (sums of accesses by key) are never removed.
//! 2. A value is exact if the storing instruction is known ([`Watchpoints::insert_store`]). Otherwise it is read from
//!    memory after the store, where another thread may have stored since (a race).
//! 3. A window of time has an *allowance* of hits (accesses). When the allowance is used up, a CPU's event stops at
//!    its next hit until [`Watchpoints::refresh`]; threads' events must be disabled with [`Watchpoints::rest`]. Other
//!    processes' hits have an allowance of their own.
//!
//! Needs Linux 6.1, or 6.10 for events on CPUs.

use std::fs::File;

use aya::Ebpf;
use aya::maps::{Array, HashMap, MapError, PerCpuArray};
pub use tiptoe_breakpoint::Stats;
use tiptoe_event::{Cost, Store};
use tiptoe_sys::host::Process;
use tiptoe_sys::host::capabilities::is_linux;
use tiptoe_sys::host::perf::{self, Breakpoint};

use crate::Error;
use crate::cpus::online_cpus;
use crate::programs::{self, Link, ProgramTimes, Ring, attach, no_part, typed_map, typed_map_mut};

mod births;
mod bookings;
mod futex;
mod heirs;
mod hit;
mod model;
mod old_values;
mod opener;
mod shared;
mod slots;
mod strangers;
mod tasks;
mod wanted;
mod watch_layout;
mod watch_program;
mod wide;

pub use futex::{Futex, REGISTERS};
pub use heirs::Unreserved;
pub use hit::signal_cost;
pub use shared::{Booking, SharedSlots};
pub use tasks::AttachSummary;

pub use model::{
    Access, Condition, Drops, Form, Hits, MOST_CONDITIONS, MOST_VARIABLES, Operand, Operator,
    Snapshot, StoredValue, WatchHits, WatchKey, WatchWanted, Watchpoint, Window,
};

use slots::{Slots, Watch};
use tasks::{Serving, Tasks};
use watch_layout::{Counts, Variable, WatchKeyWords, WatchRowWords};
use watch_program::{EXEC, PASS, READ, SINGLE_HITS, failed, load, not_passed, opener};
use wide::CpuEvents;

/// Cells of the map `window`.
const HITS: u32 = 0;
const ALLOWED: u32 = 1;
const IS_ON: u32 = 2;
const IS_RESTING: u32 = 3;
const STRANGERS: u32 = 4;
const IS_STRANGE: u32 = 5;

fn in_window(bpf: &Ebpf, cell: u32) -> Result<u64, Error> {
    let window: Array<_, u64> = typed_map(bpf, "window", READ)?;
    window.get(&cell, 0).map_err(failed)
}

/// Breakpoints that count, from [`Watchpoints::start`] to [`Watchpoints::stop`].
#[derive(Debug)]
pub struct Watchpoints {
    process: Process,
    bpf: Ebpf,
    each: Ring,
    slots: Slots,
    events: Events,
    serving: Vec<(usize, Breakpoint)>,
    memory: File,
    sees_kernel: bool,
    allowance: Option<u64>,
    hit_cost: Cost,
    execs: Option<Link>,
}

#[derive(Debug)]
enum Events {
    None,
    Cpus(CpuEvents),
    Tasks(Tasks, ThrottleState),
}

impl Events {
    /// Interrupts each CPU that has an event, by reading the event there.
    fn reach_cpus(&self) -> std::io::Result<()> {
        match self {
            Events::None => Ok(()),
            Events::Cpus(wide) => wide.reach_cpus(),
            Events::Tasks(tasks, _) => tasks.reach_cpus(),
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct ThrottleState {
    is_resting: bool,
    /// Each slot's hits beyond the allowance, as last read.
    beyond: [u64; REGISTERS as usize],
    /// Slots with hits beyond the allowance in this window, a bit each.
    rested: u64,
}

fn prepare(
    form: Form,
    slots: &Slots,
    served: &[(usize, Breakpoint)],
) -> Result<(Cost, bool, Option<CpuEvents>), Error> {
    // Measured first, because that needs a free debug register.
    let (hit_cost, sees_kernel) = hit::measure()?;
    let wide = match form {
        Form::Cpus => Some(CpuEvents::open(sees_kernel, slots, served)?),
        Form::Tasks => None,
    };
    Ok((hit_cost, sees_kernel, wide))
}

impl Watchpoints {
    /// Prepares to count. Variables with indices in `serving` get debug registers (*slots*); the other variables wait
    /// for [`Watchpoints::serve`].
    pub fn open(
        wanted: &WatchWanted,
        watchpoints: &[Watchpoint],
        serving: &[usize],
    ) -> Result<Self, Error> {
        // Checked first, because an older kernel may refuse the program with another error.
        if wanted.form == Form::Cpus && !is_linux(6, 10) {
            return Err(Error::NoHitLimit);
        }
        let process = Process::new(wanted.pid)?;
        let (threads, of_process) = match wanted.form {
            Form::Cpus => (0, None),
            Form::Tasks => (process.threads()?.len() as u32, Some(wanted.pid)),
        };
        let cpus = online_cpus()?.into_iter().max().unwrap_or(0) + 1;
        let names = watchpoints.iter().map(|w| (w.name.clone(), w.is_pinned));
        let mut slots = Slots::new(cpus, threads, names, wanted.all_slots)?;
        slots.book(of_process, serving)?;
        let served = serving.iter().map(|index| (*index, watchpoints[*index].at));
        let served: Vec<(usize, Breakpoint)> = served.collect();
        let (bpf, prepared) = std::thread::scope(|scope| {
            let loading = scope.spawn(|| load(wanted));
            let prepared = prepare(wanted.form, &slots, &served);
            let loaded = loading.join().unwrap_or_else(|_| Err(no_part("program")));
            (loaded, prepared)
        });
        let (mut bpf, (hit_cost, sees_kernel, wide)) = (bpf?, prepared?);
        let mut set = Self {
            process,
            each: Ring::take(&mut bpf, SINGLE_HITS, "read the accesses one by one")?,
            bpf,
            slots,
            events: Events::None,
            serving: served,
            memory: process.open_memory()?,
            sees_kernel,
            allowance: None,
            hit_cost,
            execs: None,
        };
        set.allow(wanted.allowed_ns)?;
        for (slot, index) in (0..).zip(serving) {
            set.insert_variable(*index, &watchpoints[*index], slot)?;
        }
        let opener = opener(&set.bpf, set.sees_kernel)?;
        set.events = match wide {
            Some(wide) => {
                wide.run(opener)?;
                Events::Cpus(wide)
            }
            None => {
                let tasks = Tasks::attach(process, opener, &set.slots, &set.serving)?;
                Events::Tasks(tasks, ThrottleState::default())
            }
        };
        Ok(set)
    }

    fn insert_variable(
        &mut self,
        index: usize,
        watchpoint: &Watchpoint,
        slot: u32,
    ) -> Result<(), Error> {
        let index = index as u32;
        let at = watchpoint.at;
        let is_code = u32::from(at.access == perf::Access::Execute);
        let is_signed = watchpoint.is_signed.into();
        let variable: Variable = [index, at.len.into(), is_signed, is_code, slot];
        self.insert("variables", at.address, variable)
    }

    /// Limits a window to as many hits as take `ns`, at least one.
    fn allow(&mut self, ns: Option<u64>) -> Result<(), Error> {
        let hits = ns.map(|ns| (ns as f64 / self.hit_cost.ns.max(1.0)).max(1.0) as u64);
        self.set_window(ALLOWED, hits.unwrap_or(0))?;
        self.allowance = hits;
        Ok(())
    }

    fn set_window(&mut self, cell: u32, value: u64) -> Result<(), Error> {
        let mut window: Array<_, u64> = typed_map_mut(&mut self.bpf, "window", PASS)?;
        window.set(cell, value, 0).map_err(not_passed)
    }

    /// Returns how many hits a window allows, if limited.
    pub fn allowance(&self) -> Option<u64> {
        self.allowance
    }

    /// Returns a hit's cost, without the program's work for the process ([`Watchpoints::times`]).
    pub fn hit_cost(&self) -> Cost {
        self.hit_cost
    }

    /// Makes a slot serve another variable. Returns what happened in the window so far.
    pub fn serve(
        &mut self,
        slot: usize,
        index: usize,
        watchpoint: &Watchpoint,
    ) -> Result<Window, Error> {
        let (left, left_at) = self.serving[slot];
        let from = Watch::new(left, &left_at);
        let to = Watch::new(index, &watchpoint.at);
        if let Events::Cpus(wide) = &self.events {
            self.slots.move_wide(from, to)?;
            wide.pause(slot)?;
        }
        let window = self.window()?;
        let served = [(index, watchpoint.at)];
        old_values::begin_gap(&mut self.bpf, &served)?;
        self.insert_variable(index, watchpoint, slot as u32)?;
        self.serving[slot] = (index, watchpoint.at);
        match &mut self.events {
            Events::None => {}
            Events::Cpus(wide) => wide.serve(slot, &watchpoint.at, self.sees_kernel)?,
            Events::Tasks(tasks, rest) => {
                let serving = Serving {
                    at: watchpoint.at,
                    in_kernel: self.sees_kernel,
                    is_on: !rest.is_resting,
                };
                tasks.serve(slot, from, to, &self.slots, serving)?;
            }
        }
        self.end_gap(&served)?;
        Ok(window)
    }

    fn end_gap(&mut self, served: &[(usize, Breakpoint)]) -> Result<(), Error> {
        let reach_cpus = || self.events.reach_cpus();
        old_values::end_gap(&mut self.bpf, &self.memory, served, reach_cpus)
    }

    /// Stops watching an address.
    pub fn forget(&mut self, address: u64) -> Result<(), Error> {
        let mut map: HashMap<_, u64, Variable> = typed_map_mut(&mut self.bpf, "variables", PASS)?;
        match map.remove(&address) {
            // A variable that never had a slot is not in the map.
            Ok(()) | Err(MapError::KeyNotFound) => Ok(()),
            Err(error) => Err(not_passed(error)),
        }
    }

    /// Returns how threads got their events; `None` if events are on CPUs.
    pub fn attached(&self) -> Option<AttachSummary> {
        match &self.events {
            Events::Tasks(tasks, _) => Some(tasks.attached),
            Events::None | Events::Cpus(_) => None,
        }
    }

    /// Returns whether accesses that the kernel makes for the process count.
    pub fn sees_kernel(&self) -> bool {
        self.sees_kernel
    }

    /// Starts counting.
    pub fn start(&mut self) -> Result<(), Error> {
        self.execs = Some(attach(&mut self.bpf, EXEC)?);
        self.set_window(HITS, 0)?;
        self.set_window(IS_ON, 1)?;
        if let Events::Cpus(wide) = &self.events {
            wide.start(self.allowance.is_some())?;
        }
        self.end_gap(&self.serving.clone())
    }

    /// Begins the next window; returns what happened in the last one.
    pub fn refresh(&mut self) -> Result<Window, Error> {
        let served = self.serving.clone();
        // Cleared before `window` reads `rests`. The program adds to `rests` before it sets the flag, so if `window`
        // misses a stop, the next call sees the flag.
        let did_rest = in_window(&self.bpf, IS_RESTING)? != 0;
        if did_rest {
            old_values::begin_gap(&mut self.bpf, &served)?;
            self.set_window(IS_RESTING, 0)?;
        }
        let window = self.window()?;
        for cell in [HITS, STRANGERS, IS_STRANGE] {
            self.set_window(cell, 0)?;
        }
        match &mut self.events {
            Events::None => {}
            Events::Cpus(wide) => wide.refresh()?,
            Events::Tasks(tasks, rest) => {
                rest.rested = 0;
                if std::mem::take(&mut rest.is_resting) {
                    tasks.enable()?;
                }
            }
        }
        if did_rest {
            self.end_gap(&served)?;
        }
        Ok(window)
    }

    /// Disables threads' events if the allowance is used up. Returns whether threads' events are disabled.
    pub fn rest(&mut self) -> Result<bool, Error> {
        let Events::Tasks(tasks, rest) = &mut self.events else {
            return Ok(false);
        };
        if !rest.is_resting
            && let Some(allowed) = self.allowance
            && in_window(&self.bpf, HITS)? >= allowed
        {
            tasks.disable()?;
            rest.is_resting = true;
        }
        Ok(rest.is_resting)
    }

    /// Returns what happened in the window so far.
    pub fn window(&mut self) -> Result<Window, Error> {
        let hits = in_window(&self.bpf, HITS)?;
        let map: PerCpuArray<_, u64> = typed_map(&self.bpf, "rests", READ)?;
        let slots = 0..self.serving.len() as u32;
        let rests = slots.map(|slot| map.get(&slot, 0));
        let rests: Vec<_> = rests.collect::<Result<_, _>>().map_err(failed)?;
        let rested = match &mut self.events {
            Events::None => 0,
            Events::Cpus(wide) => {
                wide.note_rests(|slot, cpu| rests[slot].get(cpu).copied().unwrap_or(0));
                let slots = 0..rests.len();
                slots.fold(0, |bits, slot| {
                    bits | u64::from(wide.is_resting(slot)) << slot
                })
            }
            Events::Tasks(_, rest) => {
                for (slot, (rests, known)) in rests.iter().zip(&mut rest.beyond).enumerate() {
                    let beyond = rests.iter().sum();
                    let is_new = std::mem::replace(known, beyond) != beyond;
                    rest.rested |= u64::from(is_new) << slot;
                }
                rest.rested
            }
        };
        let variables = self.serving.iter().enumerate();
        let rested = variables.fold(0, |bits, (slot, (variable, _))| {
            bits | (rested >> slot & 1) << variable
        });
        Ok(Window {
            hits,
            rested,
            by_strangers: in_window(&self.bpf, IS_STRANGE)? != 0,
        })
    }

    /// Ends counting; counts stay readable.
    pub fn stop(&mut self) {
        self.events = Events::None;
    }

    /// Returns whether the process runs another program, whose accesses do not count.
    pub fn has_execed(&self) -> bool {
        programs::first_word(&self.bpf) != 0
    }

    /// Passes a decoded store instruction, which ends at `end`, to the program.
    pub fn insert_store(&mut self, end: u64, store: &Store) -> Result<(), Error> {
        self.insert("stores", end, watch_layout::store(store))
    }

    /// Passes a code address's unwind rule (`tiptoe_stack`) to the program.
    pub fn insert_rule(&mut self, at: u64, rule: u32) -> Result<(), Error> {
        self.insert("rules", at, rule)
    }

    fn insert<V: aya::Pod>(&mut self, name: &str, key: u64, value: V) -> Result<(), Error> {
        let mut map: HashMap<_, u64, V> = typed_map_mut(&mut self.bpf, name, PASS)?;
        map.insert(key, value, 0).map_err(not_passed)
    }

    /// Returns the single hits since the last call.
    pub fn each(&mut self) -> Vec<Access> {
        self.each.read(watch_layout::access)
    }

    /// Returns the rows.
    pub fn read(&self) -> Result<Vec<WatchHits>, Error> {
        let rows: HashMap<_, WatchKeyWords, WatchRowWords> = typed_map(&self.bpf, "rows", READ)?;
        let rows = rows
            .iter()
            .map(|row| row.map(|(key, row)| watch_layout::decode_row(key, &row)));
        rows.collect::<Result<_, _>>().map_err(failed)
    }

    /// Returns a variable's hits.
    pub fn hits(&self, variable: u32) -> Result<Hits, Error> {
        let counted: PerCpuArray<_, Counts> = typed_map(&self.bpf, "counted", READ)?;
        let counts = counted.get(&variable, 0).map_err(failed)?;
        let mut sum = Hits::default();
        for [all, wanted] in counts.iter().copied() {
            sum.all += all;
            sum.wanted += wanted;
        }
        Ok(sum)
    }

    /// Returns other processes' hits at the same addresses.
    pub fn foreign(&self) -> Result<u64, Error> {
        let cpus = programs::cpus(&self.bpf)?.into_iter();
        Ok(cpus.map(|cpu| watch_layout::cpu(cpu).1).sum())
    }

    /// Returns what was not counted.
    pub fn drops(&self) -> Result<Drops, Error> {
        let drops: [u64; size_of::<Drops>() / 8] = programs::drops(&self.bpf)?;
        Ok(zerocopy::transmute!(drops))
    }

    /// Returns the program's time by its own clock, without the trap, which takes far longer.
    pub fn times(&self) -> Result<ProgramTimes, Error> {
        programs::times(&self.bpf, |cpu| watch_layout::cpu(cpu).0)
    }
}
