//! Opens *ports*, the tables through which libraries that the program links call the agent ([`tiptoe_port`]).
//!
//! A port's file may be unmapped at any moment. So ports must be accessed by system calls, which fail without a fault.

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use tiptoe_port::{Kind, Port};
use tiptoe_uprobe::patcher::Text;
use tiptoe_wire::{Data, Plan};

use crate::lock_port;
use crate::scopes;
use crate::shared::Shared;
use crate::text::SelfMemory;

const EINVAL: u64 = 22;
const MOST: usize = 64;

/// The addresses of the session's open ports. Relaxed throughout: only the holder of the session's lock uses them.
static OPEN: [AtomicUsize; MOST] = [const { AtomicUsize::new(0) }; MOST];

pub fn open(shared: &Shared, plan: &Plan, data: &Data, count: usize) -> u64 {
    let text = SelfMemory::open();
    for index in 0..count {
        let opened = open_one(&text, plan.address(index));
        if opened {
            // A library that is loaded again has a new port, which must be opened, too.
            shared.libraries.report_always(plan.address(index));
        }
        data.set_result(index, if opened { 0 } else { EINVAL });
    }
    0
}

fn open_one(text: &SelfMemory, address: u64) -> bool {
    let mut bytes = [0; Port::BYTES];
    if !text.read(address, &mut bytes) {
        return false;
    }
    let calls = match Port::kind_of(&bytes) {
        Some(Kind::Scopes) => scopes::calls(),
        Some(Kind::Locks) => lock_port::calls(),
        None => return false,
    };
    // A word is free if it is 0, or if its address has no port any more.
    let is_own = |word: &&AtomicUsize| word.load(Relaxed) == address as usize;
    let is_free = |word: &&AtomicUsize| !is_port(text, word.load(Relaxed) as u64);
    let Some(word) = OPEN.iter().find(is_own).or(OPEN.iter().find(is_free)) else {
        return false;
    };
    let calls = calls.map(u64::to_le_bytes);
    let opened = text.write(address + Port::CALLS_OFFSET as u64, calls.as_flattened())
        && text.write(address + Port::OPEN_OFFSET as u64, &[1]);
    if opened {
        word.store(address as usize, Relaxed);
    }
    opened
}

fn is_port(text: &SelfMemory, address: u64) -> bool {
    let mut bytes = [0; Port::BYTES];
    address != 0 && text.read(address, &mut bytes) && Port::kind_of(&bytes).is_some()
}

pub fn close() {
    let text = SelfMemory::open();
    for word in &OPEN {
        let address = word.swap(0, Relaxed) as u64;
        if is_port(&text, address) {
            text.write(address + Port::OPEN_OFFSET as u64, &[0]);
        }
    }
}
