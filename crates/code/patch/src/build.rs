//! Builds the part of a trampoline (the code that counts) before the displaced (overwritten) instructions. `COLD` and
//! `HOOK` are entries of the agent, our library in the target ([`tiptoe_wire::AgentAddresses`]).
//!
//! A count, at a function's entry:
//! ```text
//!         [filter: compares, and branches to `pass`]
//!         push %rax
//!         the thread's counters, or 0: cold
//!         [for `--under`: cmpq $0,INSIDE(%rax); je out]
//!         incq 8*slot(%rax)          or by a value (`values`), or a record (`recorded`)
//! out:    pop  %rax
//! pass:   the displaced instructions
//!         jmp  after them
//! cold:   [GATE's byte is 0, in a forked child: out]
//!         push $slot
//!         call COLD                  returns by `ret $8`
//!         jmp  out
//! ```
//! If the displaced instructions start with a call, the patch calls the trampoline, and `pass` is a `jmp` to the
//! callee. A thread that trapped at the patch has pushed no return address, so it resumes at a push of that address.
//!
//! Inside a function the trampoline first steps over the red zone and saves the flags. At `pass` it undoes both.
//!
//! Before a system call (the flags are free, because later code does not read them):
//! ```text
//!         the program's code up to the `syscall`
//!         [any number: cmp $512,%eax; jae call; bt %eax,numbers(%rip); jae call]
//! again:  lea  -128(%rsp),%rsp       the red zone
//!         push $nr
//!         call HOOK
//! back:   lea  128(%rsp),%rsp
//! +8      cmpl $0,%fs:recall         has the agent held back a signal since HOOK?
//! +17     jne  again
//! +19     jmp  the `syscall`         (`jmp rel32`, which the agent reads)
//! +24     nop                        unwinders look up the byte before a return address
//! +25     lea  128(%rsp),%rsp        the hook returns here if it made the call
//!         jmp  after the `syscall`
//! call:   jmp  the `syscall`
//! ```
//! Outside libc a nop of the same length replaces the recall check, and $nr has the flag `NOT_LIBCS`. From `back + 8`
//! to the `syscall` every register has the program's value.

use tiptoe_wire::calls::{MAX_SLOT, NOT_LIBCS, RECORDS, intercepted};

use crate::Refusal;
use crate::abi::Abi;
use crate::body::Body;
use crate::code::{
    Code, IF_EQUAL, IF_NOT_EQUAL, LinkTarget, NOT_BELOW, POP_RAX, PUSH_RAX, STEP_BACK,
    STEP_OVER_RED_ZONE,
};
use crate::counters;
use crate::filter;
use crate::followed::FollowedCall;
use crate::futex;
use crate::guard::Guard;
use crate::hits::{GroupValue, Hits};
use crate::recorded::RareJumps;
use crate::relocate::push_return;
use crate::shape::{Shape, Step, Window};
use crate::trampoline::Trampoline;
use crate::values;

const PUSH_FLAGS: u8 = 0x9c;
const POP_FLAGS: u8 = 0x9d;

