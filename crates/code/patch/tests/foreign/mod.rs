//! Other tools' breakpoints on patched sites, set and removed.

use tiptoe_event::{Comparison, Filter, Join, Operator, Width};
use tiptoe_patch::{Body, FunctionCode, Hits, Patch, Strategy, padding, shape};

use crate::Bench;
use crate::machine::{Registers, read, write};
use crate::random::Writer;

const PREFIXES: &[u8] = &[
    0x26, 0x2e, 0x36, 0x3e, 0x40, 0x41, 0x42, 0x43, 0x44, 0x45, 0x46, 0x47, 0x48, 0x49, 0x4a, 0x4b,
    0x4c, 0x4d, 0x4e, 0x4f, 0x64, 0x65, 0x66, 0x67, 0xf2, 0xf3,
];

/// An opcode, and whether the next byte makes it invalid.
type Invalid = (u8, fn(u8) -> bool);

const INVALID: &[Invalid] = &[
    (0x0f, |b| matches!(b, 0x0b | 0xb9 | 0xff)),
    (0x62, |b| b & 7 == 0),
    (0x8c, |b| b & 0x38 >= 0x30),
    (0x8d, |b| b >= 0xc0),
    (0x8e, |b| matches!(b & 0x38, 0x08 | 0x30 | 0x38)),
    (0xc4, |b| b & 0x1f == 0),
    (0xc6, |b| !matches!(b & 0x38, 0 | 0x38)),
    (0xc7, |b| !matches!(b & 0x38, 0 | 0x38)),
    (0xfe, |b| b & 0x38 >= 0x10),
    (0xff, |b| b & 0x38 == 0x38),
];

#[test]
fn this_processor_traps_as_the_guards_say() {
    let mut bench = Bench::new(7);
    let at = bench.machine.room(0);
    let registers = bench.random.registers(0);
    let tail = |random: &mut crate::random::Random| random.next().to_le_bytes();
    let mut check = |first: &[u8], signal, offset| {
        let code = [first, &tail(&mut bench.random)].concat();
        let found = bench.machine.fault(at, &code, &registers);
        assert_eq!(found, Some((signal, offset)), "{code:x?}");
    };
    let traps = (0..=255).filter(|&b| tiptoe_patch::is_trap_byte(b));
    for trap in traps {
        for &prefix in PREFIXES {
            check(&[prefix, trap], libc::SIGILL, 0);
        }
    }
    for &(opcode, invalid) in INVALID {
        for operand in (0..=255).filter(|&b| invalid(b)) {
            check(&[opcode, operand], libc::SIGILL, 0);
        }
    }
    for first in 0..=255 {
        check(&[0xc5, first, 0x0b], libc::SIGILL, 0);
        check(&[0xc5, first, 0xff], libc::SIGILL, 0);
    }
}

impl Bench {
    fn patch(&mut self, at: u64, code: &[u8], offset: usize) -> Option<(Patch, bool)> {
        let mut bytes = code.to_vec();
        bytes.resize(code.len() + 16, 0xcc);
        write(at, &bytes);
        let function = FunctionCode {
            address: at,
            bytes: &bytes,
            size: code.len(),
        };
        let shape = shape(&function, offset).ok()?;
        let body = Body::Count {
            slot: 5,
            hits: Hits::default(),
        };
        let islands = || Vec::from_iter(padding(&function));
        let placed = self.machine.planner.plan(&shape, &body, islands);
        Some((placed.expect("room"), shape.is_entry()))
    }

    fn compare(&self, at: u64, input: &Registers, expected: &(Registers, u64), entry: bool) {
        let mut found = self.observe(at, input);
        if entry {
            found.0[16] = expected.0[16];
        }
        assert_eq!(&found, expected, "{:x?}", read(at, 32));
    }

    fn survives(&mut self, at: u64, code: &[u8], offset: usize) -> Option<Strategy> {
        let (patch, entry) = self.patch(at, code, offset)?;
        if patch.strategy == Strategy::Trap {
            return Some(Strategy::Trap);
        }
        let inputs: Vec<_> = (0..4).map(|_| self.random.registers(self.helper)).collect();
        let expected: Vec<_> = inputs.iter().map(|i| self.observe(at, i)).collect();
        self.machine.apply(&patch);
        let patched = read(patch.site, patch.len.into());
        // Our own trap is there while the patch is written.
        write(patch.site, &[0xcc]);
        for (input, expected) in inputs.iter().zip(&expected) {
            let before = self.machine.count(5);
            self.compare(at, input, expected, entry);
            assert_eq!(self.machine.count(5), before + 1, "{code:x?}");
        }
        self.machine.arm_foreign(&patch);
        let before = self.machine.count(5);
        for (input, expected) in inputs.iter().zip(&expected) {
            self.compare(at, input, expected, entry);
        }
        assert_eq!(self.machine.count(5), before, "no thread passed the jump");
        self.machine.disarm_foreign(&patch);
        assert_eq!(read(patch.site, patch.len.into())[1..], patched[1..]);
        for (input, expected) in inputs.iter().zip(&expected) {
            self.compare(at, input, expected, entry);
        }
        self.machine.remove(&patch);
        Some(patch.strategy)
    }
}

