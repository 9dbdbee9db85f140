//! Every call must count once, as returned, left or still inside, whatever interrupts its thread and whichever thread
//! takes its frame (record). No call may get another call's time.
//!
//! [`Thread`] takes the steps of trampolines (`code/patch`'s `timed.rs`). A frame's `thunk` is the number of its probe.

extern crate std;
use std::boxed::Box;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::AtomicBool;
use std::vec::Vec;

use loom::thread::spawn;
use tiptoe_sync::mutant::{Edge, interrupt, lose, was_missed};

use super::{leak, leak_many};
use crate::frames::{Frame, Frames, WORDS};
use crate::primitive::{AtomicU64, Ordering::*};

#[derive(Default)]
struct Words {
    calls: AtomicU64,
    returns: AtomicU64,
    left: AtomicU64,
}

pub struct Calls(Vec<Words>);

impl Calls {
    pub fn new(probes: usize) -> Calls {
        Calls((0..probes).map(|_| Words::default()).collect())
    }

    fn left(&self, frame: Frame) {
        self.0[frame.thunk as usize].left.fetch_add(1, Relaxed);
    }

    fn inside(&self, probe: usize) -> i64 {
        let words = &self.0[probe];
        let [calls, returns, left] =
            [&words.calls, &words.returns, &words.left].map(|word| word.load(Relaxed) as i64);
        calls - returns - left
    }

    pub fn all_ended(&self) {
        for probe in 0..self.0.len() {
            assert_eq!(self.inside(probe), 0, "each call ends once");
        }
    }
}

#[derive(Clone, Copy)]
pub struct Thread {
    pub end: &'static AtomicU64,
    frames: Frames<'static>,
    calls: &'static Calls,
    catches: &'static AtomicBool,
}

impl Thread {
    pub fn new(calls: &'static Calls, room: usize) -> Thread {
        let end = leak(AtomicU64::new(1));
        let words = leak_many(room * WORDS, || AtomicU64::new(0));
        let frames = Frames::new(words);
        Thread {
            end,
            frames,
            calls,
            catches: leak(AtomicBool::new(false)),
        }
    }

    fn end(&self) -> usize {
        self.end.load(Relaxed) as usize
    }

    fn set_end(&self, end: usize) {
        self.end.store(end as u64, Relaxed);
    }

    pub fn enter(&self, slot: u64, probe: u64, entered: u64) {
        self.calls.0[probe as usize].calls.fetch_add(1, Relaxed);
        let at = self.end();
        self.set_end(at + 1);
        self.frames.write(at, &frame(slot, probe, entered));
    }

    fn enter_slowly(&self, slot: u64, probe: u64, entered: u64) {
        self.calls.0[probe as usize].calls.fetch_add(1, Relaxed);
        let left = |frame| self.calls.left(frame);
        let set_end = |end| self.set_end(end);
        let at = self
            .frames
            .reserve(self.end(), slot, |_| false, left, set_end);
        self.frames
            .write(at.expect("room"), &frame(slot, probe, entered));
    }

    /// Returns as a trampoline does. `entered` is the found frame's expected entry time, if it is checked.
    pub fn returns(&self, slot: u64, probe: u64, entered: Option<u64>) {
        let uppermost = self.end() - 1;
        let found = match self.frames.frame(uppermost) {
            Some(frame) if frame.slot == slot => {
                self.frames.take(uppermost, |_| true);
                // A timed call is counted before its position is freed, other calls afterwards.
                let timed = probe == 0;
                if !timed {
                    self.set_end(uppermost);
                }
                self.calls.0[probe as usize].returns.fetch_add(1, Relaxed);
                if timed {
                    self.set_end(uppermost);
                }
                Some(frame)
            }
            _ => self.returns_slowly(slot, probe, None),
        };
        let found = found.map(|frame| (frame.thunk, frame.entered));
        assert!(
            entered.is_none() || found == entered.map(|entered| (probe, entered)),
            "a return finds its own frame"
        );
    }

    /// Returns as the agent's code does. The frame may be in `other`'s region.
    fn returns_slowly(&self, slot: u64, probe: u64, other: Option<&Thread>) -> Option<Frame> {
        let wanted = |frame: &Frame| frame.slot == slot && frame.thunk == probe;
        let left = |frame| self.calls.left(frame);
        let own = self
            .frames
            .pop(self.end(), wanted, left, |end| self.set_end(end));
        let own = own.map(|(_, frame)| frame);
        let found = own.or_else(|| {
            let frames = other?.frames;
            frames.take_from_other(frames.capacity(), wanted)
        });
        let words = &self.calls.0[probe as usize];
        words.returns.fetch_add(1, Relaxed);
        if found.is_none() {
            words.left.fetch_add(u64::MAX, Relaxed);
        }
        found
    }

    pub fn bury(&self) {
        self.frames
            .bury(self.frames.capacity(), |frame| self.calls.left(frame));
    }
}

fn frame(slot: u64, thunk: u64, entered: u64) -> Frame {
    Frame {
        slot,
        thunk,
        entered,
        callees: 0,
        part: 0,
    }
}

fn at_each_step(handler: fn(&Thread), program: fn(&Thread) -> i64, lost: Option<Edge>) {
    const FAR: usize = 1000;
    for nth in 0..FAR {
        let reached = leak(AtomicBool::new(true));
        loom::model(move || {
            let calls = leak(Calls::new(3));
            let thread = Thread::new(calls, 6);
            lose(lost);
            interrupt(nth, move || handler(&thread));
            let inside = program(&thread);
            reached.store(!was_missed(), Relaxed);
            lose(None);
            let counted: i64 = (0..3).map(|probe| calls.inside(probe)).sum();
            assert!((0..=inside).contains(&counted), "each call ends once");
        });
        if !reached.load(Relaxed) {
            return;
        }
    }
    panic!("the program never ends");
}

