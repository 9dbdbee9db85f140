//! Compares a [`Feed`], which this process's threads keep up to date, with the kernel's list of mappings.
#![cfg(not(any(miri, tiptoe_loom)))]

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::MetadataExt;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tiptoe_uprobe::feed::call::Call;
use tiptoe_uprobe::feed::{Answer, Feed, FileId, Reading};
use tiptoe_uprobe::lookup::{FileOffset, Shape};

const PAGE: u64 = 4096;
const SHAPE: Shape = Shape {
    tables: 1 << 12,
    probes: 8,
};
const FILES: usize = 1 << 8;

fn with_feed(test: impl FnOnce(&Feed)) {
    let words: Vec<_> = (0..Feed::words(SHAPE, FILES))
        .map(|_| AtomicU64::new(0))
        .collect();
    test(&Feed::new(&words, SHAPE, FILES).expect("long enough"));
}

fn read(feed: &Feed) -> Reading {
    loop {
        let mut list = File::open("/proc/self/maps").expect("there");
        // The thread that holds the lock may be waiting for a core.
        if let Some(reading) = feed.read_again(1 << 10, |buffer| list.read(buffer).ok()) {
            return reading;
        }
        std::thread::yield_now();
    }
}

fn id(file: &File) -> FileId {
    let known = file.metadata().expect("open");
    let (device, inode) = (known.dev(), known.ino());
    let device = u64::from(libc::major(device)) << 32 | u64::from(libc::minor(device));
    FileId { device, inode }
}

fn fresh() -> File {
    // SAFETY: the name is a C string; a new descriptor has no other owner.
    let file = unsafe { File::from_raw_fd(libc::memfd_create(c"code".as_ptr(), 0)) };
    file.set_len(64 * PAGE).expect("room");
    file
}

fn make(feed: &Feed, file: &File, number: libc::c_long, args: [u64; 6]) -> u64 {
    let [a, b, c, d, e, f] = args;
    // SAFETY: callers pass addresses of memory that only they use.
    let kernel = || unsafe { libc::syscall(number, a, b, c, d, e, f) };
    let call = Call::of(number as usize, args).expect("one of them");
    let result = match feed.concerns(&call) {
        true => feed.perform(&call, || Some(id(file)), kernel),
        false => kernel(),
    };
    let error = std::io::Error::last_os_error();
    u64::try_from(result).unwrap_or_else(|_| panic!("{call:x?}: {error}"))
}

const CODE: u64 = (libc::PROT_READ | libc::PROT_EXEC) as u64;
const DATA: u64 = libc::PROT_READ as u64;
const PRIVATE: u64 = libc::MAP_PRIVATE as u64;
const FIXED: u64 = PRIVATE | libc::MAP_FIXED as u64;
const NOTHING: u64 = PRIVATE | libc::MAP_ANONYMOUS as u64;

fn room(feed: &Feed, file: &File, pages: u64) -> u64 {
    make(
        feed,
        file,
        libc::SYS_mmap,
        [0, pages * PAGE, 0, NOTHING, u64::MAX, 0],
    )
}

fn change(feed: &Feed, file: &File, home: u64, rounds: u64) {
    let fd = file.as_raw_fd() as u64;
    for round in 0..rounds {
        let other = home + 16 * PAGE;
        let at = |page: u64| home + page * PAGE;
        let make = |number, args| make(feed, file, number, args);
        make(
            libc::SYS_mmap,
            [home, 8 * PAGE, CODE, FIXED, fd, round % 8 * PAGE],
        );
        make(libc::SYS_mprotect, [at(1), PAGE, DATA, 0, 0, 0]);
        make(libc::SYS_munmap, [at(3), PAGE, 0, 0, 0, 0]);
        make(libc::SYS_mremap, [at(4), 2 * PAGE, 2 * PAGE, 3, other, 0]);
        make(
            libc::SYS_mmap,
            [other, 1, DATA, FIXED | NOTHING, u64::MAX, 0],
        );
        make(libc::SYS_mprotect, [at(1), PAGE, CODE, 0, 0, 0]);
        let loose = make(libc::SYS_mmap, [0, 5 * PAGE, CODE, PRIVATE, fd, 0]);
        make(libc::SYS_mremap, [loose, 5 * PAGE, 2 * PAGE, 0, 0, 0]);
        make(libc::SYS_munmap, [loose, 2 * PAGE, 0, 0, 0, 0]);
        if round + 1 < rounds {
            make(
                libc::SYS_mmap,
                [home, 32 * PAGE, 0, FIXED | NOTHING, u64::MAX, 0],
            );
        }
    }
}

