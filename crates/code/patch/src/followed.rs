//! Code shared by [`crate::by_itself`] and [`crate::timed`] (with the invariants), which follow calls to their returns.

use tiptoe_wire::Geometry;
use tiptoe_wire::calls::{FRAME_BYTES, GATE, MAX_PROBES, MAX_SLOT, RETURNING, TIMED, UNDER, words};

use crate::Refusal;
use crate::abi::Abi;
use crate::code::{Code, ForwardJump, IF_GREATER, IF_NOT_EQUAL, LinkTarget};
use crate::counters;
use crate::hits::{GroupValue, Hits};
use crate::timed_values;

#[derive(Clone, Copy, Debug)]
pub(crate) struct FollowedCall {
    pub(crate) slot: u32,
    pub(crate) probe: u32,
    pub(crate) is_timed: bool,
    pub(crate) is_gate: bool,
    pub(crate) hits: Hits,
}

/// The return address's offset from %rsp, after three registers are pushed.
pub(crate) const SLOT: u8 = 24;

const INSIDE: u8 = Geometry::INSIDE as u8 * 8;

pub(crate) const KEEP_RAX: [u8; 5] = [0x48, 0x89, 0x44, 0x24, 0xf8]; // mov %rax,-8(%rsp)
pub(crate) const TAKE_RAX: [u8; 5] = [0x48, 0x8b, 0x44, 0x24, 0xf8]; // mov -8(%rsp),%rax
pub(crate) const FRAMES_IN_RAX: [u8; 5] = [0x64, 0x48, 0x8b, 0x04, 0x25]; // mov %fs:frames,%rax
pub(crate) const RAX_IN_FRAMES: [u8; 5] = [0x64, 0x48, 0x89, 0x04, 0x25]; // mov %rax,%fs:frames

impl FollowedCall {
    pub(crate) fn new(slot: u32, probe: u32) -> Result<FollowedCall, Refusal> {
        let end = slot.checked_add(words::ALL);
        match end.is_some_and(|end| end < MAX_SLOT) && probe < MAX_PROBES {
            true => Ok(FollowedCall {
                slot,
                probe,
                is_timed: false,
                is_gate: false,
                hits: Hits::default(),
            }),
            false => Err(Refusal::Slot { slot }),
        }
    }

    pub(crate) fn slow_argument(&self, more: i32) -> i32 {
        let flags = [
            (self.is_timed, TIMED),
            (self.is_gate, GATE),
            (self.hits.under, UNDER),
        ];
        let flags = flags.into_iter().filter(|(set, _)| *set);
        flags.fold(self.slot as i32 | more, |argument, (_, flag)| {
            argument | flag
        })
    }

    pub(crate) fn follows_by_itself(&self) -> bool {
        !self.is_gate && self.by().is_none()
    }

    pub(crate) fn by(&self) -> Option<GroupValue> {
        self.hits.by.filter(|_| self.is_timed)
    }

    /// Jumps if the thread has credit (may still follow calls), or for a gate (the function of `--under`). Otherwise
    /// only counts the call.
    pub(crate) fn jump_if_credit(&self, code: &mut Code) -> ForwardJump {
        if self.is_gate {
            return code.field_ahead(&[0xe9]); // jmp
        }
        if let Some(by) = self.by() {
            code.put(&[0x51, 0x52]);
            let has_credit = timed_values::jump_if_credit(code, by, self.slot);
            code.put(&[0x5a, 0x59]);
            return has_credit;
        }
        code.put(&[0x48, 0x83, 0x38, 0]); // cmpq $0,(%rax): the credit
        let has_credit = code.jump_ahead(IF_GREATER, true);
        count(code, self.slot + words::ONLY_COUNTED);
        has_credit
    }

    pub(crate) fn enter(&self, code: &mut Code) {
        match self.is_gate {
            true => code.put(&[0xf0, 0x48, 0xff, 0x40, INSIDE]), // lock incq INSIDE(%rax)
            false => code.put(&[0x48, 0xff, 0x08]),              // decq (%rax)
        };
        let word = self.slot + words::CALLS;
        match self.by() {
            Some(_) => timed_values::count(code, word),
            None => count(code, word),
        }
    }

    /// Ends a gate's call. Jumps if the agent (our library) must, because the call began on another thread or in an
    /// earlier session.
    fn ends(&self, code: &mut Code, abi: &Abi) -> [ForwardJump; 2] {
        let none = counters::load(code, abi.tls, true);
        code.put(&[0x48, 0x3b, 0x41, 0xf0]); // cmp -16(%rcx),%rax: the frame's counters?
        let other = code.jump_ahead(IF_NOT_EQUAL, true);
        remove_frame(code);
        code.put(&[0xf0, 0x48, 0xff, 0x48, INSIDE]); // lock decq INSIDE(%rax)
        count(code, self.slot + words::RETURNS);
        [none, other]
    }
}

