//! Runs generated code: registers in, registers out.

mod assembly;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, Once};

use assembly::{
    tiptoe_test_calls, tiptoe_test_cold, tiptoe_test_frames, tiptoe_test_hook, tiptoe_test_run,
    tiptoe_test_set_frames, tiptoe_test_set_tls, tiptoe_test_slow, tiptoe_test_state,
    tiptoe_test_time,
};
use tiptoe_patch::{Abi, Body, FunctionCode, Patch, Planner, Shape, Space, shape};
use tiptoe_wire::AgentAddresses;
use tiptoe_wire::arena::prologue;

/// The registers by hardware number, then the flags.
pub type Registers = [u64; 17];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    pub cold: u64,
    pub slot: u64,
    pub hook: u64,
    pub nr: i64,
    pub followed: u64,
    pub came: u64,
    pub slow: u64,
    pub timed: u64,
}

static RUNNING: Mutex<()> = Mutex::new(());
static RESUME: Mutex<Option<HashMap<u64, u64>>> = Mutex::new(None);
static FOREIGN: Mutex<Option<ForeignBreakpoint>> = Mutex::new(None);
static STEPS: Mutex<Option<Steps>> = Mutex::new(None);
static LAST: Mutex<Option<(i32, u64)>> = Mutex::new(None);
/// Where a thread continues after a fault, or 0.
pub static RECOVERY: AtomicU64 = AtomicU64::new(0);
pub static RECOVERED: AtomicI32 = AtomicI32::new(0);
static NEXT: AtomicU64 = AtomicU64::new(0x10_8000_0000);

struct Steps {
    code: Vec<Range<u64>>,
    left: usize,
    has_entered: bool,
    handler: Option<fn(u64)>,
    what: u64,
}

const TRAP_FLAG: u64 = 0x100;

struct ForeignBreakpoint {
    site: u64,
    original: Vec<u8>,
    /// The bytes at the site while no thread steps over it.
    armed: Vec<u8>,
    is_stepping: bool,
}

pub const SLOTS: usize = 4096;
const CODE_LEN: u64 = 1 << 20;

pub struct Machine {
    pub planner: Planner,
    callers: usize,
    pub at: u64,
    pub data: Range<u64>,
    descriptor: Box<[u64; 1]>,
    /// %fs offset of a word that is 0.
    pub recall: i32,
    pub slab: Vec<u64>,
    gate: Box<AtomicU64>,
    _running: MutexGuard<'static, ()>,
}

impl Machine {
    pub fn new() -> Machine {
        Machine::with_room(|base| {
            Vec::from([base - (2 << 30)..base, base + (1 << 30)..base + (2 << 30)])
        })
    }

    pub fn with_room(preferred: impl FnOnce(u64) -> Vec<Range<u64>>) -> Machine {
        let running = RUNNING
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        handle_traps();
        let base = NEXT.fetch_add(16 << 30, Ordering::Relaxed);
        map(base, CODE_LEN);
        let slab = vec![0; SLOTS];
        let descriptor = Box::new([slab.as_ptr() as u64]);
        // SAFETY: the descriptor outlives every run.
        let tls = unsafe { tiptoe_test_set_tls(descriptor.as_ptr()) };
        let gate = Box::new(AtomicU64::new(1));
        let abi = Abi {
            tls: tls as i64 as i32,
            frames: tls as i64 as i32 + 8,
            agent: AgentAddresses {
                cold_entry: tiptoe_test_cold as *const () as u64,
                hook_entry: tiptoe_test_hook as *const () as u64,
                slow_entry: tiptoe_test_slow as *const () as u64,
                time_entry: tiptoe_test_time as *const () as u64,
                futex_entry: tiptoe_test_hook as *const () as u64,
                gate: gate.as_ptr() as u64,
                thunks: 0,
            },
        };
        // SAFETY: this thread's word; 0 means no frames.
        unsafe { tiptoe_test_set_frames(0) };
        let planner = Planner::new(
            abi,
            Space {
                preferred: preferred(base),
                ..Space::default()
            },
        );
        let data = base + CODE_LEN - 4096..base + CODE_LEN;
        Machine {
            planner,
            callers: 0,
            at: base,
            recall: tls as i64 as i32 + 8,
            data,
            descriptor,
            slab,
            gate,
            _running: running,
        }
    }

    pub fn room(&mut self, skew: u64) -> u64 {
        self.at += 512;
        assert!(self.at + 512 < self.data.start, "the machine is full");
        self.at + skew
    }

    pub fn counters(&mut self, there: bool) {
        self.descriptor[0] = if there { self.slab.as_ptr() as u64 } else { 0 };
    }

