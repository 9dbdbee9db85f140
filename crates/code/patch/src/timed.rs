//! Trampolines (the code that counts) that follow a call from its entry to its return.
//!
//! This path is for calls of a *gate* (the function of `--under`), calls grouped by a value (`--by`), and calls from
//! all but the first two callers ([`crate::by_itself`]):
//! ```text
//! entry:  no counters: slow
//!         no credit: incq only counted; copy
//!         decq credit; incq calls
//!         no frames, or the end of a page: slow
//!         look (probe, return address) up in the table of thunks; absent: slow
//!         push a frame: address of the return address, thunk, time
//!         jmp  *thunk
//! thunk:  restore the registers           (made by the agent for each
//!         lea  8(%rsp),%rsp                pair of probe and return address)
//!         call *copy
//!         push RETURN ADDRESS
//!         jmp  *exit
//! copy:   the displaced instructions
//!         jmp  after them
//! exit:   not the uppermost frame: slow
//!         clear its first word
//!         count; or, if the thread has counters, time
//!         remove the frame
//!         ret
//! ```
//! `slow` calls the agent, our library in the target. A *frame* records a followed call. *Credit* is the number of
//! calls that a thread may still follow.
//!
//! # Invariants
//! 1. Each `call` has its `ret`, for the return predictor and a shadow stack.
//! 2. Only the thunk, or `CALLER` of [`crate::by_itself`], determines where a call returns. Frames only time calls and
//!    count calls that never return, so programs that copy, move or abandon stacks lose only times.
//! 3. A frame must be reserved before it is written, and its first word written last, because a signal handler may push
//!    another frame in between. On return the first word must be cleared before the call is counted. Otherwise, if a
//!    signal handler jumps away in between, the call would count both as returned and as never returned.
//! 4. The clock is read only if the thread has counters and frames. Forked children, and threads after the session,
//!    have no counters. If prctl PR_SET_TSC forbids reading the clock, the agent hides the thread's frames.
//!
//! A gate needs no credit. Its calls atomically add 1 to a word of the thread, and subtract 1 on return. Their frames
//! point to the counters with that word, because the call may end on another thread or in a later session. A gate's
//! call costs 7.5 ns, other calls 6.8.
//!
//! In a hot loop a call through a thunk costs 6 ns more than a count. A timed call costs 23, including 22 for two
//! `rdtsc` in a virtual machine.

use crate::abi::Abi;
use crate::code::{
    Code, ForwardJump, IF_BELOW, IF_EQUAL, IF_NOT_EQUAL, LinkTarget, POP_RAX, PUSH_RAX,
};
use crate::counters;
use crate::followed::{FollowedCall, SLOT, frames, leave, now, restore, set_frames};
use crate::trampoline::Trampoline;
use tiptoe_wire::calls::{BY_ITSELF, FRAME_BYTES, HASH, TABLE_BITS, UNCOUNTED, words};

impl Trampoline {
    pub(crate) fn call(&mut self, call: &FollowedCall, abi: &Abi, copy: &Trampoline) {
        let missed = call.hits.emit_filter(&mut self.code);
        let (itself, missed) = match call.follows_by_itself() {
            true => (Some(self.by_itself(call, abi, copy, missed)), Vec::new()),
            false => (None, missed),
        };
        let code = &mut self.code;
        code.put(&[PUSH_RAX]);
        let cold = counters::load(code, abi.tls, true);
        let ready = code.len();
        let outside = call.hits.emit_under(code, true);
        let has_credit = call.jump_if_credit(code);
        let plain = code.len();
        if let Some(outside) = outside {
            code.bind(outside);
        }
        code.put(&[POP_RAX]);
        match itself {
            Some(_) => {
                code.jump_back(None, self.copy);
            }
            None => {
                for jump in missed {
                    code.bind(jump);
                }
                self.embed(copy);
            }
        }
        let code = &mut self.code;
        code.bind(has_credit);
        // With `--by`, %rcx and %rdx are already saved, and %rcx is the frame's last word.
        match call.by() {
            Some(_) => code.put(&[0x51]),
            None => code.put(&[0x51, 0x52]),
        };
        call.enter(code);
        frames(code, abi);
        code.put(&[0xf7, 0xc1]).put32(0xfff); // test $0xfff,%ecx
        let full = code.jump_ahead(IF_EQUAL, true);
        let stale = call.is_gate.then(|| jump_if_stale(code));
        let (another, look) = look_up(code, call);
        push_frame(code, abi, call);
        code.bind(another);
        let absent = next_entry(code, look);
        for jump in [full, absent].into_iter().chain(stale) {
            code.bind(jump);
        }
        let call_offsets = itself
            .as_ref()
            .map_or(&[][..], |itself| &itself.call_offsets);
        let slow_call = call_agent(code, call, call_offsets);
        code.put(&[0x5a, 0x59]);
        code.jump_back(None, plain);
        code.bind(cold);
        match call.by() {
            Some(_) => {
                let argument = call.hits.flags() | (call.slot + words::ONLY_COUNTED) as i32;
                counters::call_cold_by_value(code, [ready, plain], argument, abi.tls);
            }
            None => {
                counters::unless_child(code, plain);
                code.put(&[0x51, 0x52]);
                code.put(&[0x68]).put32(call.slow_argument(UNCOUNTED));
                code.jump_back(None, slow_call.again);
            }
        }
        let exit = match itself {
            Some(itself) => {
                for call in itself.call_jumps {
                    code.bind_at(call, self.copy);
                }
                itself.exit
            }
            None => {
                let exit = code.len();
                leave(code, call, abi);
                exit
            }
        };
        code.bind_at(slow_call.copy, self.copy);
        code.bind_at(slow_call.exit, exit);
    }
}

