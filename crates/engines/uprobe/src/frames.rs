//! Records the calls of probed functions that a thread is inside, each in a *frame*.
//!
//! A thread's frames are consecutive in its *region*. A thread-local word, the *end*, points after the uppermost frame.
//! Trampolines (the code that counts) push and pop frames. They call this module if a page of frames is full, or the
//! returning call's frame is not the uppermost.
//!
//! | word | holds |
//! |---|---|
//! | 0 | `slot`; 0: no frame, or one being written |
//! | 1, 2 | `thunk`, `entered` |
//! | 3 | `callees`; in the highest byte `part` |
//!
//! Frames serve only timing and counting, so a wrong frame harms nothing in the program. If a call counted as left
//! returns after all, the count is taken back. A region's first word must stay 0, because trampolines read it when
//! there is no frame.
//!
//! # Which calls are left
//! If a call with its return address at `slot` returns or begins, the thread has left every call with a lower slot on
//! that stack ([`SAME_STACK`]), by longjmp or an unwinder. Frames on other stacks (coroutines, signals) stay.
//!
//! # Rules
//! 1. A thread and its signal handlers write its region. A handler must keep the interrupted calls' frames, unless it
//!    jumps out of these calls.
//! 2. Other threads may take a frame by an exchange of word 0, because a coroutine may return on another thread.
//! 3. A dead thread's calls are counted as left by the *heir*, which took over its descriptor ([`crate::claim`]), or by
//!    the agent's thread while it holds the descriptor.

use crate::primitive::{AtomicU64, Ordering};

/// Words of a frame.
pub const WORDS: usize = 4;
/// Two slots nearer than this are on one stack.
pub const SAME_STACK: u64 = 8 << 20;

/// A call in progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// The stack slot of the return address.
    pub slot: u64,
    /// The address of the [thunk](crate::thunks) to which the call returns. Without a thunk, the number of the probe's
    /// first counter; no address is so small.
    pub thunk: u64,
    /// The time of entry in ticks; for the function of `--under` (a *gate*) the address of the counters that record the
    /// call.
    pub entered: u64,
    /// Nanoseconds in callees that also had frames.
    pub callees: u64,
    /// Which part of the probe's counters counts the call, if calls are grouped by value; else 0.
    pub part: u8,
}

/// The part's first bit in word 3. Callees' time overflows into the part after 2 years.
const PART: u32 = 56;

/// A region; positions count frames.
#[derive(Clone, Copy)]
pub struct Frames<'a>(&'a [AtomicU64]);

impl<'a> Frames<'a> {
    /// Returns a region over zeroed words, whose number must be a multiple of [`WORDS`].
    pub fn new(words: &'a [AtomicU64]) -> Self {
        Frames(words)
    }

    /// Returns how many frames fit.
    pub fn capacity(&self) -> usize {
        self.0.len() / WORDS
    }

    fn word(&self, position: usize, index: usize) -> u64 {
        // Relaxed, here and below: a thread reads its own frames in program order.
        let word = self.0.get(position * WORDS + index);
        word.map_or(0, |word| word.load(Ordering::Relaxed))
    }

