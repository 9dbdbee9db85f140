//! Reads unwind information back with gimli, as an unwinder does.

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, LittleEndian, Operation, Register, RegisterRule,
    UnwindContext, UnwindSection, X86_64,
};

use super::*;
use crate::abi::Abi;
use crate::body::Body;
use crate::decode::FunctionCode;
use crate::entry::shape;
use crate::plan::{Patch, Planner};
use crate::{GroupValue, Hits, Space};

const SITE: u64 = 0x5555_5555_0000;

fn patch(bytes: &[u8], offset: usize, body: &Body) -> Patch {
    let function = FunctionCode {
        address: SITE,
        bytes,
        size: bytes.len(),
    };
    let free = SITE - (1 << 30)..SITE - 0x1_0000;
    let space = Space {
        preferred: vec![free],
        ..Space::default()
    };
    let shape = shape(&function, offset).expect("a shape");
    let mut planner = Planner::new(Abi::default(), space);
    planner.plan(&shape, body, Vec::new).expect("room")
}

fn position(patch: &Patch, offset: usize) -> (u64, i64) {
    let (at, bytes) = (patch.unwind.address, &patch.unwind.bytes);
    let bases = BaseAddresses::default().set_eh_frame_hdr(at);
    let header = EhFrameHdr::new(bytes, LittleEndian);
    let header = header.parse(&bases, 8).expect("a header");
    let gimli::Pointer::Direct(frames) = header.eh_frame_ptr() else {
        panic!("no pointer");
    };
    let section = EhFrame::new(&bytes[(frames - at) as usize..], LittleEndian);
    let bases = bases.set_eh_frame(frames);
    let pc = patch.trampoline + offset as u64;
    let table = header.table().expect("a table");
    let fde = table.fde_for_address(&section, &bases, pc, |section, bases, at| {
        section.cie_from_offset(bases, at)
    });
    let fde = fde.expect("an FDE");
    assert!(fde.contains(pc));
    let mut context = UnwindContext::new();
    let row = fde.unwind_info_for_address(&section, &bases, &mut context, pc);
    let row = row.expect("a row");
    let CfaRule::RegisterAndOffset { register, offset } = row.cfa() else {
        panic!("{row:?}");
    };
    assert_eq!(*register, X86_64::RSP);
    let rule = |register: Register| row.register(register);
    if !fde.cie().is_signal_trampoline() {
        let offset = *offset;
        assert_eq!(rule(X86_64::RSP), Some(RegisterRule::ValOffset(-offset)));
        let Some(RegisterRule::Expression(expression)) = rule(X86_64::RA) else {
            panic!("{row:?}");
        };
        let expression = expression.get(&section).expect("in the section");
        let address = expression.operations(fde.cie().encoding()).next();
        let callers = [0, 1].map(|way| patch.callers + 8 * way);
        let Ok(Some(Operation::UnsignedConstant { value })) = address else {
            panic!("{address:?}");
        };
        let way = callers.iter().position(|caller| *caller == value);
        return (RETURNS + way.expect("a word of its own") as u64, offset);
    }
    assert_eq!(rule(X86_64::RSP), Some(RegisterRule::ValOffset(4)));
    let Some(RegisterRule::ValExpression(expression)) = rule(X86_64::RA) else {
        panic!("{row:?}");
    };
    let expression = expression.get(&section).expect("in the section");
    let address = expression.operations(fde.cie().encoding()).next();
    let Ok(Some(Operation::UnsignedConstant { value })) = address else {
        panic!("{address:?}");
    };
    (value - SITE, offset + 4)
}

const RETURNS: u64 = 1 << 32;

fn all(patch: &Patch) -> Vec<(String, u64, i64)> {
    let mut decoder = Decoder::with_ip(64, &patch.code, 0, DecoderOptions::NONE);
    let mut lines = Vec::new();
    while decoder.can_decode() {
        let instruction = decoder.decode();
        let (offset, depth) = position(patch, instruction.ip() as usize);
        let name = format!("{:?}", instruction.mnemonic()).to_lowercase();
        lines.push((name, offset, depth));
    }
    lines
}

fn check(patch: &Patch, want: &[(&str, u64, i64)]) {
    let lines = all(patch);
    let lines: Vec<_> = lines.iter().map(|(a, b, c)| (a.as_str(), *b, *c)).collect();
    assert_eq!(lines, want);
}

const ALL: Hits = Hits {
    filter: None,
    under: false,
    by: None,
};
const COUNT: Body = Body::Count { slot: 7, hits: ALL };

/// push %rbp; mov %rsp,%rbp; sub $16,%rsp; ret
const FUNCTION: [u8; 9] = [0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 16, 0xc3];

#[test]
fn a_count_at_an_entry() {
    let patch = patch(&FUNCTION, 0, &COUNT);
    let want = [
        ("push", 0, 0),
        ("mov", 0, 8),
        ("mov", 0, 8),
        ("test", 0, 8),
        ("je", 0, 8),
        ("inc", 0, 8),
        ("pop", 0, 8),
        ("push", 0, 0),
        ("mov", 1, 0),
        ("sub", 4, 0),
        ("jmp", 8, 0),
        ("mov", 0, 8),
        ("cmp", 0, 8),
        ("je", 0, 8),
        ("push", 0, 8),
        ("call", 0, 16),
        ("jmp", 0, 8),
    ];
    check(&patch, &want);
}

