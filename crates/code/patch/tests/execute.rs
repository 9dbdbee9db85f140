//! Patched code does what the original did: run both and compare every register.

mod machine;

use std::hash::{DefaultHasher, Hasher};

use machine::{Calls, Machine, Registers, read, write};
use tiptoe_event::{Comparison, Filter, Join, Operator, Width};
use tiptoe_patch::{Body, FunctionCode, Patch, Strategy, padding, shape, syscall_sites};

/// xorshift64*: the same cases in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() >> 33) as usize % n
    }

    fn registers(&mut self, helper: u64) -> Registers {
        let mut registers = [0; 17];
        registers.iter_mut().for_each(|r| *r = self.next());
        if self.below(2) == 0 {
            registers[1] = 0; // so that jrcxz goes both ways
        }
        registers[11] = helper;
        registers[16] = self.next() & 0x8d5 | 0x202;
        registers
    }
}

/// Instructions that leave the stack alone and may run in any order.
const PLAIN: &[&[u8]] = &[
    &[0x90],
    &[0xf5],
    &[0xf9],
    &[0x98],
    &[0x99],
    &[0x91],
    &[0x31, 0xc0],
    &[0x89, 0xf8],
    &[0x66, 0x90],
    &[0x85, 0xff],
    &[0x11, 0xc8],
    &[0x19, 0xd2],
    &[0x48, 0x89, 0xe5],
    &[0x48, 0x01, 0xfa],
    &[0x83, 0xc0, 0x05],
    &[0x0f, 0x92, 0xc0],
    &[0x0f, 0x44, 0xd1],
    &[0x48, 0x8d, 0x47, 0x08],
    &[0x0f, 0x1f, 0x40, 0x00],
    &[0xf3, 0x0f, 0x1e, 0xfa],
    &[0x48, 0x83, 0xc6, 0x10],
    &[0xb8, 0x01, 0x02, 0x03, 0x04],
    &[0x0f, 0x1f, 0x44, 0x00, 0x00],
    &[0x41, 0xb9, 0x01, 0x02, 0x03, 0x04],
    &[0x48, 0x81, 0xc7, 0x00, 0x01, 0x00, 0x00],
    &[0x49, 0xb8, 1, 2, 3, 4, 5, 6, 7, 8],
];

/// Those of them that read the flags.
const READS_FLAGS: &[&[u8]] = &[
    &[0xf5],
    &[0x11, 0xc8],
    &[0x19, 0xd2],
    &[0x0f, 0x92, 0xc0],
    &[0x0f, 0x44, 0xd1],
];

/// Instructions with an operand relative to the instruction pointer, in two parts.
const RELATIVE: &[(&[u8], &[u8])] = &[
    (&[0x48, 0x8b, 0x05], &[]),
    (&[0x4c, 0x8d, 0x0d], &[]),
    (&[0xc7, 0x05], &[1, 2, 3, 4]),
    (&[0x80, 0x3d], &[7]),
    (&[0x01, 0x05], &[]),
    (&[0x66, 0x81, 0x0d], &[0x34, 0x12]),
];

const PUSHES: &[&[u8]] = &[
    &[0x50],
    &[0x55],
    &[0x41, 0x57],
    &[0x48, 0x83, 0xec, 0x08],
    &[0x6a, 5],
];

/// Shows its return address: `mov (%rsp),%r10; ret`.
const HELPER: &[u8] = &[0x4c, 0x8b, 0x14, 0x24, 0xc3];

/// A random function for one address.
struct Writer<'a> {
    at: u64,
    code: Vec<u8>,
    stack: u64,
    data: u64,
    helper: u64,
    random: &'a mut Random,
    /// Whether the flags no longer are those of the caller.
    flags_set: bool,
}