    pub fn slots(&mut self, count: usize) {
        self.slab = vec![0; count];
        self.counters(true);
    }

    pub fn set_frames(&self, end: u64) {
        // SAFETY: the caller's frames outlive every run, with room above.
        unsafe { tiptoe_test_set_frames(end) };
    }

    pub fn frames(&self) -> u64 {
        // SAFETY: a word of this thread.
        unsafe { tiptoe_test_frames() }
    }

    pub fn count_at(&mut self, slab: u64) {
        self.descriptor[0] = slab;
    }

    pub fn gate(&self, open: bool) {
        self.gate.store(open.into(), Ordering::Relaxed); // Relaxed: only this thread's code reads it
    }

    pub fn stack_cell(&self) -> u64 {
        self.data.start + 2048
    }

    pub fn count(&self, slot: usize) -> u64 {
        // SAFETY: an element of the slab, which generated code wrote on this thread.
        unsafe { self.slab.as_ptr().add(slot).read_volatile() }
    }

    pub fn patched(&mut self, code: &[u8], body: &Body) -> (u64, Patch) {
        self.patched_as(code, body, |shape| shape)
    }

    pub fn patched_as(
        &mut self,
        code: &[u8],
        body: &Body,
        other: impl FnOnce(Shape) -> Shape,
    ) -> (u64, Patch) {
        let at = self.room(0);
        write(at, code);
        let function = FunctionCode {
            address: at,
            bytes: code,
            size: code.len(),
        };
        let shape = other(shape(&function, 0).expect("plain"));
        let patch = self.planner.plan(&shape, body, Vec::new).expect("room");
        self.apply(&patch);
        (at, patch)
    }

    pub fn apply(&mut self, patch: &Patch) {
        for arena in self.planner.new_arenas() {
            map(arena.base, tiptoe_patch::ARENA_LEN);
            write(prologue(arena.base), &arena.prologue);
        }
        for arena in &self.planner.caller_arenas()[self.callers..] {
            map(arena.base, tiptoe_patch::ARENA_LEN);
            self.callers += 1;
        }
        write(patch.trampoline, &patch.code);
        let mut resume = RESUME.lock().expect("no test panics with it");
        for head in &patch.heads {
            let to = patch.trampoline + u64::from(head.resume);
            let at = patch.site + u64::from(head.offset);
            resume.get_or_insert_default().insert(at, to);
        }
        if let Some(island) = &patch.island {
            write(island.address, &island.patched);
        }
        write(patch.site, &patch.patched[..patch.len.into()]);
    }

    pub fn arm_foreign(&self, patch: &Patch) {
        write(patch.site, &[0xcc]);
        let mut armed = patch.patched[..patch.len.into()].to_vec();
        armed[0] = 0xcc;
        *FOREIGN.lock().expect("no test panics with it") = Some(ForeignBreakpoint {
            site: patch.site,
            original: patch.original[..patch.len.into()].to_vec(),
            armed,
            is_stepping: false,
        });
    }

    pub fn disarm_foreign(&self, patch: &Patch) {
        write(patch.site, &patch.original[..1]);
        *FOREIGN.lock().expect("no test panics with it") = None;
    }

    /// Returns the signal that `code` raises, and the offset that the kernel reports.
    pub fn fault(&self, at: u64, code: &[u8], registers: &Registers) -> Option<(i32, u64)> {
        write(at, code);
        write(at + 32, &[0xc3]);
        {
            let mut resume = RESUME.lock().expect("no test panics with it");
            let resume = resume.get_or_insert_default();
            resume.extend([(at, at + 32), (at + 1, at + 32)]);
        }
        LAST.lock().expect("no test panics with it").take();
        self.run(at, registers);
        let last = LAST.lock().expect("no test panics with it").take();
        last.map(|(signal, address)| (signal, address - at))
    }

    pub fn remove(&self, patch: &Patch) {
        write(patch.site, &patch.original[..patch.len.into()]);
    }

    pub fn run(&self, target: u64, registers: &Registers) -> Registers {
        // SAFETY: `RUNNING` excludes other threads. Generated code preserves the stack.
        unsafe {
            tiptoe_test_state[..17].copy_from_slice(registers);
            tiptoe_test_state[17] = target;
            tiptoe_test_state[18] = self.stack_cell();
            tiptoe_test_run();
            let mut out = [0; 17];
            out.copy_from_slice(&tiptoe_test_state[..17]);
            out
        }
    }

