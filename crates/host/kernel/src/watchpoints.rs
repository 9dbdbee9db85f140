//! Accesses to variables of a process, counted in the kernel: hardware breakpoints of all CPUs, with a BPF program
//! that knows the process.
//!
//! An event for each CPU and variable sees all threads, those too that begin later, adds nothing to a context
//! switch, and tells the program in the thread that makes the access, behind it. What comes out are sums: by
//! instruction, callers and thread name, with the values.
//!
//! Rules:
//!
//! 1. Rows are sums since the events were switched on; none is ever taken away.
//! 2. A value is right where the instruction that stored it was known when it hit ([`Watchpoints::tell_store`]); else it
//!    was read from memory, behind the store, where another thread may have stored since. The row says how often.
//! 3. With an allowance the events of all CPUs come to rest together, but for one hit each, when it is used up
//!    within a window, until [`Watchpoints::refresh`] begins the next one.
//!
//! Linux 5.15 or later.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use aya::maps::{Array, HashMap, Map, PerCpuArray};
use aya::programs::Program;
use aya::util::online_cpus;
use aya::{Ebpf, EbpfLoader};
use tiptoe_event::{Cost, Store};
use tiptoe_sys::host::perf::{Access, Breakpoint, On, PerfEvent};

use crate::Error;
use crate::programs::{self, Link, ProgramTimes, attach, load_program, no_part};
use crate::refusal::bpf_refusal;

mod layout;
mod model;

pub use model::{
    Condition, Drops, Hits, MOST_CONDITIONS, Operand, Operator, Snapshot, StoredValue, WatchKey,
    WatchRow, WatchWanted, Watchpoint, Window,
};

use layout::{Counts, Cpu, Key, Row, Variable};

/// The program, as clang made it. The macro aligns it as its reader wants it.
const WATCH: &[u8] = aya::include_bytes_aligned!("../bpf/watch.bpf.o");
const PROGRAM: &str = "accessed";

/// The program that looks for exec, with its tracepoint.
const EXEC: [&str; 3] = ["program_exec", "sched", "sched_process_exec"];

/// Where in the map of the window its hits stand, and how many there may be.
const HITS: u32 = 0;
const ALLOWED: u32 = 1;

const LOAD: &str = "load the BPF program that counts accesses";
const READ: &str = "read the accesses";
const TELL: &str = "tell the BPF program of the program's code";

/// Breakpoints that count, from [`Watchpoints::start`] until this is dropped.
#[derive(Debug)]
pub struct Watchpoints {
    bpf: Ebpf,
    events: Vec<Armed>,
    sees_kernel: bool,
    allowance: Option<u64>,
    hit_cost: Cost,
    /// The program that looks for exec.
    execs: Option<Link>,
    /// Hits of other processes when it began: our own, to know their cost.
    foreign_before: u64,
}

/// The event of a variable on a CPU.
#[derive(Debug)]
struct Armed {
    event: PerfEvent,
    variable: u32,
    cpu: u32,
    /// How often it came to rest, as far as that is known.
    rests: u64,
    /// It did in this window.
    is_resting: bool,
}

impl Watchpoints {
    /// Makes ready to count: all events are there, and off.
    pub fn open(wanted: &WatchWanted, watchpoints: &[Watchpoint]) -> Result<Self, Error> {
        let mut set = Self {
            bpf: load(wanted)?,
            events: Vec::new(),
            sees_kernel: true,
            allowance: None,
            hit_cost: Cost::default(),
            execs: None,
            foreign_before: 0,
        };
        // Before all slots are taken.
        set.hit_cost = set.measure_hits()?;
        set.foreign_before = set.foreign()?;
        set.allow(wanted.allowed_ns)?;
        for (index, watchpoint) in (0..).zip(watchpoints) {
            let at = watchpoint.at;
            let is_code = u32::from(at.access == Access::Execute);
            let variable: Variable = [index, at.len.into(), watchpoint.is_signed.into(), is_code];
            set.insert("variables", at.address, variable)?;
            let mut last = Array::<_, u64>::try_from(set.map_mut("last")?).map_err(told)?;
            last.set(index, watchpoint.value, 0).map_err(told)?;
        }
        let cpus = online_cpus().map_err(|(_, source)| Error::Io {
            what: "list the CPUs that are online".into(),
            source,
        })?;
        for (variable, watchpoint) in (0..).zip(watchpoints) {
            for cpu in &cpus {
                let event = set.open_one(&watchpoint.at, On::Cpu(*cpu))?;
                set.events.push(Armed {
                    event,
                    variable,
                    cpu: *cpu,
                    rests: 0,
                    is_resting: false,
                });
            }
        }
        Ok(set)
    }

