//! Accesses to variables of a process, counted in the kernel: hardware breakpoints, with a BPF program that knows
//! the process and runs in the thread that makes the access, behind it. What comes out are sums: by instruction,
//! callers and thread name, with the values.
//!
//! There are two forms. An event for each CPU and variable ([`wide`]) sees all threads, those too that begin later,
//! and adds nothing to a context switch. Events of each thread ([`tasks`]), inherited by those that begin later, need
//! no right to watch whole CPUs, and meet no other process that uses the same addresses.
//!
//! Rules:
//!
//! 1. Rows are sums since the events were switched on; none is ever taken away.
//! 2. A value is right where the instruction that stored it was known when it hit ([`Watchpoints::tell_store`]); else it
//!    was read from memory, behind the store, where another thread may have stored since. The row says how often.
//! 3. With an allowance the events of all CPUs come to rest together, but for one hit each, when it is used up
//!    within a window, until [`Watchpoints::refresh`] begins the next one. Hits of other processes at the same addresses
//!    have an allowance of their own ([`Watchpoints::move_to_threads`]).
//!
//! Linux 5.15 or later.

use aya::Ebpf;
use aya::maps::{Array, HashMap, MapError, PerCpuArray};
pub use tiptoe_breakpoint::Stats;
use tiptoe_event::{Cost, Store};
use tiptoe_sys::host::Process;
use tiptoe_sys::host::perf::{self, Breakpoint};

use crate::Error;
use crate::cpus::online_cpus;
use crate::programs::{self, Link, ProgramTimes, attach, map, map_mut, no_part};

mod before;
mod births;
mod each;
mod hit;
mod layout;
mod load;
mod model;
mod opener;
mod shared;
mod slots;
mod strangers;
mod tasks;
mod wanted;
mod wide;

pub use hit::signal_cost;
pub use shared::SharedSlots;
pub use slots::{Futex, REGISTERS};
pub use tasks::Attached;

pub use model::{
    Access, Condition, Drops, Form, Hits, MOST_CONDITIONS, MOST_VARIABLES, Operand, Operator,
    Snapshot, StoredValue, WatchKey, WatchRow, WatchWanted, Watchpoint, Window,
};

use before::Memory;
use each::Each;
use layout::{Counts, Cpu, Key, Row, Variable};
use load::{EXEC, failed, load, opener, told};
use slots::{Slots, Watch};
use tasks::Tasks;
use wide::Wide;

/// Where in the map of the window its hits stand, how many there may be, whether they count, and whether events rest.
const HITS: u32 = 0;
const ALLOWED: u32 = 1;
const IS_ON: u32 = 2;
const IS_RESTING: u32 = 3;
/// The same for hits of other processes, and whether events rest because of these.
const STRANGERS: u32 = 4;
const IS_STRANGE: u32 = 5;

/// Breakpoints that count, from [`Watchpoints::start`] until this is dropped.
#[derive(Debug)]
pub struct Watchpoints {
    process: Process,
    bpf: Ebpf,
    each: Each,
    slots: Slots,
    events: Events,
    /// What is waited for of each variable.
    kinds: Vec<perf::Access>,
    /// The variable that each slot serves, and where it is.
    serving: Vec<(usize, Breakpoint)>,
    memory: Memory,
    sees_kernel: bool,
    allowance: Option<u64>,
    hit_cost: Cost,
    /// The program that looks for exec.
    execs: Option<Link>,
}

/// Where the events are.
#[derive(Debug)]
enum Events {
    None,
    Wide(Wide),
    Tasks(Tasks, Rest),
}

impl Events {
    /// Returns when each CPU on which an event is has taken an interrupt: the kernel reads an event on its own CPU.
    fn reach_cpus(&self) -> std::io::Result<()> {
        match self {
            Events::None => Ok(()),
            Events::Wide(wide) => wide.reach_cpus(),
            Events::Tasks(tasks, _) => tasks.reach_cpus(),
        }
    }
}

/// Whether events of threads rest, as the window's allowance is used up.
#[derive(Clone, Copy, Debug, Default)]
struct Rest {
    is_resting: bool,
    /// How often each slot was hit beyond the allowance, as far as that is known.
    beyond: [u64; slots::REGISTERS as usize],
    /// Slots that were in this window.
    rested: u64,
}

