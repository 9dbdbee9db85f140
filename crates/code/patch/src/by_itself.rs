//! Trampoline code that counts entry and return of calls from a function's first two callers. It *follows* these calls
//! without calling the agent (our library in the target). *Credit* is the number of calls that a thread may still
//! follow. A *frame* records a followed call.
//!
//! ```text
//! entry:  no counters: general
//!         no credit: spent
//!         another caller (CALLER is 0: none yet): general
//! follow: end of a page of frames, or counters removed: general
//!         decq credit; incq calls; push a frame
//! call:   lea  8(%rsp),%rsp          remove the program's return address
//!         call copy                  a call of our own, because each `ret` must pair with a `call`
//!         push CALLER(%rip)          restore the program's return address
//! exit:   ...
//! spent:  incq only counted
//! copy:   ...
//! general:                           the code of `timed.rs`
//! ```
//! Registers are saved in the red zone, which is free at an entry. The copy (of the displaced instructions) returns to
//! the trampoline, but unwind information shows the program's return address. The agent writes `CALLER` once, because
//! followed calls return to the address in it. If calls are timed, most have no credit. So `spent` directly follows the
//! test of credit, and these calls take no branch.
//!
//! In a hot loop a call costs 2.7 ns from the first caller, 3.4 from the second, 4.5 from others by `timed.rs`'s path
//! (`tiptoe-dev bench uprobe`, `entry_return`). Stores cost most, so few registers are saved, and unchanged words of a
//! frame are not written.

use tiptoe_wire::arena::WAYS;
use tiptoe_wire::calls::{FRAME_BYTES, words};

use crate::abi::Abi;
use crate::code::{Code, ForwardJump, IF_EQUAL, IF_GREATER, IF_NOT_EQUAL, LinkTarget, NOT_ABOVE};
use crate::counters;
use crate::followed::{
    FRAMES_IN_RAX, FollowedCall, KEEP_RAX, RAX_IN_FRAMES, TAKE_RAX, count, leave, now,
};
use crate::trampoline::Trampoline;

const KEEP_BOTH: [u8; 10] = [
    0x48, 0x89, 0x4c, 0x24, 0xf0, // mov %rcx,-16(%rsp)
    0x48, 0x89, 0x54, 0x24, 0xe8, // mov %rdx,-24(%rsp)
];
const TAKE_BOTH: [u8; 10] = [
    0x48, 0x8b, 0x54, 0x24, 0xe8, // mov -24(%rsp),%rdx
    0x48, 0x8b, 0x4c, 0x24, 0xf0, // mov -16(%rsp),%rcx
];

pub(crate) struct JoinOffsets {
    /// Where each caller's call of the copy begins, with registers restored and the return address on the stack.
    pub(crate) call_offsets: [usize; WAYS],
    pub(crate) call_jumps: [ForwardJump; WAYS],
    pub(crate) exit: usize,
}

/// A write that is skipped if it changes nothing: the jump to its code, the code, and the offset to continue at.
type ConditionalWrite = (ForwardJump, Vec<u8>, usize);

impl Trampoline {
    /// Calls that are not followed continue after this code, with all registers restored. `missed` are the jumps to
    /// `copy` of calls that the probe's filter rejects.
    pub(crate) fn by_itself(
        &mut self,
        call: &FollowedCall,
        abi: &Abi,
        copy: &Trampoline,
        missed: Vec<ForwardJump>,
    ) -> JoinOffsets {
        let code = &mut self.code;
        code.put(&KEEP_RAX);
        let mut general = vec![counters::load(code, abi.tls, true)];
        general.extend(call.hits.emit_under(code, true));
        code.put(&[0x48, 0x83, 0x38, 0]); // cmpq $0,(%rax): the credit
        let followed = if call.is_timed {
            let has_credit = code.jump_ahead(IF_GREATER, true);
            self.spent(call, copy, missed);
            self.code.bind(has_credit);
            follow(&mut self.code, call, abi)
        } else {
            let spent = code.jump_ahead(NOT_ABOVE, true);
            let followed = follow(code, call, abi);
            self.code.bind(spent);
            self.spent(call, copy, missed);
            followed
        };
        let code = &mut self.code;
        code.bind(followed.others);
        let neither = unless_from(code, 1);
        code.jump_back(None, followed.checked_offset);
        for jump in general.into_iter().chain(followed.general).chain([neither]) {
            code.bind(jump);
        }
        code.put(&TAKE_RAX);
        followed.itself
    }

    fn spent(&mut self, call: &FollowedCall, copy: &Trampoline, missed: Vec<ForwardJump>) {
        count(&mut self.code, call.slot + words::ONLY_COUNTED);
        self.code.put(&TAKE_RAX);
        for jump in missed {
            self.code.bind(jump);
        }
        self.embed(copy);
    }
}

struct FollowCode {
    itself: JoinOffsets,
    others: ForwardJump,
    checked_offset: usize,
    general: [ForwardJump; 2],
}