#[test]
fn a_count_that_keeps_everything() {
    // After mov $1,%eax; test %edi,%edi.
    let function = [&[0xb8, 1, 0, 0, 0, 0x85, 0xff][..], &FUNCTION].concat();
    let patch = patch(&function, 7, &COUNT);
    let lines = all(&patch);
    assert_eq!(lines[0], ("lea".to_owned(), 7, 0));
    assert_eq!(lines[1], ("pushfq".to_owned(), 7, 128));
    assert_eq!(lines[2], ("push".to_owned(), 7, 136));
    assert_eq!(lines[3], ("mov".to_owned(), 7, 144));
    assert!(lines.contains(&("call".to_owned(), 7, 152)));
    assert!(lines.contains(&("sub".to_owned(), 11, 0)));
}

#[test]
fn a_call_that_starts_the_window() {
    let function = [&[0xe8, 0, 0x20, 0, 0][..], &FUNCTION].concat();
    let patch = patch(&function, 0, &COUNT);
    assert_eq!(patch.patched[0], crate::strategy::CALL);
    let lines = all(&patch);
    assert_eq!(lines[0], ("push".to_owned(), 0, 8));
    assert_eq!(lines[6], ("pop".to_owned(), 0, 16));
    assert_eq!(lines[7], ("jmp".to_owned(), 0, 8));
    assert_eq!(position(&patch, patch.copy.into()), (0, 0));
    let trapped = patch.heads[0].resume;
    assert_eq!(position(&patch, trapped.into()), (0, 0));
}

#[test]
fn a_followed_call_at_its_entry_and_exit() {
    let body = Body::Call {
        slot: 7,
        probe: 3,
        timed: true,
        hits: ALL,
    };
    let patch = patch(&FUNCTION, 0, &body);
    let lines = all(&patch);
    let depths = |name: &str| -> Vec<i64> {
        let named = lines.iter().filter(|(known, ..)| known == name);
        named.map(|(_, _, depth)| *depth).collect()
    };
    // In order: entries from known callers, their exit, entries from other callers.
    assert_eq!(depths("rdtsc"), [0, 24, 24]);
    assert_eq!(depths("ret"), [0]);
    // Calls in order: copy, agent (timing), agent (odd return), copy, agent (entry).
    assert_eq!(depths("call"), [-8, 24, 32, -8, 32]);
    assert_eq!(depths("sub"), [0, 24]);
    assert!(
        lines
            .iter()
            .all(|(name, offset, _)| *offset == 0 || *offset >= RETURNS || name != "push")
    );
}

#[test]
fn the_return_point_of_a_call_followed_without_a_thunk() {
    for timed in [false, true] {
        let body = Body::Call {
            slot: 7,
            probe: 3,
            timed,
            hits: ALL,
        };
        let patch = patch(&FUNCTION, 0, &body);
        let lines = all(&patch);
        let returns: Vec<_> = lines.iter().filter(|line| line.1 >= RETURNS).collect();
        let push = |way| ("push".to_owned(), RETURNS + way, -8);
        assert_eq!(returns, [&push(0), &push(1)]);
        let call_ends: Vec<usize> = (0..patch.code.len())
            .filter(|at| position(&patch, *at).0 >= RETURNS)
            .collect();
        let call = call_ends[0] - 1;
        assert_eq!((patch.code[call], position(&patch, call)), (0xe8, (0, -8)));
        assert_eq!(
            call_ends[9] - call_ends[0],
            9,
            "four bytes of the call, and the push"
        );
        assert_eq!(position(&patch, call_ends[9] + 1), (0, 0));
    }
}

#[test]
fn the_copy_follows_an_interception() {
    let body = Body::Intercept {
        what: 3,
        stay: true,
    };
    let patch = patch(&FUNCTION, 0, &body);
    let lines = all(&patch);
    assert_eq!(lines[2], ("call".to_owned(), 0, 136));
    let returned = 15;
    assert_eq!(position(&patch, returned), (0, 128));
    assert_eq!(usize::from(patch.copy), returned + 14);
}

#[test]
fn two_ways_to_an_instruction_agree_for_all_kinds_of_hits() {
    let (slot, probe) = (7, 3);
    let argument = GroupValue::Argument;
    let by = [
        None,
        Some(argument(0)),
        Some(argument(1)),
        Some(GroupValue::Scope),
    ];
    for (under, by) in [true, false, true, false].into_iter().zip(by) {
        let hits = Hits { under, by, ..ALL };
        let inside = [&[0xb8, 1, 0, 0, 0, 0x85, 0xff][..], &FUNCTION].concat();
        all(&patch(&inside, 7, &Body::Count { slot, hits }));
        all(&patch(&FUNCTION, 0, &Body::Count { slot, hits }));
        let timed = true;
        let call = Body::Call {
            slot,
            probe,
            timed,
            hits,
        };
        all(&patch(&FUNCTION, 0, &call));
    }
}

#[test]
fn a_record_accounts_for_all_that_it_has_pushed() {
    let body = Body::Record {
        slot: 20,
        ring: 4096,
        hits: ALL,
    };
    let lines = all(&patch(&FUNCTION, 0, &body));
    let stands = |name: &str| {
        let of_it = lines.iter().filter(|line| line.0 == name);
        of_it.map(|line| (line.1, line.2)).collect::<Vec<_>>()
    };
    for name in ["rdtsc", "cmpxchg", "lea", "shl", "add"] {
        assert!(
            stands(name).iter().all(|stand| *stand == (0, 32)),
            "{name}: {:?}",
            stands(name)
        );
    }
    // A recorded hit, one without credit, and one without room in the ring.
    assert_eq!(stands("inc"), [(0, 32), (0, 8), (0, 32)]);
}