pub(crate) fn build(
    shape: &Shape,
    window: &Window,
    body: &Body,
    abi: &Abi,
) -> Result<Trampoline, Refusal> {
    let mut trampoline = Trampoline::default();
    match *body {
        Body::Count { slot, hits } => {
            let what = match hits.by {
                Some(by) => HitAction::ByValue(by),
                None => HitAction::Count,
            };
            trampoline.hit(&Hit::new(what, slot, hits)?, shape, window, abi);
        }
        Body::Record { slot, ring, hits } => {
            let hit = Hit::new(HitAction::Record { ring }, slot, hits)?;
            trampoline.hit(&hit, shape, window, abi);
        }
        Body::Call {
            slot,
            probe,
            timed,
            hits,
        } => {
            let call = FollowedCall {
                is_timed: timed,
                hits,
                ..FollowedCall::new(slot, probe)?
            };
            let mut copy = Trampoline::default();
            copy.displaced(shape, window);
            trampoline.call(&call, abi, &copy);
        }
        Body::Gate { slot, probe } => {
            let call = FollowedCall {
                is_gate: true,
                ..FollowedCall::new(slot, probe)?
            };
            let mut copy = Trampoline::default();
            copy.displaced(shape, window);
            trampoline.call(&call, abi, &copy);
        }
        Body::Intercept { what, .. } => {
            intercept(&mut trampoline.code, what);
            let early = trampoline.code.jump_ahead(IF_EQUAL, true);
            trampoline.displaced(shape, window);
            trampoline.code.bind(early);
            trampoline.code.put(&[0xc3]);
        }
        Body::Syscall { nr, recall } => {
            let after_call = before_call(&mut trampoline.code, shape)?;
            let what = recall.map_or(nr | NOT_LIBCS, |_| nr);
            hook(
                &mut trampoline.code,
                what as i32,
                recall,
                shape.site,
                after_call,
            );
        }
        Body::SyscallAny {
            numbers,
            recall,
            futex,
        } => {
            let code = &mut trampoline.code;
            let after_call = before_call(code, shape)?;
            futex::if_any(code, futex, after_call);
            code.put(&[0x3d]).put32(512);
            let high = code.jump_ahead(NOT_BELOW, true);
            let table = code.field_ahead(&[0x0f, 0xa3, 0x05]);
            let unset = code.jump_ahead(NOT_BELOW, true);
            hook(code, -1, Some(recall), shape.site, after_call);
            code.bind(high);
            code.bind(unset);
            code.relative(&[0xe9], LinkTarget::Address(after_call - 2), &[]);
            code.bind(table);
            for word in numbers {
                code.put(&word.to_le_bytes());
            }
        }
        Body::Hold { notice, filter } => {
            let code = &mut trampoline.code;
            let missed = filter::emit(code, &filter);
            futex::notify(code, notice);
            for jump in missed {
                code.bind(jump);
            }
            trampoline.displaced(shape, window);
        }
        // Without `after_syscall` only the number's `push` is displaced, because another function makes the call.
        Body::Futex(notice) if notice.is_after_call() || shape.after_syscall.is_none() => {
            futex::notify(&mut trampoline.code, notice);
            trampoline.displaced(shape, window);
        }
        Body::Futex(notice) => {
            let code = &mut trampoline.code;
            let after_call = before_call(code, shape)?;
            futex::if_any(code, Some(notice), after_call);
            code.relative(&[0xe9], LinkTarget::Address(after_call - 2), &[]);
        }
    }
    Ok(trampoline)
}

/// Calls the hook at a function's entry, and keeps the flags, its answer. The displaced instructions' copy must begin
/// 14 bytes after the hook's return address, because the agent calls the copy there.
fn intercept(code: &mut Code, what: u32) {
    code.put(&STEP_OVER_RED_ZONE)
        .put(&[0x68])
        .put32((what | intercepted::FUNCTION) as i32);
    code.relative(&[0xe8], LinkTarget::Hook, &[])
        .put(&STEP_BACK);
}

/// Returns the address after the system call.
fn before_call(code: &mut Code, shape: &Shape) -> Result<u64, Refusal> {
    for step in &shape.run {
        code.set_unwind_state(step.offset, 0).append(&step.copy);
    }
    let end = shape.run.last().map_or(0, Step::end);
    code.set_unwind_state(end, 0);
    shape.after_syscall.ok_or(Refusal::NotSyscall)
}

/// No-operations as long as the recall check, because the agent relies on distances in this code.
const NO_RECALL: [u8; 11] = [0x66, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0, 0x66, 0x90];