impl Writer<'_> {
    fn relative(&mut self, opcode: &[u8], target: u64, tail: &[u8]) {
        self.code.extend_from_slice(opcode);
        let next = self.at + (self.code.len() + 4 + tail.len()) as u64;
        self.code
            .extend_from_slice(&(target.wrapping_sub(next) as i32).to_le_bytes());
        self.code.extend_from_slice(tail);
    }

    /// An instruction; in front of it `test %edi,%edi`, if it is the first to read
    /// the flags, which are nobody's at a function's entry.
    fn plain(&mut self) -> &'static [u8] {
        let plain = PLAIN[self.random.below(PLAIN.len())];
        if READS_FLAGS.contains(&plain) {
            self.set_flags();
        }
        plain
    }

    fn set_flags(&mut self) {
        if !std::mem::replace(&mut self.flags_set, true) {
            self.code.extend_from_slice(&[0x85, 0xff]);
        }
    }

    fn skip(&mut self, opcode: u8) {
        let skipped = self.plain();
        if !matches!(opcode, 0xeb | 0xe3 | 0xe2) {
            self.set_flags();
        }
        self.code.extend_from_slice(&[opcode, skipped.len() as u8]);
        self.code.extend_from_slice(skipped);
    }

    fn step(&mut self, pushes: bool) {
        match self.random.below(12) {
            0 => {
                let condition = self.random.below(16) as u8;
                self.skip(0x70 | condition);
            }
            1 => {
                let opcode = [0xeb, 0xe3, 0xe2, 0xe1, 0xe0][self.random.below(5)];
                self.skip(opcode);
            }
            2 | 3 => {
                let (opcode, tail) = RELATIVE[self.random.below(RELATIVE.len())];
                let target = self.data + 8 * self.random.below(64) as u64;
                self.relative(opcode, target, tail);
            }
            4 if pushes => self.relative(&[0xe8], self.helper, &[]),
            5 if pushes => self.relative(&[0xff, 0x15], self.data + 1024, &[]),
            6 if pushes => self.code.extend_from_slice(&[0x41, 0xff, 0xd3]),
            7 | 8 if pushes => {
                let push = PUSHES[self.random.below(PUSHES.len())];
                self.code.extend_from_slice(push);
            }
            _ => {
                let plain = self.plain();
                self.code.extend_from_slice(plain);
            }
        }
    }

    fn finish(mut self) -> Vec<u8> {
        // Wherever the function was entered: mov stack_cell(%rip),%rsp.
        self.relative(&[0x48, 0x8b, 0x25], self.stack, &[]);
        self.code.push(0xc3);
        self.code
    }
}

/// A machine with the helper and a pointer to it in place.
struct Bench {
    machine: Machine,
    random: Random,
    helper: u64,
}

impl Bench {
    fn new(seed: u64) -> Bench {
        let mut machine = Machine::new();
        let helper = machine.room(0);
        write(helper, HELPER);
        Bench {
            machine,
            random: Random(seed),
            helper,
        }
    }

    fn function(&mut self, steps: usize, pushes: bool) -> (u64, Vec<u8>) {
        let skew = self.random.below(64) as u64;
        let at = self.machine.room(skew);
        let (data, helper) = (self.machine.data.start, self.helper);
        let stack = self.machine.stack_cell();
        let random = &mut self.random;
        let mut writer = Writer {
            at,
            code: Vec::new(),
            stack,
            data,
            helper,
            random,
            flags_set: false,
        };
        for _ in 0..steps {
            writer.step(pushes);
        }
        (at, writer.finish())
    }

    /// Runs from `target`; the registers and a hash of the data page afterwards.
    fn observe(&self, target: u64, registers: &Registers) -> (Registers, u64) {
        let data = self.machine.data.clone();
        write(data.start, &[0x5a; 1024]);
        write(data.start + 1024, &self.helper.to_le_bytes());
        let out = self.machine.run(target, registers);
        let mut hasher = DefaultHasher::new();
        hasher.write(&read(data.start, 1024));
        (out, hasher.finish())
    }

    /// Patches `code` at `offset` and compares it with itself unpatched.
    fn check(&mut self, at: u64, code: &[u8], filler: usize, offset: usize) -> Option<Patch> {
        let mut bytes = code.to_vec();
        bytes.resize(code.len() + filler, 0xcc);
        write(at, &bytes);
        let function = FunctionCode {
            address: at,
            bytes: &bytes,
            size: code.len(),
        };
        let shape = shape(&function, offset).ok()?;
        let slot = self.random.below(machine::SLOTS) as u32;
        let body = Body::Count { slot, filter: None };
        let islands = Vec::from_iter(padding(&function));
        let patch = self
            .machine
            .planner
            .place(&shape, &body, &islands)
            .expect("room");
        let inputs: Vec<_> = (0..6).map(|_| self.random.registers(self.helper)).collect();
        let starts: Vec<u64> = patch
            .heads
            .iter()
            .map(|h| patch.site + u64::from(h.offset))
            .collect();
        let run = |bench: &Bench, from| inputs.iter().map(|i| bench.observe(from, i)).collect();
        let starts_here: Vec<u64> = [&[at], &starts[1..]].concat();
        let expected: Vec<Vec<_>> = starts_here.iter().map(|&s| run(self, s)).collect();
        self.machine.apply(&patch);
        for (&start, expected) in starts_here.iter().zip(&expected) {
            let before = self.machine.count(slot as usize);
            let mut found: Vec<_> = run(self, start);
            let counted = self.machine.count(slot as usize) - before;
            let hits = if start == at { inputs.len() as u64 } else { 0 };
            if shape.is_entry() && start == at {
                found
                    .iter_mut()
                    .zip(expected)
                    .for_each(|(f, e)| f.0[16] = e.0[16]);
            }
            assert_eq!(
                &found,
                expected,
                "from {:#x} of {code:x?}: {patch:x?}",
                start - at
            );
            assert_eq!(
                counted,
                hits,
                "from {:#x} of {code:x?}: {patch:x?}",
                start - at
            );
        }
        self.machine.remove(&patch);
        assert_eq!(read(at, code.len()), code);
        Some(patch)
    }
}