#[test]
fn threads_map_and_unmap_concurrently() {
    const MAPPERS: usize = 3;
    with_feed(|feed| {
        let file = fresh();
        let fd = file.as_raw_fd() as u64;
        let stays = make(
            feed,
            &file,
            libc::SYS_mmap,
            [0, 2 * PAGE, CODE, PRIVATE, fd, 7 * PAGE],
        );
        read(feed);
        let file_offset = feed.file_offset_of(stays + PAGE).expect("it was read");
        assert_eq!(file_offset.offset(), 8 * PAGE);
        let probes = [(stays + PAGE, 1)].into_iter();
        assert!(feed.add_probes(1 << 10, probes, |_, _| true));
        let rooms = [(); MAPPERS].map(|()| room(feed, &file, 32));
        let (left, corrected) = (AtomicU64::new(MAPPERS as u64), AtomicU64::new(0));
        // All threads must exist first; otherwise a new thread's stack could be mapped where another has just unmapped.
        let together = Barrier::new(MAPPERS + 1);
        let map = |home: u64| {
            together.wait();
            let done = std::panic::catch_unwind(|| change(feed, &file, home, 500));
            left.fetch_sub(1, Relaxed);
            together.wait();
            done.expect("the kernel does it");
        };
        std::thread::scope(|scope| {
            rooms
                .iter()
                .for_each(|home| drop(scope.spawn(|| map(*home))));
            together.wait();
            while left.load(Relaxed) > 0 {
                if feed.is_unsure() {
                    corrected.fetch_add(read(feed).corrected, Relaxed);
                }
                ask(feed, stays, file_offset);
            }
            together.wait();
        });
        let last = read(feed);
        assert_eq!(
            corrected.load(Relaxed) + last.corrected,
            0,
            "nothing went unseen"
        );
        assert_eq!((last.mappings, last.bytes), by_the_list());
        assert!(!feed.is_unsure());
        let found = feed.find(stays + PAGE, 1, |_| true);
        assert!(matches!(found, Answer::Speculative(_) | Answer::Locked(_)));
        assert_eq!(feed.find(stays, 1, |_| true), Answer::Missed);
        assert_eq!(feed.file_offset_of(rooms[0] + 3 * PAGE), None);
    });
}

/// Answers for code that stays mapped may be unsure, but must never name another place.
fn ask(feed: &Feed, stays: u64, file_offset: FileOffset) {
    feed.find(stays + PAGE, 1, |probe| {
        assert_eq!(probe, 1);
        true
    });
    if let Some(found) = feed.file_offset_of(stays + PAGE) {
        assert_eq!(found, file_offset);
    }
}

/// Returns the count and size of the kernel's mappings, adjacent ones merged.
fn by_the_list() -> (usize, u64) {
    let list = std::fs::read_to_string("/proc/self/maps").expect("there");
    let hex = |word: &str| u64::from_str_radix(word, 16).expect("a number");
    let (mut count, mut bytes, mut last) = (0, 0, None);
    for line in list.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if !words[1].contains('x') || words[4] == "0" {
            continue;
        }
        let (start, end) = words[0].split_once('-').expect("a range");
        let (start, end, offset) = (hex(start), hex(end), hex(words[2]));
        let file = (words[3].to_owned(), words[4].to_owned());
        count += usize::from(last != Some((start, offset, file.clone())));
        bytes += end - start;
        last = Some((end, offset + (end - start), file));
    }
    (count, bytes)
}