    /// Runs code, and calls `handler` with `what` before the `nth` instruction inside `code`. Also returns whether that
    /// instruction was reached.
    pub fn run_interrupted(
        &self,
        (target, registers): (u64, &Registers),
        (nth, code): (usize, &[Range<u64>]),
        (handler, what): (fn(u64), u64),
    ) -> (Registers, bool) {
        *STEPS.lock().expect("no test panics with it") = Some(Steps {
            code: code.to_vec(),
            left: nth,
            has_entered: false,
            handler: Some(handler),
            what,
        });
        let mut registers = *registers;
        registers[16] |= TRAP_FLAG;
        let out = self.run(target, &registers);
        let steps = STEPS.lock().expect("no test panics with it").take();
        (out, steps.is_some_and(|steps| steps.handler.is_none()))
    }

    pub fn calls(&self) -> Calls {
        // SAFETY: `RUNNING` is held, so no thread writes the counts.
        let [cold, slot, hook, nr, followed, came, slow, timed] = unsafe { tiptoe_test_calls };
        Calls {
            cold,
            slot,
            hook,
            nr: nr as i64,
            followed,
            came,
            slow,
            timed,
        }
    }
}

pub fn write(at: u64, bytes: &[u8]) {
    // SAFETY: tests write only mappings of `map`.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), at as *mut u8, bytes.len()) };
}

pub fn read(at: u64, len: usize) -> Vec<u8> {
    // SAFETY: tests read only mappings of `map`.
    unsafe { std::slice::from_raw_parts(at as *const u8, len) }.to_vec()
}

fn map(at: u64, len: u64) {
    let all = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: the mapping replaces none.
    let got = unsafe { libc::mmap(at as *mut _, len as usize, all, flags, -1, 0) };
    assert_eq!(got as u64, at, "the range is free");
}

fn step(registers: &mut [libc::greg_t]) -> bool {
    let due = {
        let mut steps = STEPS.lock().expect("no test panics with it");
        let Some(steps) = steps.as_mut() else {
            return false;
        };
        let at = registers[libc::REG_RIP as usize] as u64;
        let inside = steps.code.iter().any(|range| range.contains(&at));
        if steps.has_entered && !inside {
            registers[libc::REG_EFL as usize] &= !(TRAP_FLAG as i64);
        }
        steps.has_entered |= inside;
        match (inside, steps.left) {
            (true, 0) => steps.handler.take().map(|handler| (handler, steps.what)),
            (true, _) => {
                steps.left -= 1;
                None
            }
            _ => None,
        }
    };
    if let Some((handler, what)) = due {
        handler(what);
    }
    true
}

impl ForeignBreakpoint {
    /// Steps over the original instruction, then sets the breakpoint again. Returns `false` for other traps.
    fn step(&mut self, at: u64, registers: &mut [libc::greg_t]) -> bool {
        if self.is_stepping {
            write(self.site, &self.armed);
            registers[libc::REG_EFL as usize] &= !(TRAP_FLAG as i64);
        } else if at == self.site {
            write(self.site, &self.original);
            registers[libc::REG_RIP as usize] = at as i64;
            registers[libc::REG_EFL as usize] |= TRAP_FLAG as i64;
        } else {
            return false;
        }
        self.is_stepping = !self.is_stepping;
        true
    }
}

extern "C" fn on_trap(signal: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel gives a valid context to an SA_SIGINFO handler.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    let registers = &mut context.uc_mcontext.gregs;
    if signal == libc::SIGTRAP && step(registers) {
        return;
    }
    let at = registers[libc::REG_RIP as usize] as u64 - u64::from(signal == libc::SIGTRAP);
    let mut foreign = FOREIGN.lock().expect("no test panics with it");
    if foreign.as_mut().is_some_and(|f| f.step(at, registers)) {
        return;
    }
    *LAST.lock().expect("no test panics with it") = Some((signal, at));
    let rip = &mut registers[libc::REG_RIP as usize];
    let resume = RESUME.lock().expect("no test panics with it");
    match resume.as_ref().and_then(|r| r.get(&at)) {
        Some(&to) => *rip = to as i64,
        None => match RECOVERY.load(Ordering::Relaxed) {
            0 => std::process::abort(),
            to => {
                RECOVERED.store(signal, Ordering::Relaxed);
                *rip = to as i64;
                registers[libc::REG_EFL as usize] &= !(TRAP_FLAG as i64);
            }
        },
    }
}

fn handle_traps() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        for signal in [libc::SIGTRAP, libc::SIGILL] {
            handle(signal);
        }
    });
}

pub fn handle(signal: i32) {
    // SAFETY: the handler takes locks that no generated code holds, and runs only for that code's faults.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_trap as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        assert_eq!(libc::sigaction(signal, &action, std::ptr::null_mut()), 0);
    }
}