/// What needs no program.
struct Prepared {
    hit_cost: Cost,
    sees_kernel: bool,
    /// The events, where they are those of CPUs.
    wide: Option<Wide>,
}

fn prepare(form: Form, slots: &Slots, served: &[(Watch, Breakpoint)]) -> Result<Prepared, Error> {
    // Before all slots are taken.
    let (hit_cost, sees_kernel) = hit::measure()?;
    let wide = match form {
        Form::Wide => Some(Wide::open(sees_kernel, slots, served)?),
        Form::Tasks => None,
    };
    Ok(Prepared {
        hit_cost,
        sees_kernel,
        wide,
    })
}

impl Watchpoints {
    /// Makes ready to count: all events are there, and none counts. There is a slot for each of the variables in
    /// `serving`, which are places in the list of watchpoints; others may be served later ([`Watchpoints::serve`]).
    pub fn open(
        wanted: &WatchWanted,
        watchpoints: &[Watchpoint],
        serving: &[usize],
    ) -> Result<Self, Error> {
        let process = Process::new(wanted.pid)?;
        let threads = match wanted.form {
            Form::Wide => 0,
            Form::Tasks => process.threads()?.len() as u32,
        };
        let cpus = online_cpus()?.into_iter().max().unwrap_or(0) + 1;
        let names = watchpoints.iter().map(|w| (w.name.clone(), w.is_pinned));
        let slots = Slots::new(cpus, threads, names, wanted.all_slots)?;
        let served = serving.iter().map(|index| {
            let at = watchpoints[*index].at;
            (Watch::new(*index, &at), at)
        });
        let served: Vec<(Watch, Breakpoint)> = served.collect();
        // The kernel takes as long to check the program as to give the first events away.
        let (bpf, prepared) = std::thread::scope(|scope| {
            let loading = scope.spawn(|| load(wanted));
            let prepared = prepare(wanted.form, &slots, &served);
            let loaded = loading.join().unwrap_or_else(|_| Err(no_part("program")));
            (loaded, prepared)
        });
        let (mut bpf, prepared) = (bpf?, prepared?);
        let mut set = Self {
            process,
            each: Each::take(&mut bpf)?,
            bpf,
            slots,
            events: Events::None,
            kinds: watchpoints.iter().map(|w| w.at.access).collect(),
            serving: serving
                .iter()
                .map(|index| (*index, watchpoints[*index].at))
                .collect(),
            memory: Memory::open(process)?,
            sees_kernel: prepared.sees_kernel,
            allowance: None,
            hit_cost: prepared.hit_cost,
            execs: None,
        };
        set.allow(wanted.allowed_ns)?;
        for (slot, index) in (0..).zip(serving) {
            set.tell_variable(*index, &watchpoints[*index], slot)?;
        }
        let opener = opener(&set.bpf, set.sees_kernel)?;
        set.events = match prepared.wide {
            Some(wide) => {
                wide.run(opener)?;
                Events::Wide(wide)
            }
            None => {
                let tasks = Tasks::attach(process, opener, &set.slots, served)?;
                Events::Tasks(tasks, Rest::default())
            }
        };
        Ok(set)
    }