#[test]
fn entries_survive_breakpoints_that_are_set_and_removed() {
    let mut bench = Bench::new(8);
    let mut used = [0; 3];
    for i in 0..1200 {
        let (at, code) = bench.function(1 + i % 8, true);
        let strategy = bench.survives(at, &code, 0).expect("relocatable");
        used[strategy as usize] += 1;
    }
    println!("jump {}, short {}, trap {}", used[0], used[1], used[2]);
    assert!(used[0] > 900 && used[1] > 0);
}

#[test]
fn pairs_survive_breakpoints_that_are_set_and_removed() {
    let near = |base| std::iter::once(base - (15 << 20)..base).collect();
    let mut bench = Bench::on(crate::machine::Machine::with_room(near), 13);
    for i in 0..800 {
        let (at, code) = bench.function(1 + i % 8, true);
        bench.survives(at, &code, 0).expect("relocatable");
    }
}

#[test]
fn the_middle_survives_breakpoints_that_are_set_and_removed() {
    // mov %rdi,-8(%rsp) … mov -8(%rsp),%r10
    const BEFORE: &[u8] = &[0x48, 0x89, 0x7c, 0x24, 0xf8];
    const AFTER: &[u8] = &[0x4c, 0x8b, 0x54, 0x24, 0xf8, 0xc3];
    let mut bench = Bench::new(9);
    let mut used = [0; 3];
    for i in 0..800 {
        let at = bench.machine.room(i % 64);
        let (data, helper) = (bench.machine.data.start, bench.helper);
        let stack = bench.machine.stack_cell();
        let mut writer = Writer {
            at,
            code: BEFORE.to_vec(),
            stack,
            data,
            helper,
            random: &mut bench.random,
            are_flags_set: true,
        };
        (0..1 + i % 8).for_each(|_| writer.step(false));
        let code = [&writer.code[..], AFTER].concat();
        let strategy = bench.survives(at, &code, BEFORE.len());
        used[strategy.expect("relocatable") as usize] += 1;
    }
    println!("jump {}, short {}, trap {}", used[0], used[1], used[2]);
    assert!(used[0] > 300);
}

#[test]
fn results_of_skipped_instructions_are_kept() {
    let mut bench = Bench::new(11);
    let cases: [&[u8]; 4] = [
        // cmp $0x80000000,%edi; sete %al; setb %cl; ret
        &[
            0x81, 0xff, 0, 0, 0, 0x80, 0x0f, 0x94, 0xc0, 0x0f, 0x92, 0xc1, 0xc3,
        ],
        // add $1,%eax; adc %rdx,%rcx; ret
        &[0x05, 1, 0, 0, 0, 0x48, 0x11, 0xd1, 0xc3],
        // mov %edi,-8(%rsp); mov -8(%rsp),%rax; ret
        &[0x89, 0x7c, 0x24, 0xf8, 0x48, 0x8b, 0x44, 0x24, 0xf8, 0xc3],
        // mov $7,%eax; mov $9,%edx; cmp %rax,%rdx; ret
        &[
            0xb8, 7, 0, 0, 0, 0xba, 9, 0, 0, 0, 0x48, 0x39, 0xc2, 0x48, 0x90, 0xc3,
        ],
    ];
    for code in cases {
        let at = bench.machine.room(0);
        let patch = bench.check(at, code, 16, 0).expect("relocatable");
        assert!(
            patch.site > at && patch.strategy == Strategy::Jump,
            "{code:x?}"
        );
    }
}

#[test]
fn a_filter_sees_the_argument_that_the_first_instruction_overwrites() {
    let mut bench = Bench::new(10);
    let at = bench.machine.room(0);
    // mov $1,%edi; sub $8,%rsp; add $8,%rsp; ret
    let code = [
        0xbf, 1, 0, 0, 0, 0x48, 0x83, 0xec, 8, 0x48, 0x83, 0xc4, 8, 0xc3,
    ];
    write(at, &code);
    let function = FunctionCode {
        address: at,
        bytes: &code,
        size: code.len(),
    };
    let shape = shape(&function, 0).expect("plain");
    assert_eq!(shape.site(), at + 5);
    for (arg, site, strategy) in [(0, at, Strategy::Trap), (1, at + 5, Strategy::Jump)] {
        let comparison = Comparison {
            arg,
            width: Width::U64,
            operator: Operator::Eq,
            value: 7,
        };
        let filter = Filter::new(Join::All, &[comparison]);
        let slot = u32::from(arg);
        let body = Body::Count {
            slot,
            hits: Hits::filtered(filter),
        };
        let placed = bench.machine.planner.plan(&shape, &body, Vec::new);
        let patch = placed.expect("room");
        assert_eq!((patch.site, patch.strategy), (site, strategy));
        bench.machine.apply(&patch);
        let mut registers = bench.random.registers(0);
        (registers[7], registers[6]) = (7, 7);
        assert_eq!(bench.machine.run(at, &registers)[7], 1);
        assert_eq!(bench.machine.count(arg.into()), 1);
        (registers[7], registers[6]) = (8, 8);
        bench.machine.run(at, &registers);
        assert_eq!(bench.machine.count(arg.into()), 1);
    }
}
