use super::*;
extern crate std;
use core::sync::atomic::AtomicU64;
use std::vec::Vec;
use tiptoe_stack::{Base, encode_row};
use tiptoe_wire::futex::WIDTH;

fn slab() -> Vec<AtomicU64> {
    (0..WIDTH).map(|_| AtomicU64::new(0)).collect()
}

fn rule(cfa: u32) -> Rule {
    Rule::new(Base::Sp, cfa, None).expect("it fits")
}

fn library(base: u64, part: RuntimePart) -> Library {
    let (start, end) = (base + 0x100, base + 0x200);
    Library {
        base,
        start,
        end,
        part,
    }
}

/// Walks a stack with return addresses at 0x100, 0x120 and so on.
fn caller(frames: &Frames, stack: &[u64]) -> [u64; 3] {
    let load = |at: u64| match (at - 0x100) % 0x20 {
        0 => stack
            .get((at as usize - 0x100) / 0x20)
            .copied()
            .unwrap_or(0),
        _ => panic!("{at:#x}"),
    };
    let sp = 0xf8;
    let frame = Frame { sp, pc: 7, bp: 0 };
    let Caller { site, via, frame } = frames.walk(rule(0x10), frame, load);
    [site, via, frame]
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes: whole slabs, word by word")]
fn the_runtimes_frames_are_stepped_over() {
    let room = slab();
    let frames = Frames::new(Words::new(&room));
    let rows = [
        encode_row(0x100, rule(0x20)),
        encode_row(0x180, Rule::UNKNOWN),
    ];
    assert!(frames.add(&library(0x1000, RuntimePart::Libc), &rows));
    assert!(frames.add(&library(0x8000, RuntimePart::Other), &rows));
    // The second round finds the results in the cache.
    for _ in 0..2 {
        assert_eq!(caller(&frames, &[0x4001]), [0x4001, 0, 0x108]);
        assert_eq!(caller(&frames, &[0x1101, 0x4001]), [0x4001, 0x1101, 0x128]);
        let both = [0x1110, 0x1120, 0x8110, 0x1130, 0x4001];
        assert_eq!(caller(&frames, &both), [0x4001, 0x1120, 0x188]);
        // 0x8180 returns into the last function with a row, 0x1181 into a function without.
        assert_eq!(caller(&frames, &[0x8180, 0x4001]), [0x4001, 0, 0x128]);
        assert_eq!(
            caller(&frames, &[0x1101, 0x1181, 0x4001]),
            [0x1181, 0x1101, 0x128]
        );
    }
    let far = [0x1101; 40];
    assert_eq!(caller(&frames, &far)[..2], [0x1101, 0x1101]);
    let nobody = frames.walk(Rule::UNKNOWN, Frame::default(), |_| 1);
    assert_eq!(nobody, Caller::default());
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes: whole slabs, word by word")]
fn a_standard_library_in_the_program_is_stepped_over() {
    let room = slab();
    let frames = Frames::new(Words::new(&room));
    // Only 0x4100 to 0x4140 belongs to the standard library.
    let libc = [
        encode_row(0x100, rule(0x20)),
        encode_row(0x180, Rule::UNKNOWN),
    ];
    let program = [
        encode_row(0x100, rule(0x20)),
        encode_row(0x140, Rule::UNKNOWN),
    ];
    assert!(frames.add(&library(0x1000, RuntimePart::Libc), &libc));
    assert!(frames.add(&library(0x4000, RuntimePart::Mixed), &program));
    for _ in 0..2 {
        assert_eq!(caller(&frames, &[0x4101, 0x4111, 0x4151])[..2], [0x4151, 0]);
        let through = [0x1101, 0x4101, 0x1111, 0x4111, 0x4151];
        assert_eq!(caller(&frames, &through)[..2], [0x4151, 0x1101]);
        assert_eq!(caller(&frames, &[0x4151, 0x4101])[0], 0x4151);
        assert_eq!(caller(&frames, &[0x1101, 0x9001])[0], 0x9001);
        let alone = [0x1101, 0x4101, 0x4111, 0x1111, 0x1181];
        assert_eq!(caller(&frames, &alone), [0x4101, 0x1101, 0x128]);
    }
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes: whole slabs, word by word")]
fn functions_without_room_count_as_the_users() {
    let room = slab();
    let frames = Frames::new(Words::new(&room));
    let rows = std::vec![encode_row(0x100, rule(0x20)); MOST_ROWS as usize];
    assert!(!frames.add(&library(0x1000, RuntimePart::Libc), &[]));
    assert!(!frames.add(
        &library(0x1000, RuntimePart::Libc),
        &[&rows[..], &rows[..1]].concat()
    ));
    assert!(frames.add(&library(0x1000, RuntimePart::Libc), &rows[2..]));
    assert!(!frames.add(&library(0x2000, RuntimePart::Libc), &rows[..3]));
    assert_eq!(caller(&frames, &[0x2101, 0x4001])[0], 0x2101);
    assert!(frames.add(&library(0x2000, RuntimePart::Libc), &rows[..2]));
    assert_eq!(caller(&frames, &[0x2101, 0x4001])[0], 0x4001);
    assert!(!frames.add(&library(0x3000, RuntimePart::Libc), &rows[..1]));
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes: whole slabs, word by word")]
fn libraries_beyond_the_limit_are_refused() {
    let room = slab();
    let frames = Frames::new(Words::new(&room));
    let added = |number: u64| {
        frames.add(
            &library(0x1000 * number, RuntimePart::Libc),
            &[encode_row(0, rule(8))],
        )
    };
    assert_eq!(
        (1..99).take_while(|number| added(*number)).count(),
        LIBRARIES as usize
    );
}

/// There are more addresses than the cache holds.
#[test]
#[cfg_attr(miri, ignore = "takes minutes: whole slabs, word by word")]
fn results_that_are_not_cached_are_searched_for() {
    let room = slab();
    let frames = Frames::new(Words::new(&room));
    let rows: Vec<u64> = (0..20_000)
        .map(|at| encode_row(at, rule(8 * (at % 100 + 1))))
        .collect();
    let all = Library {
        base: 1,
        start: 1,
        end: 30_000,
        part: RuntimePart::Libc,
    };
    assert!(frames.add(&all, &rows));
    for at in (0..20_000).chain(0..20_000) {
        let way = frames.way(2 + at).expect("it is inside");
        assert_eq!(way.rule(), rule(8 * (at as u32 % 100 + 1)));
    }
}
