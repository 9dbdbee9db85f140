extern crate std;
use std::vec::Vec;

use super::call::Call;
use super::{Answer, Feed, FileId, Line, Lines};
use crate::lookup::Shape;
use crate::primitive::AtomicU64;

fn parse(text: &str, step: usize) -> (Vec<Line>, bool) {
    let mut rest = text.as_bytes();
    let mut lines = Lines::new(|buffer: &mut [u8]| {
        let (some, others) = rest.split_at(rest.len().min(step).min(buffer.len()));
        buffer[..some.len()].copy_from_slice(some);
        rest = others;
        Some(some.len())
    });
    let all = lines.by_ref().collect();
    (all, lines.has_failed())
}

const LIST: &str = "7f0a1000-7f0a3000 r-xp 0001a000 103:1f 247026      /usr/lib/a b (deleted)\n\
                    7ffe0000-7ffe1000 rw-p 00000000 00:00 0            [stack]\n\
                    ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0\n";

#[test]
fn lines_are_read_in_whatever_pieces_they_come() {
    for step in [1, 7, 4096] {
        let (lines, failed) = parse(LIST, step);
        let file = FileId {
            device: 0x103 << 32 | 0x1f,
            inode: 247_026,
        };
        assert!(!failed && lines.len() == 3);
        let first = Line {
            start: 0x7f0a_1000,
            end: 0x7f0a_3000,
            is_executable: true,
            offset: 0x1a000,
            file,
        };
        assert_eq!(lines[0], first);
        assert!(!lines[1].is_executable && lines[2].is_executable);
        assert_eq!(lines[2].end, 0xffff_ffff_ff60_1000);
    }
    let (lines, failed) = parse(&LIST[..LIST.len() - 1], 64);
    assert!(failed && lines.len() == 2, "half a line is none");
}

fn with_feed(check: impl FnOnce(&Feed)) {
    const SHAPE: Shape = Shape {
        tables: 64,
        probes: 8,
    };
    const FILES: usize = 8;
    let words = (0..Feed::words(SHAPE, FILES)).map(|_| AtomicU64::new(0));
    let words: Vec<_> = words.collect();
    check(&Feed::new(&words, SHAPE, FILES).expect("long enough"));
}

fn read(feed: &Feed, text: &str) -> u64 {
    let mut rest = text.as_bytes();
    let reading = feed.read_again(1, |buffer| {
        let (some, others) = rest.split_at(rest.len().min(buffer.len()));
        buffer[..some.len()].copy_from_slice(some);
        rest = others;
        Some(some.len())
    });
    reading.expect("it can be read").corrected
}

fn find(feed: &Feed, address: u64) -> Answer {
    feed.find(address, 1, |_| true)
}

#[test]
fn probes_at_one_place_of_a_file_are_distinguished_by_their_addresses() {
    with_feed(|feed| {
        read(
            feed,
            "1000-3000 r-xp 0 1:1 7\n5000-7000 r-xp 0 1:1 7\n8000-9000 r-xp 0 0:0 0\n",
        );
        let sites = [0x1008, 0x5008, 0x1010, 0x8008];
        let probes = (0..).zip(sites).map(|(probe, address)| (address, probe));
        let address_of = |probe: u32| sites[probe as usize];
        let replaces = |other: u32, address: u64| address_of(other) == address;
        assert!(feed.add_probes(1, probes, replaces));
        let find = |address: u64| feed.find(address, 8, |probe| address_of(probe) == address);
        assert_eq!(find(0x1008), Answer::Speculative(0));
        assert_eq!(find(0x5008), Answer::Speculative(1));
        assert_eq!(find(0x1010), Answer::Speculative(2));
        let locked = feed.find_locked(0x1010, 8, |probe| address_of(probe) == 0x1010);
        assert_eq!(locked, Answer::Locked(2));
        assert_eq!(find(0x5010), Answer::Missed, "a place without a site there");
        assert!(!feed.has_probe(3) && feed.has_probe(2), "memory of no file");
        let remap = Call::of(25, [0x1000, 0x1000, 0x1000, 1, 0, 0]).expect("mremap");
        feed.perform(&remap, || None, || 0xa000);
        assert_eq!(find(0x1008), Answer::Missed);
        assert_eq!(
            feed.find(0xa008, 1, |probe| probe == 0),
            Answer::Speculative(0)
        );
    });
}

const CODE: u64 = 5;
const PRIVATE: u64 = 2;
const FIXED: u64 = 0x12;
const FIRST: FileId = FileId {
    device: 1 << 32 | 1,
    inode: 7,
};

fn mmap(at: u64, protection: u64, flags: u64) -> Call {
    Call::of(9, [at, 0x1fff, protection, flags, 3, 0x5000]).expect("mmap")
}

