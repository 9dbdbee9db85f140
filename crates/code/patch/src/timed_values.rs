//! Follows calls by an argument's value, or by scope. The thread's words are
//! [`tiptoe_wire::timed_values`].
//!
//! ```text
//!        [the thread's counters in %rax, which stay there]
//!        mov  ARGUMENT,%rcx         or mov SCOPE(%rax),%rcx
//!        mov  $ZERO,%edx
//!        test %rcx,%rcx
//!        je   done
//!        its hash in %rdx
//! look:  cmp  KEYS(%rax,%rdx,8),%rcx
//!        je   found
//!        cmpq $0,KEYS(%rax,%rdx,8)
//!        je   take
//!        next entry; after the last: 0 in %edx, done
//!        jmp  look
//! take:  push %rax; push %rdx
//!        lea  KEYS(%rax,%rdx,8),%rdx
//!        xor  %eax,%eax
//!        cmpxchg %rcx,(%rdx)        a signal handler may take it in between
//!        pop  %rdx; pop %rax
//!        jmp  look                  now taken, by us or by the handler
//! found: add  $FIRST,%edx
//! done:  [the set's number in %edx]
//! ```
//! The frame keeps the set's number in its last byte, because the value may have changed when the
//! call returns. In a hot loop of one value a timed call costs 0.8 ns more (`tiptoe-dev bench
//! uprobe`, `latency` and `latency_by_arg0`).

use tiptoe_wire::calls::{HASH, words};
use tiptoe_wire::timed_values::{BITS, FIRST, KEYS, ROOM, ZERO};

use crate::code::{Ahead, Code, IF_BELOW, IF_EQUAL, IF_GREATER};
use crate::hits::GroupValue;

const SET: i32 = words::ALL as i32 * 8;
/// The set's number's first bit in a frame's last word.
pub(crate) const PART: u8 = 56;

/// Leaves the number of the `by` value's set in %edx. The probe's words begin `cell` bytes after
/// %rax. Destroys %rcx.
fn find(code: &mut Code, by: GroupValue, cell: i32) {
    let keys = cell + KEYS as i32 * 8;
    by.load(code);
    code.put(&[0xba]).put32(ZERO.into()); // mov $ZERO,%edx
    code.put(&[0x48, 0x85, 0xc9]); // test %rcx,%rcx
    let zero = code.jump_ahead(IF_EQUAL, false);
    code.put(&[0x48, 0xba]).put(&HASH.to_le_bytes()); // movabs $HASH,%rdx
    code.put(&[0x48, 0x0f, 0xaf, 0xd1]); // imul %rcx,%rdx
    code.put(&[0x48, 0xc1, 0xea, 64 - BITS]); // shr
    let look = code.len();
    code.put(&[0x48, 0x3b, 0x8c, 0xd0]).put32(keys); // cmp KEYS(%rax,%rdx,8),%rcx
    let found = code.jump_ahead(IF_EQUAL, false);
    code.put(&[0x48, 0x83, 0xbc, 0xd0]).put32(keys).put(&[0]); // cmpq $0,KEYS(%rax,%rdx,8)
    let take = code.jump_ahead(IF_EQUAL, false);
    code.put(&[0xff, 0xc2]); // inc %edx
    code.put(&[0x83, 0xfa, ROOM]); // cmp $ROOM,%edx
    code.jump_back(Some(IF_BELOW), look);
    code.put(&[0x31, 0xd2]); // xor %edx,%edx: OTHERS
    let full = code.field_ahead(&[0xe9]); // jmp
    code.bind(take);
    code.put(&[0x50, 0x52]); // push %rax; push %rdx
    code.put(&[0x48, 0x8d, 0x94, 0xd0]).put32(keys); // lea KEYS(%rax,%rdx,8),%rdx
    code.put(&[0x31, 0xc0]); // xor %eax,%eax
    code.put(&[0x48, 0x0f, 0xb1, 0x0a]); // cmpxchg %rcx,(%rdx)
    code.put(&[0x5a, 0x58]); // pop %rdx; pop %rax
    code.jump_back(None, look);
    code.bind(found);
    code.put(&[0x83, 0xc2, FIRST]); // add $FIRST,%edx
    code.bind(zero);
    code.bind(full);
}

/// Finds the set of a call whose counters are at %rax; %rcx and %rdx must be saved. Jumps if credit
/// is left, with the frame's last word in %rcx and the set's offset in %rdx. Otherwise the call is
/// only counted.
pub(crate) fn solvent(code: &mut Code, by: GroupValue, slot: u32) -> Ahead {
    find(code, by, slot as i32 * 8);
    code.put(&[0x48, 0x89, 0xd1]); // mov %rdx,%rcx
    code.put(&[0x48, 0xc1, 0xe1, PART]); // shl $PART,%rcx
    code.put(&[0x48, 0x69, 0xd2]).put32(SET); // imul $SET,%rdx,%rdx
    code.put(&[0x48, 0x83, 0x38, 0]); // cmpq $0,(%rax): the credit
    let solvent = code.jump_ahead(IF_GREATER, true);
    count(code, slot + words::ONLY_COUNTED);
    solvent
}

pub(crate) fn count(code: &mut Code, word: u32) {
    code.put(&[0x48, 0xff, 0x84, 0x10]).put32(word as i32 * 8); // incq WORD(%rax,%rdx)
}

/// Loads the set's byte offset of a returning call, whose frame ends at %rcx, to %edx, and removes
/// its number from the frame's last word, which then is the callees' time.
pub(crate) fn of_frame(code: &mut Code, slot: u32) {
    code.put(&[0x0f, 0xb6, 0x51, 0xff]); // movzbl -1(%rcx),%edx
    code.put(&[0xc6, 0x41, 0xff, 0]); // movb $0,-1(%rcx)
    code.put(&[0x69, 0xd2]).put32(SET); // imul $SET,%edx,%edx
    code.put(&[0x81, 0xc2]).put32(slot as i32 * 8); // add $SLOT,%edx
}
