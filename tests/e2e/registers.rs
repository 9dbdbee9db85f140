//! Our accounting of debug registers must grant and refuse what the kernel does, for random events, replacements and
//! debuggers.

use std::collections::BTreeMap;
use std::process::{Child, Command};
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use tiptoe_breakpoint::{
    Accounting, Error, Geometry, Kind, Registers, Replacement, Request, Target, Wait,
};
use tiptoe_tests::breakpoint::{Access, Breakpoint, RegisterLock, poke, trace};
use tiptoe_tests::{is_root, scaled, skipped};

const STEPS: u32 = 40;
/// Few threads suffice, because the accounting treats all threads alike.
const THREADS: usize = 3;
const ENOSPC: i32 = 28;

/// Never waits for a lock, because only one thread makes requests.
struct NoWait;

impl Wait for NoWait {
    const LOOKS: u32 = 0;
    fn park(&self, _: &AtomicU64, _: u64) {
        panic!("another thread holds the lock");
    }
    fn unpark(&self, _: &AtomicU64) {}
    fn now_ns(&self) -> u64 {
        0
    }
}

/// A sleeping child, traced (ptrace) before its debug registers are written.
struct Idle {
    child: Child,
    is_traced: bool,
    poked: Vec<Request>,
}

impl Idle {
    fn start() -> Idle {
        let child = Command::new("sleep").arg("infinity").spawn();
        Idle {
            child: child.expect("coreutils"),
            is_traced: false,
            poked: Vec::new(),
        }
    }

    fn tid(&self) -> i32 {
        self.child.id().cast_signed()
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) as usize % end
    }
}

struct Granted {
    request: Request,
    access: Access,
    breakpoint: Breakpoint,
}

struct Comparison<'a> {
    ours: Accounting<'a, NoWait>,
    threads: Vec<Idle>,
    cpus: u32,
    granted: Vec<Granted>,
    counts: BTreeMap<&'static str, (u64, u64)>,
    request_count: u64,
    seed: u64,
}