fn f_calls_g(thread: &Thread) -> i64 {
    thread.enter(900, 0, 10);
    thread.enter(800, 1, 20);
    thread.returns(800, 1, Some(20));
    thread.returns(900, 0, Some(10));
    assert_eq!(thread.end(), 1, "all frames are released");
    0
}

fn g_is_left(thread: &Thread) -> i64 {
    thread.enter(900, 0, 10);
    thread.enter(800, 1, 20);
    thread.enter_slowly(850, 1, 30);
    thread.enter(750, 1, 40);
    thread.returns(900, 0, Some(10));
    0
}

/// Calls as [`f_calls_g`] does, but handlers may jump out of g to f.
fn out_of_g(thread: &Thread) -> i64 {
    thread.enter(900, 0, 10);
    let jumped = thread.catch_jump(|| {
        thread.enter(800, 1, 20);
        thread.returns(800, 1, Some(20));
    });
    thread.returns(900, 0, Some(10));
    jumped
}

struct Jump;

impl Thread {
    /// Runs a program that handlers may jump out of. Returns how many calls may never end, because their frame was not
    /// yet written, or already taken, at the jump.
    fn catch_jump(&self, program: impl FnOnce()) -> i64 {
        self.catches.store(true, Relaxed);
        let jumped = catch_unwind(AssertUnwindSafe(program));
        self.catches.store(false, Relaxed);
        match jumped {
            Ok(()) => 0,
            Err(thrown) if thrown.is::<Jump>() => 1,
            Err(other) => resume_unwind(other),
        }
    }
}

fn handler_that_calls(thread: &Thread) {
    thread.enter(500, 2, 90);
    thread.enter_slowly(400, 2, 91);
    thread.returns(400, 2, Some(91));
    thread.returns(500, 2, Some(90));
}

fn handler_that_leaves(thread: &Thread) {
    thread.enter(500, 2, 90);
    thread.enter(400, 2, 91);
    thread.returns(500, 2, Some(90));
}

fn handler_that_jumps(thread: &Thread) {
    thread.enter(500, 2, 90);
    thread.returns(500, 2, Some(90));
    if thread.catches.load(Relaxed) {
        resume_unwind(Box::new(Jump));
    }
}

#[test]
fn a_handler_may_interrupt_at_any_step() {
    at_each_step(handler_that_calls, f_calls_g, None);
    at_each_step(handler_that_leaves, f_calls_g, None);
}

#[test]
fn a_handler_may_interrupt_while_frames_are_removed() {
    at_each_step(handler_that_calls, g_is_left, None);
    at_each_step(handler_that_leaves, g_is_left, None);
}

#[test]
fn a_handler_may_jump_out_of_a_call() {
    at_each_step(handler_that_jumps, out_of_g, None);
}

#[test]
#[should_panic(expected = "a return finds its own frame")]
fn mutant_write_before_reserve() {
    let program = |thread: &Thread| {
        thread.enter(900, 0, 10);
        thread.frames.write(thread.end(), &frame(800, 1, 20));
        thread.calls.0[1].calls.fetch_add(1, Relaxed);
        thread.set_end(thread.end() + 1);
        thread.returns(800, 1, Some(20));
        thread.returns(900, 0, Some(10));
        0
    };
    at_each_step(handler_that_calls, program, None);
}

#[test]
#[should_panic(expected = "each call ends once")]
fn mutant_end_before_take() {
    let program = |thread: &Thread| {
        thread.enter(900, 0, 10);
        thread.set_end(1);
        thread.calls.0[0].returns.fetch_add(1, Relaxed);
        if thread.frames.take(1, |frame| frame.slot == 900).is_none() {
            thread.calls.0[0].left.fetch_add(u64::MAX, Relaxed);
        }
        0
    };
    at_each_step(handler_that_calls, program, None);
}

/// If a handler jumps out between count and take, the call ends twice.
#[test]
#[should_panic(expected = "each call ends once")]
fn mutant_count_before_take() {
    let program = |thread: &Thread| {
        thread.enter(900, 0, 10);
        let jumped = thread.catch_jump(|| {
            thread.enter(800, 1, 20);
            thread.calls.0[1].returns.fetch_add(1, Relaxed);
            thread.frames.take(2, |_| true);
            thread.set_end(2);
        });
        thread.returns(900, 0, Some(10));
        jumped
    };
    at_each_step(handler_that_jumps, program, None);
}

/// A coroutine returns on another thread while its first thread enters a call at a higher slot, so that the coroutine's
/// frame counts as left.
fn moved(lost: Option<Edge>) {
    loom::model(move || {
        let calls = leak(Calls::new(2));
        let (first, second) = (Thread::new(calls, 4), Thread::new(calls, 2));
        first.enter(800, 0, 10);
        let other = spawn(move || {
            lose(lost);
            let found = second.returns_slowly(800, 0, Some(&first));
            assert!(found.is_none_or(|f| f.entered == 10), "the time is its own");
        });
        first.enter_slowly(900, 1, 20);
        first.returns(900, 1, Some(20));
        other.join().expect("returned");
        calls.all_ended();
    });
}

#[test]
fn a_coroutine_may_move() {
    moved(None);
}

#[test]
#[should_panic(expected = "each call ends once")]
fn mutant_torn_take() {
    moved(Some(Edge::Exchange));
}