pub(crate) fn save(code: &mut Code) {
    code.put(&[0x50, 0x51, 0x52]);
}

pub(crate) fn restore(code: &mut Code) {
    code.put(&[0x5a, 0x59, 0x58]);
}

pub(crate) fn count(code: &mut Code, word: u32) {
    counters::increment(code, word as i32 * 8);
}

pub(crate) fn now(code: &mut Code) {
    code.put(&[0x0f, 0x31, 0x48, 0xc1, 0xe2, 32, 0x48, 0x09, 0xd0]);
}

pub(crate) fn frames(code: &mut Code, abi: &Abi) {
    code.put(&[0x64, 0x48, 0x8b, 0x0c, 0x25]).put32(abi.frames);
}

pub(crate) fn set_frames(code: &mut Code, abi: &Abi) {
    code.put(&[0x64, 0x48, 0x89, 0x0c, 0x25]).put32(abi.frames);
}

/// Must come after the last jump to the agent, which looks for the frame. See invariant 3 of [`crate::timed`].
fn remove_frame(code: &mut Code) {
    code.put(&[0x48, 0xc7, 0x41, 0xe0]).put32(0); // movq $0,-32(%rcx)
}

pub(crate) fn leave(code: &mut Code, call: &FollowedCall, abi: &Abi) {
    if !call.is_timed && !call.is_gate {
        return leave_untimed(code, call, abi);
    }
    code.set_unwind_state(0, 0);
    save(code);
    frames(code, abi);
    code.put(&[0x48, 0x8d, 0x54, 0x24, SLOT]); // lea SLOT(%rsp),%rdx
    code.put(&[0x48, 0x39, 0x51, 0xe0]); // cmp %rdx,-32(%rcx)
    let mut odd = vec![code.jump_ahead(IF_NOT_EQUAL, true)];
    let mut ended = None;
    if call.is_timed {
        remove_frame(code);
        ended = Some(counters::load(code, abi.tls, false));
        now(code);
        code.put(&[0x48, 0x2b, 0x41, 0xf0]); // sub -16(%rcx),%rax
        match call.by() {
            Some(_) => timed_values::load_set(code, call.slot),
            None => {
                code.put(&[0xba]).put32(call.slot as i32 * 8); // mov $words,%edx
            }
        }
        code.relative(&[0xe8], LinkTarget::Time, &[]);
    } else {
        odd.extend(call.ends(code, abi));
    }
    if let Some(ended) = ended {
        code.bind(ended);
    }
    code.put(&[0x48, 0x83, 0xc1, FRAME_BYTES.wrapping_neg()]); // add $-FRAME,%rcx
    set_frames(code, abi);
    let out = code.len();
    restore(code);
    code.put(&[0xc3]);
    for jump in odd {
        code.bind(jump);
    }
    code.put(&[0x68])
        .put32(call.slow_argument(RETURNING))
        .relative(&[0xe8], LinkTarget::Slow, &[]);
    code.jump_back(None, out);
}

/// If the thread has no counters, an earlier session counted the call's entry, so the return is not counted.
fn leave_untimed(code: &mut Code, call: &FollowedCall, abi: &Abi) {
    code.set_unwind_state(0, 0);
    code.put(&KEEP_RAX);
    code.put(&FRAMES_IN_RAX).put32(abi.frames);
    code.put(&[0x48, 0x39, 0x60, 0xe0]); // cmp %rsp,-32(%rax): is the uppermost frame this call's?
    let odd = code.jump_ahead(IF_NOT_EQUAL, false);
    code.put(&[0x48, 0xc7, 0x40, 0xe0]).put32(0); // movq $0,-32(%rax): before the count
    code.put(&[0x48, 0x83, 0xc0, FRAME_BYTES.wrapping_neg()]); // add $-FRAME,%rax
    code.put(&RAX_IN_FRAMES).put32(abi.frames);
    let none = counters::load(code, abi.tls, false);
    count(code, call.slot + words::RETURNS);
    code.bind(none);
    code.put(&TAKE_RAX);
    let out = code.len();
    code.put(&[0xc3]);
    code.bind(odd);
    code.put(&TAKE_RAX);
    save(code);
    code.put(&[0x68])
        .put32(call.slow_argument(RETURNING))
        .relative(&[0xe8], LinkTarget::Slow, &[]);
    restore(code);
    code.jump_back(None, out);
}