impl Comparison<'_> {
    fn request(&mut self, random: &mut Random) -> (Request, Access) {
        let cpu = random.below(self.cpus as usize) as u32;
        let task = self.threads[random.below(self.threads.len())].tid() as u64;
        let target = match random.below(10) {
            0..5 => Target::Task { task, cpu: None },
            5..8 => Target::Task {
                task,
                cpu: Some(cpu),
            },
            _ => Target::Cpu(cpu),
        };
        let (access, kind) = match random.below(4) {
            0 => (Access::Execute, Kind::Instruction),
            1 => (Access::Any, Kind::Data),
            _ => (Access::Write, Kind::Data),
        };
        self.request_count += 1;
        (Request::new(target, kind, self.request_count), access)
    }

    fn step(&mut self, random: &mut Random) {
        let is_any_held = !self.granted.is_empty();
        match random.below(24) {
            0..7 if is_any_held => {
                let held = self.take(random);
                drop(held.breakpoint);
                self.ours.release(&held.request).expect("held");
            }
            7..10 if is_any_held => self.modify(random),
            10..12 if is_any_held => self.modify_several(random),
            12 if is_any_held => self.change(random),
            13..15 => self.poke(random),
            15 => self.end_a_thread(random),
            _ => self.reserve(random),
        }
    }

    fn take(&mut self, random: &mut Random) -> Granted {
        let at = random.below(self.granted.len());
        self.granted.swap_remove(at)
    }

    fn reserve(&mut self, random: &mut Random) {
        let (request, access) = self.request(random);
        let ours = match random.below(2) {
            0 => self.ours.reserve(&request),
            _ => self.ours.try_reserve(&request),
        };
        let theirs = open(&request, access, ours.is_ok());
        if let Some(breakpoint) = self.compare("reserve", &[request], ours, theirs) {
            self.granted.push(Granted {
                request,
                access,
                breakpoint,
            });
        }
    }

    /// Replaces a request: closes the kernel's event, and opens another before any thread takes the register.
    fn modify(&mut self, random: &mut Random) {
        let old = self.take(random);
        let (request, access) = self.request(random);
        let ours = self.ours.modify(&old.request, &request);
        drop(old.breakpoint);
        let theirs = open(&request, access, ours.is_ok());
        let held = match self.compare("modify", &[old.request, request], ours, theirs) {
            Some(breakpoint) => Granted {
                request,
                access,
                breakpoint,
            },
            None => Granted {
                breakpoint: open(&old.request, old.access, true).expect("it was free"),
                ..old
            },
        };
        self.granted.push(held);
    }

    fn modify_several(&mut self, random: &mut Random) {
        let count = (2 + random.below(2)).min(self.granted.len());
        let olds: Vec<Granted> = (0..count).map(|_| self.take(random)).collect();
        let news: Vec<_> = (0..count).map(|_| self.request(random)).collect();
        let pairs = olds.iter().zip(&news);
        let all: Vec<Replacement> = pairs
            .map(|(old, (new, _))| Replacement {
                old: old.request,
                new: *new,
            })
            .collect();
        let ours = self.ours.modify_all(&all);
        let olds = olds.into_iter().map(|old| {
            let Granted {
                request,
                access,
                breakpoint,
            } = old;
            (request, access, Some(breakpoint))
        });
        let mut olds: Vec<_> = olds.collect();
        let mut opened = Vec::new();
        let mut theirs = Ok(());
        for (old, (request, access)) in olds.iter_mut().zip(&news) {
            old.2 = None;
            match open(request, *access, ours.is_ok()) {
                Ok(breakpoint) => opened.push(Granted {
                    request: *request,
                    access: *access,
                    breakpoint,
                }),
                Err(error) => {
                    theirs = Err(error);
                    break;
                }
            }
        }
        let requests: Vec<Request> = all.iter().flat_map(|one| [one.old, one.new]).collect();
        if self
            .compare("modify several", &requests, ours, theirs)
            .is_none()
        {
            while opened.pop().is_some() {}
            opened = olds
                .into_iter()
                .map(|(request, access, breakpoint)| {
                    let again = || open(&request, access, true).expect("it was free");
                    Granted {
                        breakpoint: breakpoint.unwrap_or_else(again),
                        request,
                        access,
                    }
                })
                .collect();
        }
        self.granted.append(&mut opened);
    }

    fn change(&mut self, random: &mut Random) {
        let old = self.take(random);
        let (Request { kind, .. }, access) = self.request(random);
        let request = Request {
            kind,
            ..old.request
        };
        let ours = self.ours.modify(&old.request, &request);
        let theirs = old.breakpoint.change(access);
        let held = match self.compare("change", &[old.request, request], ours, theirs) {
            Some(()) => Granted {
                request,
                access,
                ..old
            },
            None => old,
        };
        self.granted.push(held);
    }

    fn poke(&mut self, random: &mut Random) {
        let at = random.below(self.threads.len());
        let thread = &mut self.threads[at];
        let (tid, number) = (thread.tid(), thread.poked.len());
        if number == 4 {
            return;
        }
        if !std::mem::replace(&mut thread.is_traced, true) {
            trace(tid).expect("our child");
        }
        self.request_count += 1;
        let target = Target::Task {
            task: tid as u64,
            cpu: None,
        };
        let request = Request::new(target, Kind::Data, self.request_count);
        let ours = self.ours.try_reserve(&request);
        let theirs = patiently(ours.is_ok(), || poke(tid, number));
        if self.compare("ptrace", &[request], ours, theirs).is_some() {
            self.threads[at].poked.push(request);
        }
    }

    fn end_a_thread(&mut self, random: &mut Random) {
        let at = random.below(self.threads.len());
        let ended = std::mem::replace(&mut self.threads[at], Idle::start());
        self.release_all_of(ended);
    }

    fn release_all_of(&mut self, mut thread: Idle) {
        let id = thread.tid() as u64;
        let of = |held: &mut Granted| matches!(held.request.target, Target::Task { task, .. } if task == id);
        let held: Vec<Granted> = self.granted.extract_if(.., of).collect();
        let requests = held.into_iter().map(|held| held.request);
        for request in requests.chain(std::mem::take(&mut thread.poked)) {
            self.ours.release(&request).expect("held");
        }
    }

    fn compare<T: std::fmt::Debug>(
        &mut self,
        step: &'static str,
        requests: &[Request],
        ours: Result<(), Error>,
        theirs: std::io::Result<T>,
    ) -> Option<T> {
        let (taken, granted) = self.counts.entry(step).or_default();
        *taken += 1;
        match (ours, theirs) {
            (Ok(()), Ok(done)) => {
                *granted += 1;
                Some(done)
            }
            (Err(Error::NoSlot(_)), Err(error)) if error.raw_os_error() == Some(ENOSPC) => None,
            (ours, theirs) => {
                let held: Vec<_> = self.granted.iter().map(|held| held.request).collect();
                let poked: Vec<_> = self.threads.iter().map(|thread| &thread.poked).collect();
                panic!(
                    "sequence {}, {step} {requests:?}: ours {ours:?}, the kernel's {theirs:?}, held: {held:#?}, by \
                     debuggers: {poked:#?}",
                    self.seed
                );
            }
        }
    }

    fn end_sequence(&mut self) {
        for held in std::mem::take(&mut self.granted) {
            drop(held.breakpoint);
            self.ours.release(&held.request).expect("held");
        }
        for at in 0..self.threads.len() {
            if !self.threads[at].poked.is_empty() {
                let ended = std::mem::replace(&mut self.threads[at], Idle::start());
                self.release_all_of(ended);
            }
        }
        assert!(self.ours.is_empty(), "after sequence {}", self.seed);
    }
}