/// Points %rax to the table's entry for this probe and return address. Returns the rare jump for another key, and the
/// comparison's offset.
fn look_up(code: &mut Code, call: &FollowedCall) -> (ForwardJump, usize) {
    let slot = SLOT + 8 * u8::from(call.by().is_some());
    code.put(&[0x48, 0xba])
        .put(&(u64::from(call.probe) << 47).to_le_bytes());
    code.put(&[0x48, 0x03, 0x54, 0x24, slot]); // add SLOT(%rsp),%rdx
    code.put(&[0x48, 0xb8]).put(&HASH.to_le_bytes()); // movabs $HASH,%rax
    code.put(&[0x48, 0x0f, 0xaf, 0xc2]); // imul %rdx,%rax
    code.put(&[0x48, 0xc1, 0xe8, 64 - TABLE_BITS]); // shr
    code.put(&[0x48, 0xc1, 0xe0, 4]); // shl $4,%rax
    code.relative(&[0x48, 0x03, 0x05], LinkTarget::Table, &[]); // add TABLE(%rip),%rax
    let look = code.len();
    code.put(&[0x48, 0x39, 0x10]); // cmp %rdx,(%rax)
    (code.jump_ahead(IF_NOT_EQUAL, true), look)
}

fn next_entry(code: &mut Code, look: usize) -> ForwardJump {
    code.put(&[0x48, 0x83, 0x38, 0]); // cmpq $0,(%rax)
    let absent = code.jump_ahead(IF_EQUAL, false);
    code.put(&[0x48, 0x83, 0xc0, 16]); // add $16,%rax
    code.jump_back(None, look);
    absent
}

fn push_frame(code: &mut Code, abi: &Abi, call: &FollowedCall) {
    code.put(&[0x48, 0x8b, 0x40, 8]); // mov 8(%rax),%rax
    code.put(&[0x48, 0x83, 0xc1, FRAME_BYTES]); // add $FRAME,%rcx
    set_frames(code, abi);
    code.put(&[0x48, 0x89, 0x41, 0xe8]); // mov %rax,-24(%rcx): the thunk
    match call.by() {
        Some(_) => code.put(&[0x8f, 0x41, 0xf8]), // popq -8(%rcx): its set, no time in callees
        None => code.put(&[0x48, 0xc7, 0x41, 0xf8]).put32(0), // movq $0,-8(%rcx): time in callees
    };
    match call {
        FollowedCall { is_gate: true, .. } => counters::of_thread(code, abi.tls),
        FollowedCall { is_timed: true, .. } => now(code),
        _ => {}
    }
    if call.is_gate || call.is_timed {
        code.put(&[0x48, 0x89, 0x41, 0xf0]); // mov %rax,-16(%rcx)
    }
    code.put(&[0x48, 0x8d, 0x44, 0x24, SLOT]); // lea SLOT(%rsp),%rax
    code.put(&[0x48, 0x89, 0x41, 0xe0]); // mov %rax,-32(%rcx): last
    code.put(&[0xff, 0x61, 0xe8]); // jmp *-24(%rcx)
}

struct SlowCall {
    again: usize,
    copy: ForwardJump,
    exit: ForwardJump,
}

/// Jumps if the uppermost frame's call is not above this call on the stack. Then a `longjmp` may have ended that call
/// without closing its gate.
fn jump_if_stale(code: &mut Code) -> ForwardJump {
    code.put(&[0x48, 0x8b, 0x41, 0xe0]); // mov -32(%rcx),%rax
    code.put(&[0x48, 0xff, 0xc8]); // dec %rax: 0 (no frame) becomes the highest address
    code.put(&[0x48, 0x8d, 0x54, 0x24, SLOT]); // lea SLOT(%rsp),%rdx
    code.put(&[0x48, 0x39, 0xd0]); // cmp %rdx,%rax
    code.jump_ahead(IF_BELOW, true)
}

/// Has the agent push the frame. Passes the copy in %rax, the exit in %rdx, and the probe's number plus the frame's
/// last word in %rcx. The agent returns in %rax the thunk, 0, or `BY_ITSELF` plus an index into `call_offsets`.
fn call_agent(code: &mut Code, call: &FollowedCall, call_offsets: &[usize]) -> SlowCall {
    let known = call.by().is_none();
    if known {
        code.put(&[0x68]).put32(call.slow_argument(0));
    }
    let again = code.len();
    let copy = code.field_ahead(&[0x48, 0x8d, 0x05]); // lea copy(%rip),%rax
    let exit = code.field_ahead(&[0x48, 0x8d, 0x15]); // lea exit(%rip),%rdx
    match call.by() {
        Some(_) => code.put(&[0x59, 0x48, 0x81, 0xc1]), // pop %rcx; add $probe,%rcx
        None => code.put(&[0xb9]),                      // mov $probe,%ecx
    };
    code.put32(call.probe as i32);
    if !known {
        code.put(&[0x68]).put32(call.slow_argument(0));
    }
    code.relative(&[0xe8], LinkTarget::Slow, &[]);
    code.put(&[0x48, 0x85, 0xc0]); // test %rax,%rax
    let over = code.jump_ahead(IF_EQUAL, false);
    for (way, call_offset) in (BY_ITSELF..).zip(call_offsets) {
        code.put(&[0x48, 0x83, 0xf8, way as u8]); // cmp $BY_ITSELF,%rax
        let thunk = code.jump_ahead(IF_NOT_EQUAL, false);
        restore(code);
        code.jump_back(None, *call_offset);
        code.bind(thunk);
    }
    code.put(&[0xff, 0xe0]); // jmp *%rax
    code.bind(over);
    SlowCall { again, copy, exit }
}