fn munmap(at: u64, len: u64) -> Call {
    Call::of(11, [at, len, 0, 0, 0, 0]).expect("munmap")
}

#[test]
fn calls_that_concern_no_code_are_left_to_the_program() {
    with_feed(|feed| {
        assert!(feed.concerns(&munmap(0x9000, 1)), "nothing is known yet");
        read(feed, "1000-3000 r-xp 0 1:1 7\n");
        assert!(!feed.is_unsure());
        assert!(!feed.concerns(&munmap(0x9000, 1)) && feed.concerns(&munmap(0x2000, 1)));
        assert!(!feed.concerns(&mmap(0, 3, PRIVATE)) && feed.concerns(&mmap(0, CODE, PRIVATE)));
        assert!(!feed.concerns(&mmap(0, CODE, PRIVATE | 0x20)), "of no file");
        assert!(!feed.concerns(&mmap(0x8000, 3, FIXED)) && feed.concerns(&mmap(0, 3, FIXED)));
        let protect = |protection| Call::of(10, [0x1000, 10, protection, 0, 0, 0]).expect("it");
        assert!(!feed.concerns(&protect(CODE)), "it is code");
        assert!(feed.concerns(&protect(1)));
        assert_eq!(Call::of(12, [0; 6]), None);
    });
}

#[test]
fn calls_are_in_the_space_once_they_are_made() {
    with_feed(|feed| {
        read(feed, "1000-3000 r-xp 0 1:1 7\n");
        let place = feed.file_offset_of(0x1000).expect("mapped");
        feed.perform(&mmap(0, CODE, PRIVATE), || Some(FIRST), || 0x7000);
        let moved = feed.file_offset_of(0x7000).expect("mapped");
        assert_eq!((moved.file(), moved.offset()), (place.file(), 0x5000));
        feed.perform(&munmap(0x1000, 0x1000), || None, || 0);
        assert_eq!(feed.file_offset_of(0x1000), None);
        let remap = Call::of(25, [0x7000, 0x1000, 0x1000, 1, 0, 0]).expect("mremap");
        feed.perform(&remap, || None, || 0xa000);
        assert_eq!(feed.file_offset_of(0xa000), Some(moved));
        assert!(!feed.is_unsure());
        let list =
            "2000-3000 r-xp 1000 1:1 7\n8000-9000 r-xp 6000 1:1 7\na000-b000 r-xp 5000 1:1 7\n";
        assert_eq!(read(feed, list), 0, "nothing had to be corrected");
        assert!(read(feed, "2000-3000 r-xp 1000 1:1 7\n") > 0, "unseen");
    });
}

#[test]
fn a_failure_and_a_file_that_is_new_are_read_again() {
    with_feed(|feed| {
        read(feed, "1000-3000 r-xp 0 1:1 7\n");
        assert!(feed.add_probes(1, [(0x1800, 3)].into_iter(), |_, _| true));
        feed.perform(&munmap(0x1000, 0x1000), || None, || -12);
        assert_eq!(find(feed, 0x1800), Answer::Unsure);
        assert_eq!(read(feed, "1000-3000 r-xp 0 1:1 7\n"), 0);
        assert_eq!(find(feed, 0x1800), Answer::Speculative(3));
        let new = FileId { inode: 8, ..FIRST };
        feed.perform(&mmap(0, CODE, PRIVATE), || Some(new), || 0x7000);
        assert!(feed.is_unsure() && feed.file_offset_of(0x7000).is_none());
        assert_eq!(find(feed, 0x1800), Answer::Speculative(3));
        feed.begin_unseen();
        assert_eq!(find(feed, 0x1800), Answer::Unsure);
        read(feed, "1000-3000 r-xp 0 1:1 7\n7000-9000 r-xp 5000 1:1 8\n");
        assert!(feed.is_unsure(), "it has not ended");
        feed.end_unseen();
        read(feed, "1000-3000 r-xp 0 1:1 7\n7000-9000 r-xp 5000 1:1 8\n");
        assert!(!feed.is_unsure());
        assert_eq!(feed.read_again(1, |_| None), None);
        assert!(feed.is_unsure(), "what could not be read is in doubt");
    });
}

#[test]
fn another_file_at_the_same_place_is_another() {
    with_feed(|feed| {
        read(feed, "1000-3000 r-xp 0 1:1 7\n");
        assert!(feed.add_probes(1, [(0x1000, 3)].into_iter(), |_, _| true));
        read(feed, "1000-3000 r-xp 0 1:1 8\n");
        assert_eq!(find(feed, 0x1000), Answer::Missed);
        feed.note_miss();
        assert!(feed.is_unsure(), "a miss asks for the list");
        read(feed, "1000-3000 r-xp 0 1:1 7\n");
        assert_eq!(find(feed, 0x1000), Answer::Speculative(3));
    });
}