fn hook(code: &mut Code, what: i32, recall: Option<i32>, site: u64, after_call: u64) {
    const RED_ZONE: i64 = 128;
    let again = code.len();
    code.put(&STEP_OVER_RED_ZONE).put(&[0x68]).put32(what);
    code.relative(&[0xe8], LinkTarget::Hook, &[])
        .put(&STEP_BACK);
    if let Some(recall) = recall {
        code.put(&[0x64, 0x83, 0x3c, 0x25]).put32(recall).put(&[0]);
        code.jump_back(Some(IF_NOT_EQUAL), again);
    } else {
        code.put(&NO_RECALL);
    }
    code.relative(&[0xe9], LinkTarget::Address(after_call - 2), &[]);
    let call = (after_call - 2 - site) as usize;
    code.set_unwind_state(call, RED_ZONE + 8).put(&[0x90]);
    code.set_unwind_state(call, RED_ZONE).put(&STEP_BACK);
    code.relative(&[0xe9], LinkTarget::Address(after_call), &[]);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HitAction {
    Count,
    ByValue(GroupValue),
    Record { ring: u32 },
}

struct Hit {
    what: HitAction,
    slot: u32,
    hits: Hits,
}

impl Hit {
    fn new(what: HitAction, slot: u32, hits: Hits) -> Result<Hit, Refusal> {
        let hit = (slot < MAX_SLOT).then_some(Hit { what, slot, hits });
        hit.ok_or(Refusal::Slot { slot })
    }

    fn cold_argument(&self) -> i32 {
        let records = match self.what {
            HitAction::Record { .. } => RECORDS,
            _ => 0,
        };
        self.slot as i32 | self.hits.flags() | records
    }

    /// %rax must point to the counters.
    fn emit(&self, code: &mut Code) -> Option<RareJumps> {
        let cell = self.slot as i32 * 8;
        match self.what {
            HitAction::Count => counters::increment(code, cell),
            HitAction::ByValue(by) => values::emit(code, by, cell),
            HitAction::Record { ring } => return Some(RareJumps::emit(code, self.slot, ring)),
        }
        None
    }
}

impl Trampoline {
    fn uncalled(&mut self, call: &Step, return_address: u64) {
        self.copy = self.code.len();
        self.code.set_unwind_state(0, 0).append(&call.copy);
        self.trapped = self.code.len();
        self.code.set_unwind_state(0, 0);
        push_return(&mut self.code, return_address);
        self.code.jump_back(None, 0);
    }

    fn hit(&mut self, hit: &Hit, shape: &Shape, window: &Window, abi: &Abi) {
        let first = &shape.run[0];
        let called = first
            .target
            .filter(|_| matches!(window.guard, Guard::Call { .. }));
        let mut copy = Trampoline::default();
        match called {
            Some(callee) => {
                copy.code
                    .relative(&[0xe9], LinkTarget::Address(callee), &[]);
            }
            None => copy.displaced(shape, window),
        }
        self.around(hit, shape.entry, abi, &copy);
        if called.is_some() {
            self.uncalled(first, shape.displaced_end(window));
        }
    }

    fn around(&mut self, hit: &Hit, entry: bool, abi: &Abi, copy: &Trampoline) {
        let code = &mut self.code;
        if !entry {
            code.put(&STEP_OVER_RED_ZONE).put(&[PUSH_FLAGS]);
        }
        let missed = hit.hits.emit_filter(code);
        code.put(&[PUSH_RAX]);
        let long = hit.what != HitAction::Count;
        let cold = counters::load(code, abi.tls, long || copy.code.len() > 90);
        let ready = code.len();
        let outside = hit.hits.emit_under(code, long);
        let recorded = hit.emit(code);
        if let Some(outside) = outside {
            code.bind(outside);
        }
        let out = code.len();
        code.put(&[POP_RAX]);
        for jump in missed {
            code.bind(jump);
        }
        if !entry {
            code.put(&[POP_FLAGS]).put(&STEP_BACK);
        }
        self.embed(copy);
        self.hot = self.code.len();
        let code = &mut self.code;
        if let Some(recorded) = recorded {
            recorded.otherwise(code, out);
        }
        code.bind(cold);
        match hit.what {
            HitAction::ByValue(_) => {
                counters::call_cold_by_value(code, [ready, out], hit.cold_argument(), abi.tls)
            }
            _ => {
                counters::call_cold(code, out, hit.cold_argument());
                code.jump_back(None, out);
            }
        }
    }
}