    fn set(&self, position: usize, index: usize, value: u64) {
        if let Some(word) = self.0.get(position * WORDS + index) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Returns the frame at a position.
    pub fn frame(&self, position: usize) -> Option<Frame> {
        let slot = self.word(position, 0);
        (slot != 0).then(|| Frame {
            slot,
            thunk: self.word(position, 1),
            entered: self.word(position, 2),
            callees: self.word(position, 3) & ((1 << PART) - 1),
            part: (self.word(position, 3) >> PART) as u8,
        })
    }

    /// Writes a frame, the slot last, because half a frame must never be found.
    pub fn write(&self, position: usize, frame: &Frame) {
        self.set(position, 1, frame.thunk);
        self.set(position, 2, frame.entered);
        self.set(position, 3, frame.callees | u64::from(frame.part) << PART);
        self.set(position, 0, frame.slot);
    }

    /// Takes the frame at a position if it is `wanted`, unless another thread was faster.
    pub fn take(&self, position: usize, wanted: impl Fn(&Frame) -> bool) -> Option<Frame> {
        let frame = self.frame(position).filter(wanted)?;
        let word = self.0.get(position * WORDS)?;
        // Relaxed: only the exchange decides. It takes no later frame with the same slot (ABA). Either the taking
        // thread runs on the frame's stack, where no other call uses the slot, or the frame's owner is dead.
        word.compare_exchange(frame.slot, 0, Ordering::Relaxed, Ordering::Relaxed)
            .ok()
            .map(|_| frame)
    }

    /// Adds a call's time to its caller's frame, one position lower.
    pub fn charge_caller(&self, position: usize, ns: u64) {
        if let Some(below) = position.checked_sub(1).filter(|below| *below > 0) {
            self.set(below, 3, self.word(below, 3).saturating_add(ns));
        }
    }

    /// Clears the parts of all frames up to `end`, because they belong to an earlier session.
    pub fn forget_parts(&self, end: usize) {
        for at in 1..end.min(self.capacity()) {
            self.set(at, 3, self.word(at, 3) & ((1 << PART) - 1));
        }
    }

    /// Returns the position of the uppermost wanted frame.
    pub fn find(&self, end: usize, wanted: impl Fn(&Frame) -> bool) -> Option<usize> {
        let end = end.min(self.capacity());
        (1..end)
            .rev()
            .find(|at| self.frame(*at).is_some_and(|frame| wanted(&frame)))
    }

    /// Records the return of the call at `position`. Passes later frames that the thread has left to `left`. Returns
    /// the new end.
    pub fn unwind(&self, end: usize, position: usize, mut left: impl FnMut(Frame)) -> usize {
        let slot = self.word(position, 0);
        let mut new_end = position;
        for at in position + 1..end.min(self.capacity()) {
            match self.frame(at) {
                Some(frame) if is_left(frame.slot, slot) => {
                    if let Some(frame) = self.take(at, |_| true) {
                        left(frame);
                    }
                }
                Some(_) => new_end = at + 1,
                None => {}
            }
        }
        new_end
    }

    /// Records that the stack pointer moves up to `to`. Passes frames that the thread thereby leaves to `left`. Returns
    /// the new end.
    pub fn cut(&self, end: usize, to: u64, mut left: impl FnMut(Frame)) -> usize {
        let mut end = end.min(self.capacity());
        let mut top = true;
        for at in (1..end).rev() {
            match self.frame(at) {
                Some(frame) if is_left(frame.slot, to) => {
                    if let Some(frame) = self.take(at, |_| true) {
                        left(frame);
                    }
                }
                Some(frame) if frame.slot.abs_diff(to) < SAME_STACK => break,
                Some(_) => top = false,
                None => {}
            }
            if top {
                end = at;
            }
        }
        end
    }

    /// Records a call that begins at `slot`. Passes the uppermost frames that the thread has left to `left`. Returns
    /// the new end. A frame at `slot` is a tail call's caller if `is_caller` returns true; otherwise the thread has
    /// left it.
    pub fn sweep(
        &self,
        end: usize,
        slot: u64,
        is_caller: impl Fn(Frame) -> bool,
        mut left: impl FnMut(Frame),
    ) -> usize {
        let mut end = end.min(self.capacity());
        while end > 1
            && let Some(frame) = self.frame(end - 1)
            && (is_left(frame.slot, slot) || (frame.slot == slot && !is_caller(frame)))
        {
            end -= 1;
            if let Some(frame) = self.take(end, |_| true) {
                left(frame);
            }
        }
        end
    }

    /// [Sweeps](Frames::sweep), then reserves a position, if there is room. Raises the end before the frame is written;
    /// otherwise a signal handler would reuse the position.
    pub fn reserve(
        &self,
        end: usize,
        slot: u64,
        is_caller: impl Fn(Frame) -> bool,
        left: impl FnMut(Frame),
        set_end: impl FnOnce(usize),
    ) -> Option<usize> {
        let end = self.sweep(end, slot, is_caller, left);
        let fits = end < self.capacity();
        set_end(end + usize::from(fits));
        fits.then_some(end)
    }

    /// Takes the returning call's frame, and returns it with its position. Passes later frames that the thread has left
    /// to `left`.
    pub fn pop(
        &self,
        end: usize,
        wanted: impl Fn(&Frame) -> bool,
        left: impl FnMut(Frame),
        set_end: impl FnOnce(usize),
    ) -> Option<(usize, Frame)> {
        let at = self.find(end, &wanted)?;
        let end = self.unwind(end, at, left);
        let frame = self.take(at, wanted)?;
        set_end(end);
        Some((at, frame))
    }

    /// Takes a call from another thread's region. No frame may ever have been written there at or above `height`.
    pub fn take_from_other(&self, height: usize, wanted: impl Fn(&Frame) -> bool) -> Option<Frame> {
        let at = self.find(height, &wanted)?;
        self.take(at, wanted)
    }

    /// Takes all frames below `height`, and passes them to `left`.
    pub fn bury(&self, height: usize, left: impl FnMut(Frame)) {
        (1..height.min(self.capacity()))
            .filter_map(|at| self.take(at, |_| true))
            .for_each(left);
    }
}

fn is_left(slot: u64, at: u64) -> bool {
    slot < at && at - slot < SAME_STACK
}

#[cfg(all(test, not(tiptoe_loom)))]
mod tests {
    use super::*;
    extern crate std;
    use std::vec::Vec;