    /// What a hit costs on this machine: the trap, and the program as it runs for another process.
    fn measure_hits(&mut self) -> Result<Cost, Error> {
        const BATCHES: usize = 7;
        const HITS: u64 = 30;
        let word = AtomicU64::new(0);
        let at = Breakpoint {
            address: word.as_ptr() as u64,
            len: 8,
            access: Access::Write,
        };
        let event = self.open_one(&at, On::Thread(0))?;
        event.enable().map_err(cannot_switch_on)?;
        let mut batches = [0.0; BATCHES];
        for batch in &mut batches {
            let start = Instant::now();
            (0..HITS).for_each(|hit| word.store(hit, Ordering::Relaxed));
            *batch = start.elapsed().as_nanos() as f64 / HITS as f64;
        }
        batches.sort_by(f64::total_cmp);
        let [low, middle, high] = [1, BATCHES / 2, BATCHES - 2].map(|at| batches[at]);
        Ok(Cost::between(low, middle, high))
    }

    /// Limits a window to the hits that take so long.
    fn allow(&mut self, ns: Option<u64>) -> Result<(), Error> {
        let hits = ns.map(|ns| (ns as f64 / self.hit_cost.ns.max(1.0)).max(1.0) as u64);
        let mut window = Array::<_, u64>::try_from(self.map_mut("window")?).map_err(told)?;
        window.set(ALLOWED, hits.unwrap_or(0), 0).map_err(told)?;
        self.allowance = hits;
        Ok(())
    }

    /// So many hits are allowed in a window, where there is a limit.
    pub fn allowance(&self) -> Option<u64> {
        self.allowance
    }

    /// What one hit costs, the program's own work for the process left out ([`Watchpoints::times`]).
    pub fn hit_cost(&self) -> Cost {
        self.hit_cost
    }

    fn open_one(&mut self, at: &Breakpoint, on: On) -> Result<PerfEvent, Error> {
        let open = |in_kernel| PerfEvent::open_breakpoint(at, on, in_kernel);
        let event = match open(self.sees_kernel) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied && self.sees_kernel => {
                self.sees_kernel = false;
                open(false)
            }
            event => event,
        };
        let event = event.map_err(|error| refusal(error, at, on))?;
        let program = match self.bpf.program(PROGRAM) {
            Some(Program::PerfEvent(program)) => program.fd(),
            _ => return Err(no_part(PROGRAM)),
        };
        let program = program.map_err(|error| bpf_refusal(LOAD, &error))?;
        let attached = event.run_program(program.as_fd());
        attached.map_err(|source| Error::Io {
            what: "attach a BPF program to a breakpoint".into(),
            source,
        })?;
        Ok(event)
    }

    /// Whether accesses of the kernel's count, on behalf of the process.
    pub fn sees_kernel(&self) -> bool {
        self.sees_kernel
    }

    /// Counts from now on.
    pub fn start(&mut self) -> Result<(), Error> {
        self.execs = Some(attach(&mut self.bpf, EXEC)?);
        self.events.iter().try_for_each(|armed| self.arm(armed))
    }

    fn arm(&self, armed: &Armed) -> Result<(), Error> {
        let on = match self.allowance {
            Some(_) => armed.event.refresh(1),
            None => armed.event.enable(),
        };
        on.map_err(cannot_switch_on)
    }

    /// Begins the next window; what became of the one before.
    pub fn refresh(&mut self) -> Result<Window, Error> {
        let window = self.window()?;
        let mut hits = Array::<_, u64>::try_from(self.map_mut("window")?).map_err(told)?;
        hits.set(HITS, 0, 0).map_err(told)?;
        for armed in &mut self.events {
            // One that did not rest must not be let pass more than the others.
            if std::mem::take(&mut armed.is_resting) {
                armed.event.refresh(1).map_err(cannot_switch_on)?;
            }
        }
        Ok(window)
    }

    /// What has become of the window so far.
    pub fn window(&mut self) -> Result<Window, Error> {
        let hits = Array::<_, u64>::try_from(self.map("window")?).map_err(failed)?;
        let hits = hits.get(&HITS, 0).map_err(failed)?;
        let mut rested = 0;
        let map = self.bpf.map("rests").ok_or_else(|| no_part("rests"))?;
        let rests = PerCpuArray::<_, u64>::try_from(map).map_err(failed)?;
        for armed in &mut self.events {
            let rests = rests.get(&armed.variable, 0).map_err(failed)?;
            let rests = rests.get(armed.cpu as usize).copied().unwrap_or(0);
            armed.is_resting |= rests != armed.rests;
            armed.rests = rests;
            rested |= u64::from(armed.is_resting) << armed.variable;
        }
        Ok(Window { hits, rested })
    }

    /// Ends counting; what was counted can still be read.
    pub fn stop(&mut self) {
        self.events.clear();
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
        let map = HashMap::<_, u64, V>::try_from(self.map_mut(name)?);
        let inserted = map.and_then(|mut map| map.insert(key, value, 0));
        inserted.map_err(told)
    }

    /// What was counted so far.
    pub fn read(&self) -> Result<Vec<WatchRow>, Error> {
        let rows = HashMap::<_, Key, Row>::try_from(self.map("rows")?).map_err(failed)?;
        let rows = rows.iter();
        rows.map(|row| row.map(|(key, row)| layout::row(key, &row)))
            .collect::<Result<_, _>>()
            .map_err(failed)
    }

    /// The hits of a variable so far.
    pub fn hits(&self, variable: u32) -> Result<Hits, Error> {
        let counted = PerCpuArray::<_, Counts>::try_from(self.map("counted")?).map_err(failed)?;
        let counts = counted.get(&variable, 0).map_err(failed)?;
        let mut sum = Hits::default();
        for [all, wanted] in counts.iter().copied() {
            sum.all += all;
            sum.wanted += wanted;
        }
        Ok(sum)
    }

    /// Hits of other processes, at the same address.
    pub fn foreign(&self) -> Result<u64, Error> {
        let all: u64 = programs::cpus::<Cpu>(&self.bpf)?
            .iter()
            .map(|cpu| layout::cpu(cpu).1)
            .sum();
        Ok(all - self.foreign_before)
    }

    /// What was not counted so far, by reason.
    pub fn drops(&self) -> Result<Drops, Error> {
        let (counts, missed) = programs::drops(&self.bpf)?;
        Ok(layout::drops(counts, missed))
    }

    /// What the program took, by its own clock. The trap, which takes far more, is not in it.
    pub fn times(&self) -> Result<ProgramTimes, Error> {
        let cpus = programs::cpus::<Cpu>(&self.bpf)?;
        Ok(ProgramTimes::sum(cpus.iter().map(|cpu| layout::cpu(cpu).0)))
    }

    fn map(&self, name: &str) -> Result<&Map, Error> {
        self.bpf.map(name).ok_or_else(|| no_part(name))
    }

    fn map_mut(&mut self, name: &str) -> Result<&mut Map, Error> {
        self.bpf.map_mut(name).ok_or_else(|| no_part(name))
    }
}

