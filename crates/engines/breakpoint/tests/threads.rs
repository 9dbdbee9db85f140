//! Many threads reserve at once, one by `try_reserve`, which never waits.
#![cfg(not(tiptoe_loom))]

mod common;

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use common::{accounting, storage, task};
use tiptoe_breakpoint::{Error, Geometry, Kind, Registers, Request, Side, Target};

const CPUS: u32 = 4;
const SLOTS: u32 = 4;

#[test]
fn no_slot_is_given_twice_nor_lost() {
    let geometry = Geometry::new(CPUS, Registers::Mixed(SLOTS), 64).expect("sane");
    let words = storage(&geometry);
    let ours = accounting(geometry, &words);
    let wide: Vec<AtomicU32> = (0..CPUS).map(|_| AtomicU32::new(0)).collect();
    let rounds = if cfg!(miri) { 12 } else { 40_000 };
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (ours, wide) = (&ours, &wide);
            scope.spawn(move || {
                for round in 0..rounds {
                    let cpu = ((thread + round) % u64::from(CPUS)) as u32;
                    let target = match (thread, round % 8) {
                        (0, 0..4) => Target::Cpu(cpu),
                        (_, 7) => task(thread / 2, Some(cpu)),
                        _ => task(thread / 2, None),
                    };
                    let request = Request::new(target, Kind::Data, thread);
                    match ours.reserve(&request) {
                        Err(Error::NoSlot(_)) => continue,
                        answer => answer.expect("granted or no slot"),
                    }
                    if let Target::Cpu(cpu) = target {
                        let before = wide[cpu as usize].fetch_add(1, Relaxed);
                        assert!(before < SLOTS);
                        wide[cpu as usize].fetch_sub(1, Relaxed);
                    }
                    let more = Request {
                        holder: 100 + thread,
                        ..request
                    };
                    if round % 5 == 0 && ours.modify(&request, &more).is_ok() {
                        ours.release(&more).expect("held");
                    } else {
                        ours.release(&request).expect("held");
                    }
                }
            });
        }
        scope.spawn(|| {
            for round in 0..rounds {
                let target = match round % 2 {
                    0 => task(round % 3, None),
                    _ => Target::Cpu(0),
                };
                let request = Request::new(target, Kind::Data, 77);
                if ours.try_reserve(&request).is_ok() {
                    while ours.try_release(&request) == Err(Error::Busy) {
                        std::thread::yield_now();
                    }
                }
            }
        });
    });
    assert!(ours.is_empty());
    let holds = ours.stats(Side::Reader).holds;
    assert!(holds >= 2 * ours.stats(Side::Reader).reservations);
}
