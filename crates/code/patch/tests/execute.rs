//! Runs patched code and the original, and compares every register.

mod followed;
mod foreign;
mod machine;
mod random;
mod recorded;
mod values;

use std::hash::{DefaultHasher, Hasher};

use random::{HELPER, Random, Writer};

use machine::{Calls, Machine, Registers, read, write};
use tiptoe_event::{Comparison, Filter, Join, Operator, Width};
use tiptoe_patch::{
    Body, FunctionCode, Hits, Patch, Strategy, SyscallSite, any_syscall_site, padding, shape,
    syscall_sites,
};
use tiptoe_wire::Geometry;
use tiptoe_wire::calls::{NOT_LIBCS, UNDER};

struct Bench {
    machine: Machine,
    random: Random,
    helper: u64,
}

impl Bench {
    fn new(seed: u64) -> Bench {
        Bench::on(Machine::new(), seed)
    }

    fn on(mut machine: Machine, seed: u64) -> Bench {
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
            are_flags_set: false,
        };
        for _ in 0..steps {
            writer.step(pushes);
        }
        (at, writer.finish())
    }

    fn observe(&self, target: u64, registers: &Registers) -> (Registers, u64) {
        let data = self.machine.data.clone();
        write(data.start, &[0x5a; 1024]);
        write(data.start + 1024, &self.helper.to_le_bytes());
        let out = self.machine.run(target, registers);
        let mut hasher = DefaultHasher::new();
        hasher.write(&read(data.start, 1024));
        (out, hasher.finish())
    }

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
        let body = Body::Count {
            slot,
            hits: Hits::default(),
        };
        let islands = Vec::from_iter(padding(&function));
        let patch = self
            .machine
            .planner
            .plan(&shape, &body, || islands.clone())
            .expect("room");
        let inputs: Vec<_> = (0..6).map(|_| self.random.registers(self.helper)).collect();
        let starts: Vec<u64> = patch
            .heads
            .iter()
            .filter(|h| h.offset == 0 || h.resume != patch.copy)
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

