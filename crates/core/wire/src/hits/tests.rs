use super::*;
extern crate std;
use core::sync::atomic::AtomicU64;
use std::vec::Vec;

fn words() -> Vec<AtomicU64> {
    (0..WORDS).map(|_| AtomicU64::new(0)).collect()
}

fn hit(number: u64) -> Hit {
    Hit {
        address: number,
        tid: 7,
        is_late: number % 2 == 1,
        ip: number + 1,
        registers: [number; 16],
        epoch: Epoch {
            number: number / 3,
            is_gap: number % 3 == 1,
        },
        ..Hit::default()
    }
}

fn push(hits: &Hits, number: u64) -> bool {
    let cell = hits.reserve();
    cell.map(|cell| {
        cell.write(&hit(number));
        cell.complete(12);
    })
    .is_some()
}

#[test]
fn a_ring_wraps_around_and_refuses_hits_without_room() {
    let words = words();
    let hits = Hits::new(Words::new(&words)).unwrap();
    let mut reader = HitReader::default();
    for _ in 0..3 {
        let taken = (0..CELLS as u64 + 5).filter(|n| push(&hits, *n)).count();
        assert_eq!(taken, CELLS);
        let mut next = 0;
        let left = reader.read(&hits, false, |read| {
            assert_eq!(read.hit(), hit(next));
            assert_eq!((read.value(8), read.value(16)), (Some(0), None));
            assert_eq!((read.stack(4).count(), read.stack(8).count()), (1, 0));
            next += 1;
        });
        assert_eq!((left, next), (0, CELLS as u64));
    }
}

#[test]
fn an_incomplete_cell_is_waited_for_and_skipped_at_the_end() {
    let words = words();
    let hits = Hits::new(Words::new(&words)).unwrap();
    let mut reader = HitReader::default();
    let hole = hits.reserve();
    assert!(hole.is_some() && push(&hits, 1));
    assert_eq!(reader.read(&hits, false, |_| panic!("it waits")), 0);
    let mut seen = Vec::new();
    assert_eq!(reader.read(&hits, true, |read| seen.push(read.hit())), 1);
    assert_eq!(seen, [hit(1)]);
}

#[test]
fn an_impossible_head_is_read_in_bounded_time() {
    let words = words();
    let hits = Hits::new(Words::new(&words)).unwrap();
    let mut reader = HitReader::default();
    for lie in [u64::MAX, 1 << 40, 0] {
        words[head::HEAD].store(lie, Relaxed);
        words[CELLS_AT + cell::BYTES].store(lie, Relaxed);
        reader.read(&hits, true, |_| panic!("nothing is there"));
        assert!(RecordedHit::new(hits.cell(0).unwrap()).stack(8).count() <= STACK);
    }
}

#[test]
fn a_window_is_used_up_by_its_last_hit() {
    let words = words();
    let hits = Hits::new(Words::new(&words)).unwrap();
    assert!(!hits.uses_up(), "no limit");
    hits.begin_window();
    hits.allow(2);
    assert!(!hits.uses_up() && hits.uses_up() && hits.uses_up());
    assert_eq!(hits.in_window(), 3);
    assert!(hits.set_resting(true) && !hits.set_resting(true) && hits.set_resting(false));
}
