//! A space (tiptoe's table of a process's mappings) must agree with a plain list of pages, and probes must be found
//! wherever their file is mapped. Each five bytes are a change. At the end, the result replaces the mappings of
//! another space.
#![no_main]

use std::ops::Range;
use std::sync::atomic::AtomicU64;

use libfuzzer_sys::fuzz_target;
use tiptoe_uprobe::lookup::{FileOffset, Mapping, Shape, Space, SpaceError};

#[path = "../../crates/engines/uprobe/tests/cells/mod.rs"]
mod cells;
use cells::{Cells, Change};

const PAGE: u64 = 4096;
const ADDRESSES: u64 = 1024;
const CHANGES: usize = 255;
/// Half of the tables stay free, because a move needs free tables.
const SHAPE: Shape = Shape {
    tables: 64,
    probes: 64,
};

fuzz_target!(|input: &[u8]| {
    let words = storage();
    let space = Space::new(&words, SHAPE).expect("long enough");
    let mut cells = Cells::new(ADDRESSES);
    probes(&space);
    for change in input.chunks_exact(5).take(CHANGES).map(change) {
        match apply(&space, &change) {
            Ok(()) => cells.apply(&change),
            Err(error) => assert_eq!(error, SpaceError::Overlap),
        }
    }
    compare(&space, &cells);
    replace(input, &cells);
});

fn storage() -> Vec<AtomicU64> {
    (0..SHAPE.words()).map(|_| AtomicU64::new(0)).collect()
}

fn file_offset(file: u64, offset: u64) -> FileOffset {
    FileOffset::new(file as u32, offset).expect("both are small")
}

fn mapping(range: Range<u64>, file: u64, offset: u64) -> Mapping {
    Mapping {
        start: range.start * PAGE,
        end: range.end * PAGE,
        file_offset: file_offset(file, offset * PAGE),
    }
}

fn probes(space: &Space) {
    let writer = space.write(1).expect("no writer holds the space");
    for probe in 0..64 {
        let at = file_offset(0, u64::from(probe) * 16 * PAGE);
        writer.add_probe(at, probe, |_| false).expect("room");
    }
}

/// File offsets often continue a neighbour's offsets, so that both become one mapping.
fn change(bytes: &[u8]) -> Change {
    let [kind, low, len, other, new_len] = bytes.try_into().expect("five of them");
    let range = |at: u8, high: u8, len: u8| {
        let start = (u64::from(high & 3) << 8 | u64::from(at)).min(ADDRESSES - 1);
        start..(start + u64::from(len)).min(ADDRESSES)
    };
    let here = range(low, kind, len);
    match kind >> 2 & 7 {
        0 => Change::Unmap(here),
        1 => Change::Move(here, range(other, kind >> 5, new_len)),
        2 => Change::Move(here.clone(), here.start..range(low, kind, new_len).end),
        file => {
            let len = u64::from(len) % 8 + 1;
            let end = (here.start + len).min(ADDRESSES);
            let shift = u64::from(other) % 4 * 8;
            Change::Map(here.start..end, u64::from(file) % 3, here.start + shift)
        }
    }
}

fn apply(space: &Space, change: &Change) -> Result<(), SpaceError> {
    let writer = space.write(1).expect("no writer holds the space");
    let pages = |range: &Range<u64>| range.start * PAGE..range.end * PAGE;
    match change {
        Change::Map(range, file, offset) => writer.insert(mapping(range.clone(), *file, *offset)),
        Change::Unmap(range) => writer.remove(pages(range)),
        Change::Move(from, to) => writer.remap(pages(from), pages(to)),
    }
}

fn compare(space: &Space, cells: &Cells) {
    for address in 0..ADDRESSES {
        let found = space.resolve(address * PAGE + 9).value();
        let cell = cells.get(address);
        assert_eq!(
            found,
            cell.map(|(file, offset)| file_offset(file, offset * PAGE + 9))
        );
        let probe = cell.filter(|(file, offset)| *file == 0 && offset % 16 == 0 && *offset < 1024);
        let probe = probe.map(|(_, offset)| (offset / 16) as u32);
        assert_eq!(space.find(address * PAGE, 1, |_| true).value(), probe);
    }
    let writer = space.write(1).expect("no writer holds the space");
    let all = writer.mappings().map(|mapping| {
        let file_offset = mapping.file_offset;
        (
            mapping.start / PAGE,
            mapping.end / PAGE,
            file_offset.file().into(),
            file_offset.offset() / PAGE,
        )
    });
    assert_eq!(all.collect::<Vec<_>>(), cells.runs());
}

fn replace(input: &[u8], cells: &Cells) {
    let words = storage();
    let space = Space::new(&words, SHAPE).expect("long enough");
    probes(&space);
    for change in input.chunks_exact(5).take(CHANGES / 2).map(change) {
        let _ = apply(&space, &change); // fails if the ranges of a move overlap
    }
    let list = cells
        .runs()
        .into_iter()
        .map(|(start, end, file, offset)| mapping(start..end, file, offset));
    let writer = space.write(1).expect("no writer holds the space");
    writer.replace(list).expect("room");
    drop(writer);
    compare(&space, cells);
}