    fn words(frames: usize) -> Vec<AtomicU64> {
        (0..frames * WORDS).map(|_| AtomicU64::new(0)).collect()
    }

    fn push(frames: &Frames, end: &mut usize, slot: u64) {
        let thunk = slot + 7;
        frames.write(
            *end,
            &Frame {
                slot,
                thunk,
                ..Frame::default()
            },
        );
        *end += 1;
    }

    fn slots(frames: &Frames, end: usize) -> Vec<u64> {
        (1..end)
            .filter_map(|at| frames.frame(at))
            .map(|frame| frame.slot)
            .collect()
    }

    #[test]
    fn a_return_passes_the_frames_that_were_jumped_over() {
        let words = words(8);
        let (frames, mut end) = (Frames::new(&words), 1);
        [900, 800, 700]
            .into_iter()
            .for_each(|slot| push(&frames, &mut end, slot));
        let at = frames.find(end, |frame| frame.slot == 900).expect("pushed");
        let mut left = Vec::new();
        end = frames.unwind(end, at, |frame| left.push(frame.slot));
        assert_eq!((end, left), (1, std::vec![800, 700]));
        assert_eq!(frames.take(at, |_| true).map(|frame| frame.slot), Some(900));
        assert_eq!(frames.find(end, |frame| frame.slot == 900), None);
    }

    #[test]
    fn a_frame_keeps_its_part_whatever_its_callees_take() {
        let words = words(3);
        let frames = Frames::new(&words);
        let frame = Frame {
            slot: 900,
            part: 255,
            callees: 5,
            ..Frame::default()
        };
        frames.write(1, &frame);
        frames.charge_caller(2, 1 << 40);
        let callees = 5 + (1 << 40);
        assert_eq!(frames.frame(1), Some(Frame { callees, ..frame }));
        frames.forget_parts(2);
        let part = 0;
        assert_eq!(
            frames.frame(1),
            Some(Frame {
                callees,
                part,
                ..frame
            })
        );
    }

    #[test]
    fn frames_of_another_stack_stay() {
        let words = words(8);
        let (frames, mut end) = (Frames::new(&words), 1);
        let far = 900 + SAME_STACK;
        [900, far, 700]
            .into_iter()
            .for_each(|slot| push(&frames, &mut end, slot));
        let at = frames.find(end, |frame| frame.slot == 900).expect("pushed");
        let mut left = Vec::new();
        end = frames.unwind(end, at, |frame| left.push(frame.slot));
        frames.take(at, |_| true);
        assert_eq!(
            (slots(&frames, end), left),
            (std::vec![far], std::vec![700])
        );
        assert_eq!(end, 3, "the frame that stays is still below the end");
    }

    #[test]
    fn a_jump_leaves_the_frames_below_on_its_stack() {
        let words = words(8);
        let (frames, mut end) = (Frames::new(&words), 1);
        let far = 900 + SAME_STACK;
        [900, 800, far, 700, 600]
            .into_iter()
            .for_each(|slot| push(&frames, &mut end, slot));
        let mut left = Vec::new();
        end = frames.cut(end, 650, |frame| left.push(frame.slot));
        assert_eq!((end, &*left), (5, &[600][..]));
        end = frames.cut(end, 808, |frame| left.push(frame.slot));
        assert_eq!((end, &*left), (4, &[600, 700, 800][..]));
        assert_eq!(slots(&frames, end), [900, far]);
    }

    #[test]
    fn a_call_at_the_same_place_is_a_tail_call_or_its_frame_is_left() {
        let words = words(8);
        let (frames, mut end) = (Frames::new(&words), 1);
        [900, 800]
            .into_iter()
            .for_each(|slot| push(&frames, &mut end, slot));
        let kept = frames.sweep(end, 800, |caller| caller.thunk == 807, |_| panic!("left"));
        assert_eq!(kept, 3);
        let mut left = 0;
        let swept = frames.sweep(end, 800, |_| false, |_| left += 1);
        assert_eq!((swept, left), (2, 1));
    }

    #[test]
    fn positions_out_of_the_region_are_no_frames() {
        let words = words(2);
        let frames = Frames::new(&words);
        frames.write(
            5,
            &Frame {
                slot: 1,
                ..Frame::default()
            },
        );
        assert_eq!(frames.frame(5), None);
        assert_eq!(frames.find(100, |_| true), None);
        assert_eq!(frames.sweep(100, 5, |_| false, |_| {}), 2);
    }
}