    /// Tells the program of a variable.
    fn tell_variable(
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

    /// All that are served, by number.
    fn served(&self) -> Vec<(u32, Breakpoint)> {
        let served = self.serving.iter();
        served.map(|(index, at)| (*index as u32, *at)).collect()
    }

    /// Limits a window to the hits that take so long.
    fn allow(&mut self, ns: Option<u64>) -> Result<(), Error> {
        let hits = ns.map(|ns| (ns as f64 / self.hit_cost.ns.max(1.0)).max(1.0) as u64);
        self.set_window(ALLOWED, hits.unwrap_or(0))?;
        self.allowance = hits;
        Ok(())
    }

    fn set_window(&mut self, cell: u32, value: u64) -> Result<(), Error> {
        let mut window =
            Array::<_, u64>::try_from(map_mut(&mut self.bpf, "window")?).map_err(told)?;
        window.set(cell, value, 0).map_err(told)
    }

    /// So many hits are allowed in a window, where there is a limit.
    pub fn allowance(&self) -> Option<u64> {
        self.allowance
    }

    /// What one hit costs, the program's own work for the process left out ([`Watchpoints::times`]).
    pub fn hit_cost(&self) -> Cost {
        self.hit_cost
    }

    /// Has a slot serve another variable from now on; what became of the window so far.
    pub fn serve(
        &mut self,
        slot: usize,
        index: usize,
        watchpoint: &Watchpoint,
    ) -> Result<Window, Error> {
        let (left, _) = self.serving[slot];
        let from = Watch::of(left, self.kinds[left]);
        let to = Watch::new(index, &watchpoint.at);
        if let Events::Wide(wide) = &self.events {
            self.slots.move_wide(from, to)?;
            wide.pause(slot)?;
        }
        let window = self.window()?;
        before::begin_gap(&mut self.bpf, &[index as u32])?;
        self.tell_variable(index, watchpoint, slot as u32)?;
        self.serving[slot] = (index, watchpoint.at);
        match &mut self.events {
            Events::None => {}
            Events::Wide(wide) => wide.serve(slot, &watchpoint.at, self.sees_kernel)?,
            Events::Tasks(tasks, rest) => {
                let (in_kernel, is_on) = (self.sees_kernel, !rest.is_resting);
                tasks.serve(slot, (to, watchpoint.at), &self.slots, in_kernel, is_on)?;
            }
        }
        let served = [(index as u32, watchpoint.at)];
        before::end_gap(&mut self.bpf, &self.memory, &served, || {
            self.events.reach_cpus()
        })?;
        Ok(window)
    }

    /// Nothing is watched at an address any more.
    pub fn forget(&mut self, address: u64) -> Result<(), Error> {
        let map = HashMap::<_, u64, Variable>::try_from(map_mut(&mut self.bpf, "variables")?);
        match map.and_then(|mut map| map.remove(&address)) {
            // Of one that had no turn yet.
            Ok(()) | Err(MapError::KeyNotFound) => Ok(()),
            Err(error) => Err(told(error)),
        }
    }

    /// How the threads got their events, where each has its own.
    pub fn attached(&self) -> Option<Attached> {
        match &self.events {
            Events::Tasks(tasks, _) => Some(tasks.attached()),
            Events::None | Events::Wide(_) => None,
        }
    }

    /// Reservations of debug registers by tiptoe: those for threads, and those for CPUs.
    pub fn reservations(&self) -> Result<[Stats; 2], Error> {
        self.slots.stats()
    }

    /// Whether accesses of the kernel's count, on behalf of the process.
    pub fn sees_kernel(&self) -> bool {
        self.sees_kernel
    }

    /// Counts from now on.
    pub fn start(&mut self) -> Result<(), Error> {
        self.execs = Some(attach(&mut self.bpf, EXEC)?);
        self.set_window(HITS, 0)?;
        self.set_window(IS_ON, 1)?;
        if let Events::Wide(wide) = &self.events {
            wide.start(self.allowance.is_some())?;
        }
        let served = self.served();
        before::end_gap(&mut self.bpf, &self.memory, &served, || {
            self.events.reach_cpus()
        })
    }

    /// Begins the next window; what became of the one before.
    pub fn refresh(&mut self) -> Result<Window, Error> {
        let served = self.served();
        // Looked at and cleared before the counts of rests are read: a rest that is missed here stands in both next time.
        let did_rest = self.in_window(IS_RESTING)? != 0;
        if did_rest {
            let variables: Vec<u32> = served.iter().map(|(index, _)| *index).collect();
            before::begin_gap(&mut self.bpf, &variables)?;
            self.set_window(IS_RESTING, 0)?;
        }
        let window = self.window()?;
        for cell in [HITS, STRANGERS, IS_STRANGE] {
            self.set_window(cell, 0)?;
        }
        match &mut self.events {
            Events::None => {}
            Events::Wide(wide) => wide.refresh()?,
            Events::Tasks(tasks, rest) => {
                rest.rested = 0;
                if std::mem::take(&mut rest.is_resting) {
                    tasks.enable()?;
                }
            }
        }
        if did_rest {
            before::end_gap(&mut self.bpf, &self.memory, &served, || {
                self.events.reach_cpus()
            })?;
        }
        Ok(window)
    }

    /// Has events of threads rest where the window's allowance is used up: those of CPUs do that by themselves.
    /// Whether they do so.
    pub fn rest(&mut self) -> Result<bool, Error> {
        let is_used_up = match (self.allowance, &self.events) {
            (Some(allowed), Events::Tasks(_, rest)) if !rest.is_resting => {
                self.in_window(HITS)? >= allowed
            }
            _ => false,
        };
        match &mut self.events {
            Events::Tasks(tasks, rest) => {
                if is_used_up {
                    tasks.disable()?;
                    rest.is_resting = true;
                }
                Ok(rest.is_resting)
            }
            Events::None | Events::Wide(_) => Ok(false),
        }
    }

    fn in_window(&self, cell: u32) -> Result<u64, Error> {
        let window = Array::<_, u64>::try_from(map(&self.bpf, "window")?).map_err(failed)?;
        window.get(&cell, 0).map_err(failed)
    }

    /// What has become of the window so far.
    pub fn window(&mut self) -> Result<Window, Error> {
        let hits = self.in_window(HITS)?;
        let map = map(&self.bpf, "rests")?;
        let map = PerCpuArray::<_, u64>::try_from(map).map_err(failed)?;
        let slots = 0..self.serving.len() as u32;
        let rests = slots.map(|slot| map.get(&slot, 0));
        let rests: Vec<_> = rests.collect::<Result<_, _>>().map_err(failed)?;
        let rested = match &mut self.events {
            Events::None => 0,
            Events::Wide(wide) => {
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
            by_strangers: self.in_window(IS_STRANGE)? != 0,
        })
    }

    /// Ends counting; what was counted can still be read.
    pub fn stop(&mut self) {
        self.events = Events::None;
    }

    /// Whether the process runs another program by now: its accesses have not counted since.
    pub fn has_execed(&self) -> bool {
        programs::first_word(&self.bpf) != 0
    }

    /// Says what the instruction that ends at an address stores.
    pub fn tell_store(&mut self, end: u64, store: &Store) -> Result<(), Error> {
        self.insert("stores", end, layout::store(store))
    }

    /// Says how to step from a place in the program to its caller: the bits of a rule of `tiptoe-stack`.
    pub fn tell_rule(&mut self, at: u64, rule: u32) -> Result<(), Error> {
        self.insert("rules", at, rule)
    }

    fn insert<V: aya::Pod>(&mut self, name: &str, key: u64, value: V) -> Result<(), Error> {
        let map = HashMap::<_, u64, V>::try_from(map_mut(&mut self.bpf, name)?);
        let inserted = map.and_then(|mut map| map.insert(key, value, 0));
        inserted.map_err(told)
    }

    /// The hits since the last time one by one, in the order in which they were told.
    pub fn each(&mut self) -> Vec<Access> {
        self.each.read()
    }

    /// What was counted so far.
    pub fn read(&self) -> Result<Vec<WatchRow>, Error> {
        let rows = HashMap::<_, Key, Row>::try_from(map(&self.bpf, "rows")?).map_err(failed)?;
        let rows = rows
            .iter()
            .map(|row| row.map(|(key, row)| layout::row(key, &row)));
        rows.collect::<Result<_, _>>().map_err(failed)
    }

    /// The hits of a variable so far.
    pub fn hits(&self, variable: u32) -> Result<Hits, Error> {
        let counted = PerCpuArray::<_, Counts>::try_from(map(&self.bpf, "counted")?);
        let counts = counted.and_then(|counted| counted.get(&variable, 0));
        let counts = counts.map_err(failed)?;
        let mut sum = Hits::default();
        for [all, wanted] in counts.iter().copied() {
            sum.all += all;
            sum.wanted += wanted;
        }
        Ok(sum)
    }

    /// Hits of other processes, at the same address.
    pub fn foreign(&self) -> Result<u64, Error> {
        let cpus = programs::cpus::<Cpu>(&self.bpf)?;
        Ok(cpus.iter().map(|cpu| layout::cpu(cpu).1).sum())
    }

    /// What was not counted so far, by reason.
    pub fn drops(&self) -> Result<Drops, Error> {
        let (counts, missed) = programs::drops(&self.bpf)?;
        Ok(layout::drops(counts, missed))
    }

    /// What the program took, by its own clock. The trap, which takes far more, is not in it.
    pub fn times(&self) -> Result<ProgramTimes, Error> {
        programs::times(&self.bpf, |cpu| layout::cpu(cpu).0)
    }
}
