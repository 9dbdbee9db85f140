//! Sends each thread its held signals ([`tls`]) at a session's end.
//!
//! A thread's block is found from its robust list, which libc puts at a fixed offset in the block. The block may be
//! unmapped at any time, so it must be accessed through the kernel ([`SelfMemory`]).

use core::sync::atomic::{AtomicU64, Ordering};

use tiptoe_sys::raw::{call, nr};
use tiptoe_uprobe::patcher::Text;

use super::pending::send_to_thread;
use super::{BOTH, Info};
use crate::tasks;
use crate::text::SelfMemory;
use crate::tls;

/// The robust list's offset in a thread's block, plus 1; 0 if unknown. The word outlives sessions, because libc never
/// changes the offset.
static LAYOUT: AtomicU64 = AtomicU64::new(0);
const BLOCK: u64 = 4096;

/// Called by a thread of the program.
pub fn learn_layout() {
    let offset = robust_list(0).map(|list| list.wrapping_sub(tls::thread_block()));
    if let Some(offset) = offset.filter(|offset| *offset < BLOCK) {
        LAYOUT.store(offset + 1, Ordering::Relaxed); // published by the start of the agent's thread
    }
}

fn robust_list(tid: u32) -> Option<u64> {
    let (mut head, mut len) = (0u64, 0u64);
    let args = [
        tid as usize,
        &raw mut head as usize,
        &raw mut len as usize,
        0,
        0,
        0,
    ];
    // SAFETY: the kernel writes two words.
    unsafe { call(nr::GET_ROBUST_LIST, args) }.ok()?;
    (head != 0).then_some(head)
}

pub fn send_held_threads() {
    // Relaxed: as in `learn_layout`.
    let Some(offset) = LAYOUT.load(Ordering::Relaxed).checked_sub(1) else {
        return;
    };
    let memory = SelfMemory::open();
    tasks::each(|tid| {
        let Some(list) = robust_list(tid) else { return };
        let base = list
            .wrapping_sub(offset)
            .wrapping_add_signed(tls::descriptor_offset());
        let word = |offset: i64| {
            let mut bytes = [0; 8];
            let there = memory.read(base.wrapping_add_signed(offset), &mut bytes);
            if there { u64::from_le_bytes(bytes) } else { 0 }
        };
        if word(tls::HELD_BY) != u64::from(tid) {
            return;
        }
        for (signal, offset) in BOTH.into_iter().zip(tls::HELD_SENDERS) {
            let sender = word(offset);
            if sender != 0 && memory.write(base.wrapping_add_signed(offset), &[0; 8]) {
                let sender = sender & !(1 << 63);
                send_to_thread(tid, signal, &Info::from_sender(signal, sender).queued());
            }
        }
    });
}
