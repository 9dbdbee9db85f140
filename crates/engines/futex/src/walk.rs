//! The user's call site: the first return address above libc's own frames.
//!
//! libc's functions keep no frame pointer, and need none here: how far above the stack
//! pointer a frame begins is a constant at each call, which tiptoe reads from `.eh_frame`
//! for the calls that may lead to a wait, and leaves in a table by their return addresses.
//! A return address that is not there is the user's.

use tiptoe_wire::Words;
use tiptoe_wire::futex::frames::{BITS, FIRST, LOOKS};

use crate::HASH;

/// So many of libc's functions stand between a wait and the user, at most.
const MOST: usize = 6;

/// Who called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// The user's call site: its return address.
    pub site: u64,
    /// The last one in libc; 0 where the user called the function that waits itself.
    pub via: u64,
    /// Where the user's frame begins: the stack pointer as it is after the return.
    pub frame: u64,
}

/// The table, in the words of slab 0.
#[derive(Clone, Copy)]
pub struct Frames<'a>(Words<'a>);

fn places(address: u64) -> impl Iterator<Item = usize> {
    let first = (address.wrapping_mul(HASH) >> (64 - BITS)) as usize;
    (0..LOOKS as usize).map(move |more| FIRST as usize + 2 * (first + more))
}

impl<'a> Frames<'a> {
    /// The table in the words of slab 0.
    pub fn new(words: Words<'a>) -> Self {
        Frames(words)
    }

    /// Enters a return address: how far above the stack pointer, as it is after the
    /// return, the frame of that function begins. False where there is no room. (tiptoe)
    pub fn insert(&self, address: u64, depth: u64) -> bool {
        let free = |at: &usize| [0, address].contains(&self.0.load(*at));
        let Some(at) = places(address).find(free) else {
            return false;
        };
        self.0.store(at + 1, depth);
        self.0.store(at, address);
        true
    }

    fn depth(&self, address: u64) -> Option<u64> {
        let mut held = places(address).map(|at| (self.0.load(at), at));
        let found = held.find(|(held, _)| *held == address || *held == 0)?;
        (found.0 == address && address != 0).then(|| self.0.load(found.1 + 1))
    }

    /// Walks from a frame that begins at `frame`; `load` reads a word of the stack.
    pub fn caller(&self, frame: u64, load: impl Fn(u64) -> u64) -> Caller {
        let above = |frame: u64| load(frame.wrapping_sub(8));
        let mut caller = Caller {
            site: above(frame),
            via: 0,
            frame,
        };
        for _ in 0..MOST {
            let Some(depth) = self.depth(caller.site) else {
                break;
            };
            caller.frame = caller.frame.wrapping_add(depth);
            caller.via = caller.site;
            caller.site = above(caller.frame);
        }
        caller
    }
}

#[cfg(all(test, not(tiptoe_loom)))]
mod tests {
    use super::*;
    extern crate std;
    use core::sync::atomic::AtomicU64;
    use std::vec::Vec;
    use tiptoe_wire::futex::frames::ROOM;

    #[test]
    fn libcs_frames_are_stepped_over() {
        let room: Vec<_> = (0..FIRST + 2 * ROOM).map(|_| AtomicU64::new(0)).collect();
        let frames = Frames::new(Words::new(&room));
        assert!(frames.insert(0x7f01, 0x20) && frames.insert(0x7f02, 0x10));
        assert!(frames.insert(0x7f02, 0x30), "it is there already");
        // Return addresses at 0x100, 0x120 and 0x150.
        let load = |at: u64| match at {
            0x100 => 0x7f01,
            0x120 => 0x7f02,
            0x150 => 0x4001,
            _ => 0,
        };
        let caller = frames.caller(0x108, load);
        let (site, via, frame) = (0x4001, 0x7f02, 0x158);
        assert_eq!(caller, Caller { site, via, frame });
        let direct = frames.caller(0x158, load);
        assert_eq!((direct.site, direct.via), (0x4001, 0));
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes: a whole table, over and over")]
    fn a_table_that_is_full_says_so() {
        let room: Vec<_> = (0..FIRST + 2 * ROOM).map(|_| AtomicU64::new(0)).collect();
        let frames = Frames::new(Words::new(&room));
        let fit = (1..100_000u64).filter(|address| frames.insert(*address, 1));
        assert!((1 << (BITS - 1)..=ROOM as usize).contains(&fit.count()));
    }
}
