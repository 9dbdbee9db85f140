//! Trampolines that follow a call to its return without the agent (our library), interrupted at each instruction.

use std::hint::black_box;
use std::ops::Range;

use tiptoe_patch::{Body, Hits, Patch};
use tiptoe_wire::arena::WAYS;
use tiptoe_wire::calls::{FRAME_BYTES, words};

use crate::machine::{Machine, Registers, write};
use crate::random::Random;

const SLOT: u32 = 20;
const FRAME: usize = FRAME_BYTES as usize / 8;
const CREDIT: u64 = 1 << 40;
/// push %rbx; mov %rdi,%rax; add %rsi,%rax; pop %rbx; ret
const FUNCTION: [u8; 9] = [0x53, 0x48, 0x89, 0xf8, 0x48, 0x01, 0xf0, 0x5b, 0xc3];
const ELSEWHERE: u64 = 0x1234;

struct FollowedFunction {
    machine: Machine,
    frames: Vec<u64>,
    patch: Patch,
    at: u64,
    random: Random,
    is_timed: bool,
}

impl FollowedFunction {
    fn new(seed: u64, timed: bool) -> FollowedFunction {
        let mut machine = Machine::new();
        let body = Body::Call {
            slot: SLOT,
            probe: 3,
            timed,
            hits: Hits::default(),
        };
        let (at, patch) = machine.patched(&FUNCTION, &body);
        // No call in progress.
        let frames = [0, 0x5555, 0x6666, 0x7777].repeat(300);
        let mut followed = FollowedFunction {
            machine,
            frames,
            patch,
            at,
            random: Random(seed),
            is_timed: timed,
        };
        followed.machine.slab[0] = CREDIT;
        followed
    }

    /// Returns where frames begin: not at a page's end, where the trampoline calls the agent.
    fn end(&self) -> u64 {
        let first = self.frames.as_ptr() as u64;
        first.next_multiple_of(4096) + u64::from(FRAME_BYTES)
    }

    fn comes_from(&self, call: impl FnOnce()) -> u64 {
        self.machine.set_frames(0);
        call();
        self.machine.set_frames(self.end());
        self.machine.calls().came
    }

    fn set_callers(&self, callers: [u64; WAYS]) {
        for (way, from) in callers.into_iter().enumerate() {
            write(self.patch.callers + 8 * way as u64, &from.to_le_bytes());
        }
    }

    fn code(&self) -> [Range<u64>; 2] {
        let own = self.at..self.at + FUNCTION.len() as u64;
        let end = self.patch.trampoline + self.patch.code.len() as u64;
        [own, self.patch.trampoline..end]
    }

    /// Omits the stack pointer, because the call returns only with the right one.
    fn assert_kept(&self, found: &Registers, given: &Registers) {
        let mut expected = *given;
        expected[0] = given[7].wrapping_add(given[6]);
        for number in (0..16).filter(|number| *number != 4) {
            assert_eq!(found[number], expected[number], "register {number}");
        }
    }

    fn assert_followed(&self, calls: u64, before: &crate::machine::Calls) {
        let now = self.machine.calls();
        let returns = match self.is_timed {
            true => now.timed - before.timed,
            false => self.machine.count((SLOT + words::RETURNS) as usize),
        };
        let counted = self.machine.count((SLOT + words::CALLS) as usize);
        assert_eq!((counted, returns, now.slow), (calls, calls, before.slow));
        assert_eq!(self.machine.count(0), CREDIT - calls);
        assert_eq!(self.machine.frames(), self.end(), "back where it was");
        // SAFETY: the address is in `frames`, which only generated code on this thread writes.
        let frame = unsafe { (self.end() as *const [u64; FRAME]).read_volatile() };
        assert_eq!([frame[0], frame[1], frame[3]], [0, SLOT.into(), 0]);
    }

    fn reset(&mut self) {
        self.machine.slab.fill(0);
        self.machine.slab[0] = CREDIT;
    }
}

#[test]
fn calls_from_known_places_are_followed_without_the_agent() {
    for (way, timed) in (0..WAYS).flat_map(|way| [(way, false), (way, true)]) {
        let mut followed = FollowedFunction::new(21, timed);
        let registers = followed.random.registers(0);
        let (machine, at) = (&followed.machine, followed.at);
        let from = followed.comes_from(|| _ = machine.run(at, &registers));
        let mut callers = [ELSEWHERE; WAYS];
        callers[way] = from;
        followed.set_callers(callers);
        followed.reset();
        let before = followed.machine.calls();
        for _ in 0..100 {
            let registers = followed.random.registers(0);
            let found = followed.machine.run(followed.at, &registers);
            followed.assert_kept(&found, &registers);
        }
        followed.assert_followed(100, &before);
    }
}

#[inline(never)]
fn handler(function: u64) {
    // SAFETY: the function takes two numbers and returns one.
    let function: extern "C" fn(u64, u64) -> u64 =
        unsafe { std::mem::transmute(function as usize) };
    let mut number = 7;
    while black_box(number) < 9 {
        assert_eq!(function(number, 8), number + 8);
        number += 1;
    }
}

#[test]
fn a_handler_may_be_followed_at_any_instruction() {
    for timed in [false, true] {
        let mut followed = FollowedFunction::new(22, timed);
        let code = followed.code();
        let registers = followed.random.registers(0);
        let (machine, at) = (&followed.machine, followed.at);
        let from = followed.comes_from(|| _ = machine.run(at, &registers));
        let handlers = followed.comes_from(|| handler(at));
        followed.set_callers([from, handlers]);
        for nth in 0.. {
            followed.reset();
            let registers = followed.random.registers(0);
            let (machine, at) = (&followed.machine, followed.at);
            let before = machine.calls();
            let interrupted =
                machine.run_interrupted((at, &registers), (nth, &code), (handler, at));
            let (found, came) = interrupted;
            followed.assert_kept(&found, &registers);
            followed.assert_followed(if came { 3 } else { 1 }, &before);
            if !came {
                assert!(nth > 40, "each of its instructions");
                break;
            }
        }
    }
}