#[test]
fn entries_keep_every_register() {
    let mut bench = Bench::new(1);
    let mut used = [0; 3];
    for i in 0..900 {
        let steps = 1 + i % 8;
        let (at, code) = bench.function(steps, true);
        let filler = bench.random.below(16);
        let patch = bench.check(at, &code, filler, 0).expect("relocatable");
        used[patch.strategy as usize] += 1;
    }
    println!("jump {}, short {}, trap {}", used[0], used[1], used[2]);
    assert!(used.iter().all(|&n| n > 0));
}

#[test]
fn the_middle_keeps_flags_and_red_zone_too() {
    // mov %rdi,-8(%rsp); mov %rsi,-128(%rsp) … mov -8(%rsp),%r10; mov -128(%rsp),%r11
    const BEFORE: &[u8] = &[0x48, 0x89, 0x7c, 0x24, 0xf8, 0x48, 0x89, 0x74, 0x24, 0x80];
    const AFTER: &[u8] = &[
        0x4c, 0x8b, 0x54, 0x24, 0xf8, 0x4c, 0x8b, 0x5c, 0x24, 0x80, 0xc3,
    ];
    let mut bench = Bench::new(2);
    for i in 0..900 {
        let skew = bench.random.below(64) as u64;
        let at = bench.machine.room(skew);
        let (data, helper) = (bench.machine.data.start, bench.helper);
        let stack = bench.machine.stack_cell();
        let random = &mut bench.random;
        let code = BEFORE.to_vec();
        let mut writer = Writer {
            at,
            code,
            stack,
            data,
            helper,
            random,
            flags_set: true,
        };
        (0..1 + i % 8).for_each(|_| writer.step(false));
        let mut code = writer.code;
        code.extend_from_slice(AFTER);
        bench
            .check(at, &code, 16, BEFORE.len())
            .expect("relocatable");
    }
}

#[test]
fn a_branch_back_to_the_site_counts_again() {
    let mut bench = Bench::new(3);
    let at = bench.machine.room(0);
    // dec %edi; jne -4; ret; three bytes of padding
    let code = [0xff, 0xcf, 0x75, 0xfc, 0xc3, 0xcc, 0xcc, 0xcc];
    write(at, &code);
    let shape = shape(
        &FunctionCode {
            address: at,
            bytes: &code,
            size: 5,
        },
        0,
    )
    .expect("plain");
    let body = Body::Count {
        slot: 9,
        filter: None,
    };
    let patch = bench
        .machine
        .planner
        .place(&shape, &body, &[])
        .expect("room");
    assert_eq!(patch.strategy, Strategy::Jump);
    bench.machine.apply(&patch);
    let mut registers = bench.random.registers(0);
    registers[7] = 100;
    assert_eq!(bench.machine.run(at, &registers)[7], 0);
    assert_eq!(bench.machine.count(9), 100);
}

#[test]
fn without_counters_the_cold_entry_is_called_unless_the_gate_is_shut() {
    let mut bench = Bench::new(4);
    let (at, code) = bench.function(6, true);
    write(at, &code);
    let shape = shape(
        &FunctionCode {
            address: at,
            bytes: &code,
            size: code.len(),
        },
        0,
    );
    let body = Body::Count {
        slot: 77,
        filter: None,
    };
    let patch = bench
        .machine
        .planner
        .place(&shape.expect("plain"), &body, &[])
        .expect("room");
    let registers = bench.random.registers(bench.helper);
    let expected = bench.observe(at, &registers);
    bench.machine.apply(&patch);
    bench.machine.counters(false);
    let before = bench.machine.calls();
    for (open, calls) in [(true, 1), (false, 1), (true, 2)] {
        bench.machine.gate(open);
        let mut found = bench.observe(at, &registers);
        found.0[16] = expected.0[16];
        assert_eq!(found, expected);
        let now = bench.machine.calls();
        assert_eq!((now.cold - before.cold, now.slot), (calls, 77));
    }
    assert_eq!(bench.machine.count(77), 0);
}

