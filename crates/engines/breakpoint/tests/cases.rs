//! Requests with expected answers, for several numbers of slots and CPUs.
#![cfg(not(tiptoe_loom))]

mod common;

use common::{Model, accounting, storage, task};
use tiptoe_breakpoint::{Error, Geometry, Kind, Registers, Replacement, Request, Side, Target};

const T: u64 = 1_000;
const O: u64 = 1_001;
const T_ALL: Target = task(T, None);
const O_ALL: Target = task(O, None);
const T_0: Target = task(T, Some(0));
const O_0: Target = task(O, Some(0));
const T_1: Target = task(T, Some(1));
const CPU_0: Target = Target::Cpu(0);
const CPU_1: Target = Target::Cpu(1);

enum Step {
    /// Reserves all slots (debug registers) but this many.
    Fill(Target, u32),
    Ok(Target),
    /// Must be refused, and change nothing.
    No(&'static [Target]),
    Remove(Target),
}
use Step::{Fill, No, Ok as Granted, Remove};

struct Case {
    name: &'static str,
    /// The fewest slots and CPUs with which the case makes sense.
    needs: (u32, u32),
    steps: &'static [Step],
}

/// The first nine are those of Linux's kernel/events/hw_breakpoint_test.c.
const CASES: &[Case] = &[
    Case {
        name: "one cpu",
        needs: (1, 1),
        steps: &[Fill(CPU_0, 0), No(&[T_ALL, CPU_0])],
    },
    Case {
        name: "many cpus",
        needs: (1, 2),
        steps: &[
            Fill(CPU_0, 0),
            No(&[CPU_0]),
            Fill(CPU_1, 0),
            No(&[CPU_1, CPU_0]),
        ],
    },
    Case {
        name: "one task on all cpus",
        needs: (1, 1),
        steps: &[
            Fill(T_ALL, 0),
            No(&[T_ALL, T_0, CPU_0]),
            Remove(T_ALL),
            Granted(CPU_0),
        ],
    },
    Case {
        name: "two tasks on all cpus",
        needs: (1, 1),
        steps: &[
            Fill(T_ALL, 0),
            Fill(O_ALL, 0),
            No(&[T_ALL, O_ALL, T_0, O_0, CPU_0]),
            Remove(T_ALL),
            No(&[CPU_0]),
        ],
    },
    Case {
        name: "one task on one cpu",
        needs: (1, 1),
        steps: &[
            Fill(T_0, 0),
            No(&[T_ALL, T_0, CPU_0]),
            Remove(T_0),
            Granted(CPU_0),
        ],
    },
    Case {
        name: "one task, mixed",
        needs: (3, 1),
        steps: &[
            Granted(T_0),
            Fill(T_ALL, 1),
            No(&[T_ALL, T_0, CPU_0]),
            Remove(T_0),
            Remove(T_ALL),
            Granted(CPU_0),
            Granted(CPU_0),
            No(&[CPU_0]),
        ],
    },
    Case {
        name: "two tasks on one cpu",
        needs: (1, 2),
        steps: &[
            Fill(T_0, 0),
            Fill(O_0, 0),
            No(&[T_ALL, O_ALL, T_0, O_0, CPU_0]),
            Fill(CPU_1, 0),
        ],
    },
    Case {
        name: "two tasks, one of them on all cpus",
        needs: (1, 2),
        steps: &[
            Fill(T_0, 0),
            Fill(O_ALL, 0),
            No(&[T_ALL, O_ALL, T_0, O_0, CPU_0, CPU_1]),
        ],
    },
    Case {
        name: "a task on all and on one cpu",
        needs: (3, 2),
        steps: &[
            Fill(T_ALL, 2),
            Granted(T_0),
            Granted(T_ALL),
            No(&[T_ALL, T_0, CPU_0]),
            Granted(CPU_1),
            No(&[CPU_1]),
            Remove(T_0),
            No(&[T_ALL]),
            Remove(CPU_1),
            Granted(T_ALL),
            No(&[T_ALL, T_0, CPU_0, CPU_1]),
        ],
    },
    Case {
        name: "a task on one cpu beside a full one",
        needs: (1, 2),
        steps: &[
            Fill(CPU_1, 0),
            No(&[T_ALL, T_1]),
            Fill(T_0, 0),
            No(&[T_0, CPU_0]),
            Remove(CPU_1),
            Granted(T_1),
            No(&[T_1, T_ALL, CPU_1]),
        ],
    },
    Case {
        name: "released and reserved again in another order",
        needs: (2, 2),
        steps: &[
            Fill(T_ALL, 1),
            Granted(CPU_0),
            No(&[CPU_0, T_ALL, T_0]),
            Granted(T_1),
            No(&[T_1, CPU_1]),
            Remove(CPU_0),
            Remove(T_1),
            Granted(T_ALL),
            Remove(T_ALL),
            Granted(T_0),
            No(&[CPU_0, T_ALL]),
            Granted(CPU_1),
            No(&[T_1]),
        ],
    },
    Case {
        name: "tasks do not add up",
        needs: (2, 1),
        steps: &[
            Granted(CPU_0),
            Fill(T_ALL, 1),
            Fill(O_ALL, 1),
            No(&[T_ALL, O_ALL, CPU_0]),
            Remove(CPU_0),
            Granted(T_ALL),
            Granted(O_0),
            No(&[CPU_0]),
        ],
    },
];

fn run(case: &Case, registers: Registers, cpus: u32, kind: Kind) {
    let geometry = Geometry::new(cpus, registers, 64).expect("sane");
    let slots = geometry.slots(kind);
    if slots < case.needs.0 || cpus < case.needs.1 {
        return;
    }
    let words = storage(&geometry);
    let ours = accounting(geometry, &words);
    let mut model = Model::new(cpus, registers);
    let mut ids = 0..;
    let mut ask = |model: &mut Model, target, is_granted: bool| {
        let request = Request::new(target, kind, ids.next().expect("endless"));
        let answer = ours.reserve(&request);
        let what = format!("{}: {target:?}, {cpus} cpus, {registers:?}", case.name);
        assert_eq!(
            model.fits(&request),
            is_granted,
            "the table says so: {what}"
        );
        match is_granted {
            true => {
                answer.unwrap_or_else(|error| panic!("{what}: {error}"));
                model.reservations.push(request);
            }
            false => assert!(
                matches!(answer, Err(Error::NoSlot(_))),
                "{what}: {answer:?}"
            ),
        }
    };
    for step in case.steps {
        match *step {
            Fill(target, spare) => {
                (spare..slots).for_each(|_| ask(&mut model, target, true));
            }
            Granted(target) => ask(&mut model, target, true),
            No(targets) => targets
                .iter()
                .for_each(|&target| ask(&mut model, target, false)),
            Remove(target) => {
                let at = model
                    .reservations
                    .iter()
                    .rposition(|held| held.target == target);
                let request = model
                    .reservations
                    .remove(at.expect("the table removes what it has"));
                ours.release(&request).expect("held");
            }
        }
    }
    for request in model.reservations {
        ours.release(&request).expect("held");
    }
    assert!(ours.is_empty(), "{}", case.name);
}

#[test]
fn every_case_is_as_the_table_says() {
    // miri is a thousand times slower
    let (slots, cpus) = match cfg!(miri) {
        true => (4..=4, &[2][..]),
        false => (1..=6, &[1, 2, 3, 64][..]),
    };
    for case in CASES {
        for slots in slots.clone() {
            let separate = Registers::Separate {
                data: slots,
                instruction: 7 - slots,
            };
            for &cpus in cpus {
                run(case, Registers::Mixed(slots), cpus, Kind::Data);
                if cfg!(miri) {
                    continue;
                }
                for registers in [Registers::Mixed(slots), separate] {
                    run(case, registers, cpus, Kind::Data);
                    run(case, registers, cpus, Kind::Instruction);
                }
            }
        }
    }
}

#[test]
fn separate_register_files_do_not_share_slots() {
    for (registers, has_own_registers) in [
        (Registers::Mixed(1), false),
        (
            Registers::Separate {
                data: 1,
                instruction: 1,
            },
            true,
        ),
    ] {
        let geometry = Geometry::new(2, registers, 8).expect("sane");
        let words = storage(&geometry);
        let ours = accounting(geometry, &words);
        for target in [T_ALL, T_0, CPU_0] {
            let data = Request::new(target, Kind::Data, 1);
            let instruction = Request::new(target, Kind::Instruction, 2);
            ours.reserve(&data).expect("free");
            assert_eq!(ours.reserve(&instruction).is_ok(), has_own_registers);
            assert_eq!(ours.release(&instruction).is_ok(), has_own_registers);
            ours.release(&data).expect("held");
        }
        assert!(ours.is_empty());
    }
}

#[test]
fn a_refusal_names_the_holders() {
    let geometry = Geometry::new(4, Registers::Mixed(2), 8).expect("sane");
    let words = storage(&geometry);
    let ours = accounting(geometry, &words);
    let data = |target, id| Request::new(target, Kind::Data, id);
    ours.reserve(&data(T_ALL, 7)).expect("free");
    ours.reserve(&data(Target::Cpu(3), 9)).expect("free");
    let refused = |target| match ours.reserve(&data(target, 1)) {
        Err(Error::NoSlot(conflict)) => conflict,
        other => panic!("{other:?}"),
    };
    let names = |id| ["?", "stats.hits", "jiffies"][id as usize / 4];
    let conflict = refused(T_ALL);
    let description = conflict.describe(|holder, f| match holder.is_wide {
        true => write!(f, "cpu-wide '{}'", names(holder.id)),
        false => write!(f, "watch '{}' (pinned)", names(holder.id)),
    });
    assert_eq!(
        description.to_string(),
        "no debug register left on cpu 3 for thread 1000: held by watch 'stats.hits' (pinned), \
         cpu-wide 'jiffies'"
    );
    assert_eq!(
        refused(Target::Cpu(3)).to_string(),
        "no debug register left on cpu 3: held by 7 of thread 1000, cpu-wide 9"
    );
    assert!(size_of::<Error>() <= 128, "{}", size_of::<Error>());
}

/// Regression: a watchpoint was moved CPU by CPU, so a refusal left CPUs with different addresses.
#[test]
fn a_refusal_by_one_cpu_leaves_all_cpus_as_they_were() {
    let geometry = Geometry::new(3, Registers::Mixed(4), 64).expect("sane");
    let words = storage(&geometry);
    let ours = accounting(geometry, &words);
    let on = |cpu, weight, holder| Request {
        weight,
        ..Request::new(Target::Cpu(cpu), Kind::Data, holder)
    };
    ours.reserve_wide(Kind::Data, 1, 1).expect("free");
    ours.reserve(&on(1, 3, 9)).expect("free");
    let moved = |weight| {
        [0, 1, 2].map(|cpu| Replacement {
            old: on(cpu, 1, 1),
            new: on(cpu, weight, 2),
        })
    };
    let held = || [0, 1, 2].map(|cpu| ours.slots_held(Target::Cpu(cpu), Kind::Data));
    let refused = ours.modify_all(&moved(2));
    assert!(matches!(refused, Err(Error::NoSlot(_))), "{refused:?}");
    assert_eq!(held(), [1, 4, 1]);
    let mut strange = moved(1);
    strange[2].old.holder = 7;
    assert_eq!(ours.modify_all(&strange), Err(Error::NotHeld));
    let before = ours.stats(Side::Writer).holds;
    ours.modify_all(&moved(1)).expect("all are its own");
    assert_eq!(ours.stats(Side::Writer).holds, before + 1);
    for Replacement { new, .. } in moved(1) {
        ours.release(&new).expect("held");
    }
    ours.release(&on(1, 3, 9)).expect("held");
    assert!(ours.is_empty());
}

#[test]
fn impossible_requests_are_refused() {
    let geometry = Geometry::new(2, Registers::Mixed(4), 1).expect("sane");
    let words = storage(&geometry);
    let ours = accounting(geometry, &words);
    let one = Request::new(T_ALL, Kind::Data, 1);
    let heavy = |weight| Request { weight, ..one };
    assert_eq!(ours.reserve(&heavy(0)), Err(Error::Weight(0)));
    assert_eq!(ours.reserve(&heavy(5)), Err(Error::Weight(5)));
    let nowhere = Request::new(Target::Cpu(2), Kind::Data, 1);
    assert_eq!(ours.reserve(&nowhere), Err(Error::NoCpu(2)));
    assert_eq!(ours.release(&one), Err(Error::NotHeld));
    ours.reserve(&one).expect("free");
    let two = Request { holder: 2, ..one };
    assert_eq!(ours.reserve(&two), Err(Error::Full));
    assert_eq!(ours.release(&two), Err(Error::NotHeld), "not its holder");
    ours.release(&one).expect("held");
    assert_eq!(ours.release(&one), Err(Error::NotHeld), "it was released");
    ours.reserve(&two).expect("there is room again");
    let few = &words[1..];
    assert!(tiptoe_breakpoint::Accounting::new(geometry, few, &common::Yields).is_none());
}

const ROUNDS: u64 = if cfg!(miri) { 2 } else { 50 };

/// Returns how many reservations locked all shards.
fn rounds_of_64(capacity: u32) -> u64 {
    let geometry = Geometry::new(16, Registers::Mixed(4), capacity).expect("sane");
    let words = storage(&geometry);
    let ours = accounting(geometry, &words);
    let more = Request::new(task(1 << 40, None), Kind::Data, 1);
    for round in 0..ROUNDS {
        let tasks = (0..64).map(|id| Request::new(task(round * 64 + id, None), Kind::Data, id));
        let tasks: Vec<_> = tasks.collect();
        for request in &tasks {
            ours.reserve(request).expect("there is room");
        }
        if capacity == 64 {
            assert_eq!(ours.reserve(&more), Err(Error::Full));
        }
        for request in &tasks {
            ours.release(request).expect("held");
        }
    }
    assert!(ours.is_empty());
    let (reader, writer) = (ours.stats(Side::Reader), ours.stats(Side::Writer));
    assert_eq!(reader.reservations + writer.reservations, ROUNDS * 64);
    assert_eq!(
        (reader.waited, writer.waited),
        (0, 0),
        "no other thread ran"
    );
    writer.reservations
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes: thousands of tasks")]
fn room_is_found_in_other_shards() {
    assert!(rounds_of_64(64) > 0);
    let seldom = rounds_of_64(1_024);
    assert!(seldom < ROUNDS, "{seldom}");
}
