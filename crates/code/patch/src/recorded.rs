//! Code that writes a record of each hit to the thread's [`tiptoe_wire::ring`]. %rcx points to the thread's counters:
//! ```text
//!         no credit (number of hits that may still be recorded): incq only_counted; out
//!         the time in %rdx; decq credit
//! again:  the head in %rax; if CELLS ahead of the tail: incq lost; done
//!         cmpxchg: increment the head
//!         if a signal handler incremented it first: again
//!         incq recorded
//!         the cell: time, arguments; last the slot and the position
//! done:   restore the registers
//! ```
//! The time is read first, so that hits of a signal handler are later than the interrupted hit. A thread that sleeps
//! past its session's end may write, because counters and cells stay mapped. A record costs 10 ns.

use tiptoe_wire::ring::{CELL_WORDS, CELLS, slab, words};

use crate::code::{Code, ForwardJump, IF_NOT_EQUAL, NOT_ABOVE, NOT_BELOW};
use crate::counters;

pub(crate) struct RareJumps {
    slot: u32,
    broke: ForwardJump,
    full: ForwardJump,
    done: usize,
}

impl RareJumps {
    /// %rax points to the counters, and is destroyed.
    pub(crate) fn emit(code: &mut Code, slot: u32, ring: u32) -> RareJumps {
        code.put(&[0x48, 0x83, 0x38, 0]); // cmpq $0,(%rax): the credit
        let broke = code.jump_ahead(NOT_ABOVE, true);
        code.put(&[0x51, 0x52, 0x41, 0x53]); // push %rcx; push %rdx; push %r11
        code.put(&[0x48, 0x89, 0xc1]); // mov %rax,%rcx
        code.put(&[0x0f, 0x31, 0x48, 0xc1, 0xe2, 32, 0x48, 0x09, 0xc2]); // rdtsc, in %rdx
        code.put(&[0x48, 0xff, 0x09]); // decq (%rcx)
        let full = reserve(code);
        code.put(&[0x48, 0xff, 0x81])
            .put32(cell(slot + words::RECORDED));
        write(code, slot, ring);
        let done = code.len();
        code.put(&[0x41, 0x5b, 0x5a, 0x59]); // pop %r11; pop %rdx; pop %rcx
        RareJumps {
            slot,
            broke,
            full,
            done,
        }
    }

    pub(crate) fn otherwise(self, code: &mut Code, out: usize) {
        code.bind(self.broke);
        counters::increment(code, cell(self.slot + words::ONLY_COUNTED));
        code.jump_back(None, out);
        code.bind(self.full);
        code.put(&[0x48, 0xff, 0x81])
            .put32(cell(self.slot + words::LOST)); // incq lost(%rcx)
        code.jump_back(None, self.done);
    }
}

/// Loads the record's position to %rax and the next position to %r11. Jumps if the ring is full.
fn reserve(code: &mut Code) -> ForwardJump {
    let again = code.len();
    code.put(&[0x48, 0x8b, 0x41, byte(slab::HEAD)]); // mov head(%rcx),%rax
    code.put(&[0x49, 0x89, 0xc3]); // mov %rax,%r11
    code.put(&[0x4c, 0x2b, 0x59, byte(slab::TAIL)]); // sub tail(%rcx),%r11
    code.put(&[0x49, 0x81, 0xfb]).put32(CELLS as i32); // cmp $CELLS,%r11
    let full = code.jump_ahead(NOT_BELOW, true);
    code.put(&[0x4c, 0x8d, 0x58, 1]); // lea 1(%rax),%r11
    code.put(&[0x4c, 0x0f, 0xb1, 0x59, byte(slab::HEAD)]); // cmpxchg %r11,head(%rcx)
    code.jump_back(Some(IF_NOT_EQUAL), again);
    full
}

fn write(code: &mut Code, slot: u32, ring: u32) {
    const SHIFT: u8 = (CELL_WORDS * 8).trailing_zeros() as u8;
    code.put(&[0x25]).put32(CELLS as i32 - 1); // and $CELLS-1,%eax
    code.put(&[0xc1, 0xe0, SHIFT]); // shl $SHIFT,%eax
    code.put(&[0x48, 0x8d, 0x84, 0x01]).put32(ring as i32); // lea ring(%rcx,%rax),%rax
    code.put(&[0x48, 0x89, 0x10]); // mov %rdx,(%rax)
    code.put(&[0x48, 0x89, 0x78, 16]); // mov %rdi,16(%rax)
    code.put(&[0x48, 0x89, 0x70, 24]); // mov %rsi,24(%rax)
    code.put(&[0x49, 0xc1, 0xe3, 32]); // shl $32,%r11
    code.put(&[0x49, 0x81, 0xcb]).put32(slot as i32); // or $slot,%r11
    code.put(&[0x4c, 0x89, 0x58, 8]); // mov %r11,8(%rax): last
}

const fn byte(word: usize) -> u8 {
    (word * 8) as u8
}

fn cell(word: u32) -> i32 {
    word as i32 * 8
}