fn follow(code: &mut Code, call: &FollowedCall, abi: &Abi) -> FollowCode {
    // The first caller's path takes no branch, because taken branches are slow if many functions are probed.
    let others = unless_from(code, 0);
    let known = code.len();
    let general = enter(code, call, abi);
    let unwritten = match call.is_timed {
        true => push_timed(code, call, abi),
        false => push(code, call, abi),
    };
    let second = unless_from(code, 0);
    let (first_offset, first_call) = go(code, call, 0);
    let exit = code.len();
    leave(code, call, abi);
    code.bind(second);
    let (second_offset, second_call) = go(code, call, 1);
    code.set_unwind_state(0, 0).jump_back(None, exit);
    for (jump, write, back) in unwritten {
        code.bind(jump);
        code.put(&write).jump_back(None, back);
    }
    FollowCode {
        itself: JoinOffsets {
            call_offsets: [first_offset, second_offset],
            call_jumps: [first_call, second_call],
            exit,
        },
        others,
        checked_offset: known,
        general,
    }
}

fn unless_from(code: &mut Code, way: usize) -> ForwardJump {
    code.relative(&[0x48, 0x8b, 0x05], LinkTarget::Caller(way), &[]); // mov CALLER(%rip),%rax
    code.put(&[0x48, 0x39, 0x04, 0x24]); // cmp %rax,(%rsp)
    code.jump_ahead(IF_NOT_EQUAL, true)
}

fn go(code: &mut Code, call: &FollowedCall, way: usize) -> (usize, ForwardJump) {
    code.put(&TAKE_RAX);
    let call_offset = code.len();
    code.put(&[0x48, 0x8d, 0x64, 0x24, 8]); // lea 8(%rsp),%rsp
    let made = code.call_ahead(call.slot);
    code.set_unwind_state(0, -8);
    code.relative(&[0xff, 0x35], LinkTarget::Caller(way), &[]); // push CALLER(%rip)
    (call_offset, made)
}

/// Jumps at the end of a page of frames, and if a fork in a signal handler has removed the counters.
fn enter(code: &mut Code, call: &FollowedCall, abi: &Abi) -> [ForwardJump; 2] {
    code.put(&FRAMES_IN_RAX).put32(abi.frames);
    code.put(&[0xa9]).put32(0xfff); // test $0xfff,%eax
    let full = code.jump_ahead(IF_EQUAL, true);
    let none = counters::load(code, abi.tls, true);
    call.enter(code);
    [full, none]
}

/// Its first word must be written last (invariant 3 in `timed.rs`).
fn push(code: &mut Code, call: &FollowedCall, abi: &Abi) -> Vec<ConditionalWrite> {
    code.put(&FRAMES_IN_RAX).put32(abi.frames);
    code.put(&[0x48, 0x83, 0xc0, FRAME_BYTES]); // add $FRAME,%rax
    code.put(&RAX_IN_FRAMES).put32(abi.frames);
    let whose = call.slot.to_le_bytes();
    code.put(&[0x48, 0x81, 0x78, 0xe8]).put(&whose); // cmpq $whose,-24(%rax)
    let other = code.jump_ahead(IF_NOT_EQUAL, true);
    let same = code.len();
    code.put(&[0x48, 0x83, 0x78, 0xf8, 0]); // cmpq $0,-8(%rax): time in callees
    let some = code.jump_ahead(IF_NOT_EQUAL, true);
    let none = code.len();
    code.put(&[0x48, 0x89, 0x60, 0xe0]); // mov %rsp,-32(%rax): the first word
    vec![
        (
            other,
            [&[0x48, 0xc7, 0x40, 0xe8][..], &whose].concat(),
            same,
        ), // movq $whose,-24(%rax)
        (some, vec![0x48, 0xc7, 0x40, 0xf8, 0, 0, 0, 0], none), // movq $0,-8(%rax)
    ]
}

fn push_timed(code: &mut Code, call: &FollowedCall, abi: &Abi) -> Vec<ConditionalWrite> {
    code.put(&KEEP_BOTH);
    code.put(&FRAMES_IN_RCX).put32(abi.frames);
    code.put(&[0x48, 0x83, 0xc1, FRAME_BYTES]); // add $FRAME,%rcx
    code.put(&RCX_IN_FRAMES).put32(abi.frames);
    let whose = call.slot.to_le_bytes();
    code.put(&[0x48, 0x81, 0x79, 0xe8]).put(&whose); // cmpq $whose,-24(%rcx)
    let other = code.jump_ahead(IF_NOT_EQUAL, true);
    let same = code.len();
    code.put(&[0x48, 0xc7, 0x41, 0xf8]).put32(0); // movq $0,-8(%rcx): time in callees
    now(code);
    code.put(&[0x48, 0x89, 0x41, 0xf0]); // mov %rax,-16(%rcx)
    code.put(&[0x48, 0x89, 0x61, 0xe0]); // mov %rsp,-32(%rcx): the first word, as in `push`
    code.put(&TAKE_BOTH);
    vec![(
        other,
        [&[0x48, 0xc7, 0x41, 0xe8][..], &whose].concat(),
        same,
    )] // movq $whose,-24(%rcx)
}

const FRAMES_IN_RCX: [u8; 5] = [0x64, 0x48, 0x8b, 0x0c, 0x25]; // mov %fs:frames,%rcx
const RCX_IN_FRAMES: [u8; 5] = [0x64, 0x48, 0x89, 0x0c, 0x25]; // mov %rcx,%fs:frames