#[test]
fn filters_decide_as_the_model_does() {
    use Operator::{Eq, Ge, Gt, Le, Lt, Ne};
    use Width::{S8, S16, S32, S64, U8, U16, U32, U64};
    let values = [
        0,
        1,
        -1,
        5,
        127,
        128,
        255,
        256,
        -128,
        -129,
        32768,
        65535,
        65536,
        0x7fff_ffff,
        0x8000_0000,
        0xffff_ffff,
        -0x8000_0000,
        -0x8000_0001,
        i64::MAX,
        i64::MIN,
    ];
    let arguments = [7, 6, 2, 1, 8, 9];
    let mut bench = Bench::new(5);
    let nop5_ret = [0x0f, 0x1f, 0x44, 0, 0, 0xc3];
    for i in 0..1500 {
        let random = &mut bench.random;
        let comparison = |random: &mut Random| Comparison {
            arg: random.below(6) as u8,
            width: [U8, S8, U16, S16, U32, S32, U64, S64][random.below(8)],
            operator: [Eq, Ne, Lt, Le, Gt, Ge][random.below(6)],
            value: values[random.below(values.len())],
        };
        let comparisons: Vec<_> = (0..1 + i % 4).map(|_| comparison(random)).collect();
        let join = [Join::All, Join::Any][random.below(2)];
        let filter = Filter::new(join, &comparisons).expect("within bounds");
        let at = bench.machine.room(0);
        write(at, &nop5_ret);
        let shape = shape(
            &FunctionCode {
                address: at,
                bytes: &nop5_ret,
                size: 6,
            },
            0,
        );
        let body = Body::Count {
            slot: 3,
            filter: Some(filter),
        };
        let patch = bench
            .machine
            .planner
            .place(&shape.expect("plain"), &body, &[])
            .expect("room");
        bench.machine.apply(&patch);
        for _ in 0..12 {
            let mut registers = bench.random.registers(0);
            arguments.iter().for_each(|&r| {
                let value = values[bench.random.below(values.len())];
                registers[r] = value.wrapping_add(bench.random.below(3) as i64 - 1) as u64;
            });
            let before = bench.machine.count(3);
            let out = bench.machine.run(at, &registers);
            let same = (0..16).filter(|&r| r != 4).all(|r| out[r] == registers[r]);
            assert!(same, "{filter:?} changed a register");
            let passes = filter.passes(&arguments.map(|r| registers[r]));
            assert_eq!(
                bench.machine.count(3) - before,
                u64::from(passes),
                "{filter:?}"
            );
        }
    }
}

#[test]
fn system_call_hooks_see_the_number_and_keep_the_rest() {
    let mut bench = Bench::new(6);
    // mov $39,%eax (getpid); lea 8(%rsi),%rdx; syscall; ret
    let code = [0xb8, 39, 0, 0, 0, 0x48, 0x8d, 0x56, 8, 0x0f, 0x05, 0xc3];
    let mut registers = bench.random.registers(0);
    registers[2] = 0;
    for replace in [false, true] {
        let at = bench.machine.room(0);
        write(at, &code);
        let function = FunctionCode {
            address: at,
            bytes: &code,
            size: code.len(),
        };
        let site = &syscall_sites(&function, &[39])[0];
        let nr = site.nr;
        let body = if replace {
            Body::SyscallReplace { nr }
        } else {
            Body::SyscallBefore { nr }
        };
        let mut expected = bench.machine.run(at, &registers);
        assert_eq!(expected[0], u64::from(std::process::id()));
        let patch = bench
            .machine
            .planner
            .place(&site.shape, &body, &[])
            .expect("room");
        bench.machine.apply(&patch);
        let before = bench.machine.calls();
        let mut found = bench.machine.run(at, &registers);
        let now = bench.machine.calls();
        if replace {
            expected[0] = 0x1234;
            // The kernel leaves these to the system call instruction.
            (found[1], found[11]) = (expected[1], expected[11]);
        }
        assert_eq!(found, expected);
        let number = if replace {
            i64::from((39 | 0x8000_0000u32) as i32)
        } else {
            39
        };
        assert_eq!(
            now,
            Calls {
                hook: before.hook + 1,
                nr: number,
                ..before
            }
        );
    }
}