fn failed(error: aya::maps::MapError) -> Error {
    bpf_refusal(READ, &error)
}

fn told(error: aya::maps::MapError) -> Error {
    bpf_refusal(TELL, &error)
}

fn load(wanted: &WatchWanted) -> Result<Ebpf, Error> {
    let mut conditions = [0u64; 4 * MOST_CONDITIONS];
    let cells = conditions.chunks_exact_mut(4).zip(&wanted.conditions);
    for (cell, condition) in cells {
        let (left, _) = layout::operand(condition.left);
        let (right, constant) = layout::operand(condition.right);
        cell.copy_from_slice(&[left, condition.operator as u64, right, constant]);
    }
    let count = wanted.conditions.len().min(MOST_CONDITIONS) as u32;
    let [by_thread, only_changed] = [wanted.by_thread, wanted.only_changed].map(u32::from);
    let mut loader = EbpfLoader::new();
    loader
        .override_global("process", &wanted.pid, true)
        .override_global("by_thread", &by_thread, true)
        .override_global("only_changed", &only_changed, true)
        .override_global("conditions", &count, true)
        .override_global("condition", &conditions[..], true);
    let mut bpf = loader
        .load(WATCH)
        .map_err(|error| bpf_refusal(LOAD, &error))?;
    let program = match bpf.program_mut(PROGRAM) {
        Some(Program::PerfEvent(program)) => program,
        _ => return Err(no_part(PROGRAM)),
    };
    let loaded = program.load();
    loaded.map_err(|error| bpf_refusal(LOAD, &error))?;
    load_program(&mut bpf, EXEC[0], LOAD)?;
    Ok(bpf)
}

fn cannot_switch_on(source: io::Error) -> Error {
    Error::Io {
        what: "switch a breakpoint on".into(),
        source,
    }
}

/// The kernel's answer to a breakpoint, in our words.
fn refusal(source: io::Error, at: &Breakpoint, on: On) -> Error {
    use crate::uprobes::errno::{EACCES, EINVAL, ENODEV, ENOENT, ENOSPC, EOPNOTSUPP, EPERM};
    let Breakpoint { address, len, .. } = *at;
    match source.raw_os_error() {
        Some(ENOSPC) => Error::NoSlot {
            cpu: match on {
                On::Cpu(cpu) => Some(cpu),
                On::Thread(_) => None,
            },
        },
        Some(EPERM | EACCES) => Error::BreakpointDenied,
        Some(ENODEV | ENOENT | EOPNOTSUPP) => Error::NoBreakpoints,
        Some(EINVAL) => Error::BadBreakpoint { address, len },
        _ => Error::Io {
            what: format!("cannot watch {address:#x}"),
            source,
        },
    }
}
