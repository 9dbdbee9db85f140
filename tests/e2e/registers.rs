//! Compares our accounting of debug registers with the kernel's: both must give the same answer to
//! every request of random sequences.

use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tiptoe_breakpoint::{Accounting, Error, Geometry, Kind, Registers, Request, Target, Wait};
use tiptoe_tests::breakpoint::{Access, Breakpoint, RegisterLock};
use tiptoe_tests::{is_root, scaled, skipped};

const STEPS: u32 = 40;
/// The number of threads. A few are enough, because the accounting treats all threads alike.
const THREADS: usize = 3;
const ENOSPC: i32 = 28;

/// A `Wait` that must never be used, because only one thread makes requests.
struct Alone;

impl Wait for Alone {
    const LOOKS: u32 = 0;
    fn park(&self, _: &AtomicU64, _: u64) {
        panic!("another thread holds the lock");
    }
    fn unpark(&self, _: &AtomicU64) {}
    fn now_ns(&self) -> u64 {
        0
    }
}

struct Idle {
    tid: i32,
    end: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Idle {
    fn start() -> Idle {
        let (tell, told) = channel();
        let (end, ended) = channel();
        let thread = std::thread::spawn(move || {
            // SAFETY: gettid has no arguments and no effects.
            tell.send(unsafe { libc::gettid() }).expect("asked for");
            let _ = ended.recv();
        });
        Idle {
            tid: told.recv().expect("told"),
            end: Some((end, thread)),
        }
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        if let Some((end, thread)) = self.end.take() {
            drop(end);
            thread.join().expect("idle");
        }
    }
}

/// An xorshift generator; the seed identifies the sequence.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) as usize % end
    }
}

/// Our accounting, the kernel's threads, and the requests that both granted.
struct Both<'a> {
    ours: Accounting<'a, Alone>,
    threads: Vec<Idle>,
    cpus: u32,
    granted: Vec<(Request, Breakpoint)>,
    request_count: u64,
    seed: u64,
}

impl Both<'_> {
    fn request(&mut self, random: &mut Random) -> (Request, Access) {
        let cpu = random.below(self.cpus as usize) as u32;
        let task = self.threads[random.below(self.threads.len())].tid as u64;
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
        if random.below(3) == 0 && !self.granted.is_empty() {
            let (request, breakpoint) = self.granted.swap_remove(random.below(self.granted.len()));
            drop(breakpoint);
            self.ours.release(&request).expect("held");
            return;
        }
        let (request, access) = self.request(random);
        let (thread, cpu) = match request.target {
            Target::Task { task, cpu } => (Some(task as i32), cpu),
            Target::Cpu(cpu) => (None, Some(cpu)),
        };
        let ours = self.ours.reserve(&request);
        let mut theirs = Breakpoint::open(thread, cpu, access);
        // A released register may still be taken for a moment, because a child that another test forks has copies of
        // our descriptors until its exec.
        let until = Instant::now() + PATIENCE;
        while ours.is_ok() && is_full(&theirs) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
            theirs = Breakpoint::open(thread, cpu, access);
        }
        match (ours, theirs) {
            (Ok(()), Ok(breakpoint)) => self.granted.push((request, breakpoint)),
            (Err(Error::NoSlot(_)), Err(error)) if error.raw_os_error() == Some(ENOSPC) => {}
            (ours, theirs) => {
                let held: Vec<_> = self.granted.iter().map(|(held, _)| held).collect();
                panic!(
                    "sequence {}, {request:?}: ours {ours:?}, the kernel's {theirs:?}, held: {held:#?}",
                    self.seed
                );
            }
        }
    }
}

/// The time for which such copies may keep a released register.
const PATIENCE: Duration = Duration::from_secs(2);

fn is_full(opened: &std::io::Result<Breakpoint>) -> bool {
    let error = opened.as_ref().err();
    error.is_some_and(|error| error.raw_os_error() == Some(ENOSPC))
}

/// Returns why the kernel cannot be compared with, if it cannot.
fn refused() -> Option<String> {
    if !is_root() {
        return Some("not root".to_owned());
    }
    let error = Breakpoint::open(None, Some(0), Access::Write).err()?;
    (error.raw_os_error() != Some(ENOSPC)).then(|| format!("perf_event_open: {error}"))
}

/// Finds out how many registers a thread can have of each kind, one kind after the other. This shows whether both kinds
/// share the registers.
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
    let registers = registers(threads[0].tid);
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
            "somebody else (gdb, perf, another tiptoe) holds debug registers: {free} of {slots} \
             are free on cpu {cpu}; end it and run this test again"
        );
    }
    let words: Vec<AtomicU64> = (0..geometry.words()).map(|_| AtomicU64::new(0)).collect();
    let mut both = Both {
        ours: Accounting::new(geometry, &words, &Alone).expect("enough words"),
        threads,
        cpus: cpus.min(3),
        granted: Vec::new(),
        request_count: 0,
        seed: 0,
    };
    let sequences = scaled(200_000);
    for seed in 1..=sequences {
        both.seed = seed;
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        (0..STEPS).for_each(|_| both.step(&mut random));
        for (request, breakpoint) in std::mem::take(&mut both.granted) {
            drop(breakpoint);
            both.ours.release(&request).expect("held");
        }
        assert!(both.ours.is_empty(), "after sequence {seed}");
    }
    println!(
        "{sequences} sequences, {} requests, {registers:?}",
        both.request_count
    );
}
