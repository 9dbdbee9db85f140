//! Finds a followed call's counters, a *set* of [`tiptoe_wire::timed_values`], by scope or an argument's value. A
//! followed call is counted at entry and return.
//!
//! A `cmpxchg` takes an empty key. Then the search looks again, because a signal handler may have taken the key first.
//! The last byte of the call's frame keeps the set's number, because the argument may change during the call. In a hot
//! loop with one value the search costs 0.8 ns a call.

use tiptoe_wire::calls::{HASH, words};
use tiptoe_wire::timed_values::{BITS, FIRST, KEYS, ROOM, ZERO};

use crate::code::{Code, ForwardJump, IF_BELOW, IF_EQUAL, IF_GREATER};
use crate::hits::GroupValue;

const SET_BYTES: i32 = words::ALL as i32 * 8;
pub(crate) const SET_SHIFT: u8 = 56;

/// Puts the set's number into %edx. The probe's words begin `offset` bytes after %rax. Destroys %rcx.
fn find_set(code: &mut Code, by: GroupValue, offset: i32) {
    let keys = offset + KEYS as i32 * 8;
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

/// Finds the set. %rax must point to the counters; %rcx and %rdx must be saved. Without credit to follow a call, only
/// counts. Otherwise jumps, with the frame's last word in %rcx and the set's offset in %rdx.
pub(crate) fn jump_if_credit(code: &mut Code, by: GroupValue, slot: u32) -> ForwardJump {
    find_set(code, by, slot as i32 * 8);
    code.put(&[0x48, 0x89, 0xd1]); // mov %rdx,%rcx
    code.put(&[0x48, 0xc1, 0xe1, SET_SHIFT]); // shl $SET_SHIFT,%rcx
    code.put(&[0x48, 0x69, 0xd2]).put32(SET_BYTES); // imul $SET_BYTES,%rdx,%rdx
    code.put(&[0x48, 0x83, 0x38, 0]); // cmpq $0,(%rax): the credit
    let has_credit = code.jump_ahead(IF_GREATER, true);
    count(code, slot + words::ONLY_COUNTED);
    has_credit
}

pub(crate) fn count(code: &mut Code, word: u32) {
    code.put(&[0x48, 0xff, 0x84, 0x10]).put32(word as i32 * 8); // incq WORD(%rax,%rdx)
}

/// Loads the set's offset to %edx for a returning call whose frame ends at %rcx. Clears the set's number in the frame's
/// last word, so that the word is only the callees' time.
pub(crate) fn load_set(code: &mut Code, slot: u32) {
    code.put(&[0x0f, 0xb6, 0x51, 0xff]); // movzbl -1(%rcx),%edx
    code.put(&[0xc6, 0x41, 0xff, 0]); // movb $0,-1(%rcx)
    code.put(&[0x69, 0xd2]).put32(SET_BYTES); // imul $SET_BYTES,%edx,%edx
    code.put(&[0x81, 0xc2]).put32(slot as i32 * 8); // add $SLOT,%edx
}
