//! Relocation must not panic. A patch's copy must decode to the displaced (overwritten) instructions with the same
//! operands. But branches have their near form, and a call becomes a push of the return address and a jump. The
//! input's first three bytes choose the function's size, the patch's offset, and what the patch does.
#![no_main]

#[path = "../../crates/code/patch/tests/traps/mod.rs"]
mod traps;

use iced_x86::{Code, Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};
use libfuzzer_sys::fuzz_target;
use tiptoe_patch::{
    Abi, Body, FunctionCode, Hits, Notice, Patch, Planner, Space, Strategy, futex_sites, padding,
    shape, syscall_sites,
};
use tiptoe_wire::AgentAddresses;
use traps::traps_at;

const AT: u64 = 0x5555_5555_0000;
const GIB: u64 = 1 << 30;
const JUMP: u8 = 0xe9;
const CALL: u8 = 0xe8;

fn planner() -> Planner {
    let space = Space {
        preferred: std::iter::once(AT - 3 * GIB..AT - 4096).collect(),
        last_resort: std::iter::once(AT + 4096..AT + 3 * GIB).collect(),
        ..Space::default()
    };
    Planner::new(
        Abi {
            tls: -64,
            frames: -72,
            agent: AgentAddresses {
                cold_entry: AT,
                hook_entry: AT,
                slow_entry: AT,
                time_entry: AT,
                futex_entry: AT,
                ..AgentAddresses::default()
            },
        },
        space,
    )
}

fuzz_target!(|input: &[u8]| {
    let Some((&[size, offset, kind], bytes)) = input.split_first_chunk::<3>() else {
        return;
    };
    let bytes = &bytes[..bytes.len().min(64)];
    let function = FunctionCode {
        address: AT,
        bytes,
        size: size.into(),
    };
    let islands = Vec::from_iter(padding(&function));
    let mut planner = planner();
    if let Ok(shape) = shape(&function, usize::from(offset % 32)) {
        let shape = if kind & 1 == 0 {
            shape
        } else {
            shape.preserving_everything()
        };
        let filter = (kind & 2 != 0).then(|| "arg1 > 4096 || arg0:u8 == 3".parse().expect("one"));
        let body = Body::Count {
            slot: kind.into(),
            hits: Hits::filtered(filter),
        };
        if let Ok(patch) = planner.plan(&shape, &body, || islands.clone()) {
            check(&patch, bytes);
        }
    }
    for site in syscall_sites(&function, &[0, 1, 2]) {
        let (nr, recall) = (site.nr, Some(0));
        let _ = planner.plan(&site.shape, &Body::Syscall { nr, recall }, || {
            islands.clone()
        });
    }
    for site in futex_sites(&function, |_| Some(function)) {
        for shape in site.after_call.iter().chain([&site.call.shape]) {
            let body = Body::Futex(Notice::before_call(8, true));
            let _ = planner.plan(shape, &body, || islands.clone());
        }
    }
});

fn check(patch: &Patch, bytes: &[u8]) {
    let leads = match patch.strategy {
        Strategy::Jump => {
            // A call is patched with a call. If another tool restores the first byte, the byte does not change.
            let called = patch.patched[0] == CALL && patch.original[0] == CALL;
            assert!(called || patch.patched[0] == JUMP);
            landing(&patch.patched, patch.site)
        }
        Strategy::Short => {
            let island = patch
                .island
                .as_ref()
                .expect("a short jump goes to an island");
            let to = (patch.site + 2).wrapping_add_signed((patch.patched[1] as i8).into());
            assert_eq!((to, island.patched[0]), (island.address, JUMP));
            landing(&island.patched, island.address)
        }
        Strategy::Trap => patch.trampoline,
    };
    assert_eq!(leads, patch.trampoline);
    let inner = &patch.heads[1..];
    // A head (trap byte) that resumes at the copy's start guards against a tool that restores the first byte. It
    // may be an invalid operand instead of a trap.
    let mut heads = inner.iter().filter(|h| h.resume != patch.copy);
    assert!(heads.all(|h| traps_at(patch, h.offset)));
    let start = (patch.site - AT) as usize;
    let repeated = usize::from(patch.repeated);
    let displaced = &bytes[start - repeated..start + usize::from(patch.displaced)];
    let from = patch.site - repeated as u64;
    let original = Decoder::with_ip(64, displaced, from, DecoderOptions::NONE);
    Copy::new(patch).check(patch, original);
}

fn landing(jump: &[u8], at: u64) -> u64 {
    let field: [u8; 4] = jump[1..5].try_into().expect("four bytes");
    (at + 5).wrapping_add_signed(i32::from_le_bytes(field).into())
}

struct Copy<'p>(Decoder<'p>);