fn open(request: &Request, access: Access, is_granted: bool) -> std::io::Result<Breakpoint> {
    let (thread, cpu) = match request.target {
        Target::Task { task, cpu } => (Some(task as i32), cpu),
        Target::Cpu(cpu) => (None, Some(cpu)),
    };
    patiently(is_granted, || Breakpoint::open(thread, cpu, access))
}

/// Retries, because another test's forked child keeps copies of our descriptors open until its exec.
fn patiently<T>(is_free: bool, act: impl Fn() -> std::io::Result<T>) -> std::io::Result<T> {
    let mut done = act();
    let until = Instant::now() + PATIENCE;
    while is_free && is_full(&done) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
        done = act();
    }
    done
}

const PATIENCE: Duration = Duration::from_secs(2);

fn is_full<T>(opened: &std::io::Result<T>) -> bool {
    let error = opened.as_ref().err();
    error.is_some_and(|error| error.raw_os_error() == Some(ENOSPC))
}

fn refused() -> Option<String> {
    if !is_root() {
        return Some("not root".to_owned());
    }
    let error = Breakpoint::open(None, Some(0), Access::Write).err()?;
    (error.raw_os_error() != Some(ENOSPC)).then(|| format!("perf_event_open: {error}"))
}

fn registers(thread: i32) -> Registers {
    let of = |access| Breakpoint::all(Some(thread), None, access);
    let instruction = of(Access::Execute).len() as u32;
    let data = of(Access::Write);
    match of(Access::Execute).len() {
        0 => Registers::Mixed(data.len() as u32),
        _ => Registers::Separate {
            data: data.len() as u32,
            instruction,
        },
    }
}

#[test]
fn every_answer_is_the_kernels() {
    let _turn = RegisterLock::wait();
    if let Some(why) = refused() {
        skipped("the kernel's accounting of debug registers", &why);
        return;
    }
    let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u32);
    let threads: Vec<Idle> = (0..THREADS).map(|_| Idle::start()).collect();
    let registers = registers(threads[0].tid());
    let geometry = Geometry::new(cpus, registers, 256).expect("a machine has some");
    for cpu in 0..cpus {
        let slots = geometry.slots(Kind::Data);
        let mut free = 0;
        let until = Instant::now() + PATIENCE;
        while free < slots && Instant::now() < until {
            free = Breakpoint::all(None, Some(cpu), Access::Write).len() as u32;
        }
        assert_eq!(
            free, slots,
            "another program (gdb, perf, another tiptoe) holds debug registers: {free} of {slots} \
             are free on cpu {cpu}; end it and run this test again"
        );
    }
    let words: Vec<AtomicU64> = (0..geometry.words()).map(|_| AtomicU64::new(0)).collect();
    let mut both = Comparison {
        ours: Accounting::new(geometry, &words, &NoWait).expect("enough words"),
        threads,
        cpus: cpus.min(3),
        granted: Vec::new(),
        counts: BTreeMap::new(),
        request_count: 0,
        seed: 0,
    };
    let sequences = scaled(200_000);
    for seed in 1..=sequences {
        both.seed = seed;
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        (0..STEPS).for_each(|_| both.step(&mut random));
        both.end_sequence();
    }
    println!(
        "{sequences} sequences, {} requests, {registers:?}, steps (taken, granted): {:?}",
        both.request_count, both.counts
    );
}