/// The only room is below the code, as if a heap began right after the program.
#[test]
fn with_little_room_jumps_end_in_two_bytes_that_trap_together() {
    let near = |base| std::iter::once(base - (15 << 20)..base).collect();
    let mut bench = Bench::on(Machine::with_room(near), 12);
    let (mut jumps, mut pairs) = (0, 0);
    for i in 0..1000 {
        let (at, code) = bench.function(1 + i % 8, true);
        let patch = bench.check(at, &code, 16, 0).expect("relocatable");
        jumps += u32::from(patch.strategy == Strategy::Jump);
        pairs += u32::from(patch.len == 6);
    }
    println!("{jumps} jumps, {pairs} of them with a pair");
    assert!(jumps > 700 && pairs > 100);
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
            are_flags_set: true,
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
    // dec %edi; jne -4; ret; padding
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
        hits: Hits::default(),
    };
    let patch = bench
        .machine
        .planner
        .plan(&shape, &body, Vec::new)
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
        hits: Hits::default(),
    };
    let patch = bench
        .machine
        .planner
        .plan(&shape.expect("plain"), &body, Vec::new)
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
fn only_threads_inside_the_gate_count() {
    let mut bench = Bench::new(8);
    let inside = Geometry::INSIDE as usize;
    for (i, entry) in [true, false, true, false].into_iter().enumerate() {
        let (at, code) = bench.function(1 + 5 * i, true);
        write(at, &code);
        let function = FunctionCode {
            address: at,
            bytes: &code,
            size: code.len(),
        };
        let plain = shape(&function, 0).expect("plain");
        let shape = if entry {
            plain
        } else {
            plain.preserving_everything()
        };
        let hits = Hits {
            under: true,
            ..Hits::default()
        };
        let body = Body::Count { slot: 70, hits };
        let registers = bench.random.registers(bench.helper);
        let expected = bench.observe(at, &registers);
        let patch = bench.machine.planner.plan(&shape, &body, Vec::new);
        bench.machine.apply(&patch.expect("room"));
        for (calls, counts) in [(0, 0), (1, 1), (0, 0), (7, 1)] {
            bench.machine.slab[inside] = calls;
            let before = bench.machine.count(70);
            let mut found = bench.observe(at, &registers);
            if entry {
                found.0[16] = expected.0[16];
            }
            assert_eq!(found, expected);
            assert_eq!(bench.machine.count(70) - before, counts);
        }
        let before = bench.machine.calls();
        bench.machine.counters(false);
        bench.observe(at, &registers);
        bench.machine.counters(true);
        let now = bench.machine.calls();
        assert_eq!((now.cold - before.cold, now.slot), (1, 70 | UNDER as u64));
    }
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
        let function = FunctionCode {
            address: at,
            bytes: &nop5_ret,
            size: 6,
        };
        let entry = shape(&function, 0).expect("plain");
        let inside = i % 2 == 0;
        let shape = if inside {
            entry.preserving_everything()
        } else {
            entry
        };
        let body = Body::Count {
            slot: 3,
            hits: Hits::filtered(Some(filter)),
        };
        let patch = bench
            .machine
            .planner
            .plan(&shape, &body, Vec::new)
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
            let same = (0..16).filter(|&r| r != 4).all(|r| out[r] == registers[r])
                && (!inside || out[16] == registers[16]);
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

/// mov $NR,%eax; lea 8(%rsi),%rdx; syscall; ret
fn calls(nr: u8) -> [u8; 12] {
    [0xb8, nr, 0, 0, 0, 0x48, 0x8d, 0x56, 8, 0x0f, 0x05, 0xc3]
}

#[test]
fn system_call_hooks_see_the_number_and_keep_the_rest() {
    let mut bench = Bench::new(6);
    let recall = Some(bench.machine.recall);
    for (nr, performed, recall) in [(39, false, recall), (110, true, recall), (39, false, None)] {
        let code = calls(nr);
        let at = bench.machine.room(0);
        write(at, &code);
        let function = FunctionCode {
            address: at,
            bytes: &code,
            size: code.len(),
        };
        let site = &syscall_sites(&function, &[nr.into()])[0];
        let body = Body::Syscall {
            nr: site.nr,
            recall,
        };
        let flag = recall.map_or(NOT_LIBCS, |_| 0);
        let seen = i64::from(u32::from(nr) | flag);
        hooked(&mut bench, site, &body, performed, seen);
    }
}

#[test]
fn a_call_of_any_number_is_hooked_by_the_number() {
    let mut bench = Bench::new(7);
    for (nr, performed) in [(39, true), (102, false)] {
        // mov $NR,%eax; lea 8(%rsp),%r9; syscall; ret
        let code = [
            0xb8, nr, 0, 0, 0, 0x4c, 0x8d, 0x4c, 0x24, 8, 0x0f, 0x05, 0xc3,
        ];
        let at = bench.machine.room(0);
        write(at, &code);
        let function = FunctionCode {
            address: at,
            bytes: &code,
            size: code.len(),
        };
        let site = any_syscall_site(&function).expect("five bytes before the call");
        let body = Body::SyscallAny {
            numbers: [1 << 39, 0, 0, 0, 0, 0, 0, 0],
            recall: bench.machine.recall,
            futex: None,
        };
        let seen = if performed { -1 } else { 0 };
        hooked(&mut bench, &site, &body, performed, seen);
    }
}

/// Checks a hooked call. If `seen` is 0, the hook must not be called.
fn hooked(bench: &mut Bench, site: &SyscallSite, body: &Body, performed: bool, seen: i64) {
    let mut registers = bench.random.registers(0);
    registers[2] = 0;
    let start = site.address - u64::from(site.nr == u32::MAX) * 5;
    let mut expected = bench.machine.run(start, &registers);
    let planner = &mut bench.machine.planner;
    let patch = planner.plan(&site.shape, body, Vec::new).expect("room");
    bench.machine.apply(&patch);
    let before = bench.machine.calls();
    let mut found = bench.machine.run(start, &registers);
    let now = bench.machine.calls();
    if performed {
        expected[0] = 0x1234;
        // `syscall` overwrites these.
        (found[1], found[11]) = (expected[1], expected[11]);
    }
    // A patch may change the flags at a system call.
    found[11] = expected[11];
    found[16] = expected[16];
    assert_eq!(found, expected);
    let hook = before.hook + u64::from(seen != 0);
    let nr = if seen != 0 { seen } else { before.nr };
    assert_eq!(now, Calls { hook, nr, ..before });
}