impl<'p> Copy<'p> {
    fn new(patch: &'p Patch) -> Copy<'p> {
        let (from, at) = (
            usize::from(patch.copy),
            patch.trampoline + u64::from(patch.copy),
        );
        Copy(Decoder::with_ip(
            64,
            &patch.code[from..],
            at,
            DecoderOptions::NONE,
        ))
    }

    fn check(mut self, patch: &Patch, original: Decoder) {
        let mut falls_through = true;
        for want in original {
            assert!(!want.is_invalid());
            let offset = want.ip().wrapping_sub(patch.site) as u8;
            if let Some(head) = patch.heads[1..].iter().find(|h| h.offset == offset) {
                assert_eq!(patch.trampoline + u64::from(head.resume), self.0.ip());
            }
            falls_through = self.matches(&want);
        }
        if falls_through {
            self.jumps_to(patch.site + u64::from(patch.displaced));
        }
    }

    fn next(&mut self) -> Instruction {
        let next = self.0.decode();
        assert!(!next.is_invalid());
        next
    }

    /// Returns whether control continues after `want`.
    fn matches(&mut self, want: &Instruction) -> bool {
        if want.is_call_near() || want.is_call_near_indirect() {
            self.pushes(want.next_ip());
            let jump = self.next();
            match want.is_call_near() {
                true => assert_eq!(jump.near_branch_target(), want.near_branch_target()),
                false => same_operands(want, &jump),
            }
            assert!(jump.is_jmp_near() || jump.is_jmp_near_indirect());
            return false;
        }
        let have = self.next();
        assert_eq!(have.mnemonic(), want.mnemonic());
        if want.is_jcx_short() || want.is_loop() || want.is_loopcc() {
            self.hops(&have, want.near_branch_target());
        } else if want.op0_kind() == OpKind::NearBranch64 {
            assert_eq!(have.near_branch_target(), want.near_branch_target());
        } else {
            assert_eq!(have.code(), want.code());
            same_operands(want, &have);
        }
        use iced_x86::FlowControl::{Exception, IndirectBranch, Return, UnconditionalBranch};
        !matches!(
            have.flow_control(),
            Exception | IndirectBranch | Return | UnconditionalBranch
        )
    }

    /// Checks a short branch's copy, `op +2; jmp +5; jmp near`: if `op` branches, the copy must continue at
    /// `target`.
    fn hops(&mut self, short: &Instruction, target: u64) {
        let over = self.next();
        let taken = over.next_ip();
        assert_eq!(short.near_branch_target(), taken);
        self.jumps_to(target);
        assert_eq!(
            (over.mnemonic(), over.near_branch_target()),
            (Mnemonic::Jmp, self.0.ip())
        );
    }

    fn jumps_to(&mut self, target: u64) {
        let jump = self.next();
        assert_eq!(
            (jump.mnemonic(), jump.near_branch_target()),
            (Mnemonic::Jmp, target)
        );
    }

    /// Checks `push imm32`, and a store of the upper half if the push's sign extension is not already that half.
    fn pushes(&mut self, address: u64) {
        let push = self.next();
        assert_eq!(push.code(), Code::Pushq_imm32);
        let mut pushed = push.immediate32to64() as u64;
        if pushed != address {
            let high = self.next();
            assert_eq!(high.code(), Code::Mov_rm32_imm32);
            assert_eq!(
                (high.memory_base(), high.memory_displacement64()),
                (Register::RSP, 4)
            );
            pushed = pushed & 0xffff_ffff | u64::from(high.immediate32()) << 32;
        }
        assert_eq!(pushed, address);
    }
}

/// Operands relative to the instruction pointer must have the same address.
fn same_operands(want: &Instruction, have: &Instruction) {
    assert_eq!(have.op_count(), want.op_count());
    for operand in 0..want.op_count() {
        assert_eq!(have.op_kind(operand), want.op_kind(operand));
        match want.op_kind(operand) {
            OpKind::Register => assert_eq!(have.op_register(operand), want.op_register(operand)),
            OpKind::Memory => same_memory(want, have),
            kind if is_immediate(kind) => {
                assert_eq!(have.immediate(operand), want.immediate(operand));
            }
            _ => {}
        }
    }
    assert_eq!(have.segment_prefix(), want.segment_prefix());
    let prefixes = |i: &Instruction| {
        (
            i.has_rep_prefix(),
            i.has_repne_prefix(),
            i.has_lock_prefix(),
        )
    };
    assert_eq!(prefixes(have), prefixes(want));
}

fn same_memory(want: &Instruction, have: &Instruction) {
    let place = |i: &Instruction| (i.memory_base(), i.memory_index(), i.memory_index_scale());
    assert_eq!(place(have), place(want));
    assert_eq!(have.memory_displacement64(), want.memory_displacement64());
}

fn is_immediate(kind: OpKind) -> bool {
    use OpKind::*;
    matches!(
        kind,
        Immediate8
            | Immediate8_2nd
            | Immediate16
            | Immediate32
            | Immediate64
            | Immediate8to16
            | Immediate8to32
            | Immediate8to64
            | Immediate32to64
    )
}
