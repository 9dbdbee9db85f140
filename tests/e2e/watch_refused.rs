//! `tiptoe watch --via agent` if the accounting of debug registers refuses the threads that inherit a breakpoint.

use std::fs::{File, OpenOptions, read_dir};
use std::os::fd::AsRawFd;
use std::sync::atomic::AtomicU64;
use std::thread::available_parallelism;
use std::time::Duration;

use tiptoe_breakpoint::{Accounting, Geometry, Kind, Request, Target, Wait};
use tiptoe_tests::process::wait_until;
use tiptoe_tests::{Process, target};
use tiptoe_wire::{Data, Layout, Needs, Words};

use crate::watch::{hits, turn, watch};

const THREADS: u64 = 50;
const LIMIT: Duration = Duration::from_secs(20);

/// Waits, by yielding, for a lock that the thread of the agent (tiptoe's library) holds for a moment.
struct Yield;

impl Wait for Yield {
    const LOOKS: u32 = 1;
    fn park(&self, _: &AtomicU64, _: u64) {
        std::thread::yield_now();
    }
    fn unpark(&self, _: &AtomicU64) {}
    fn now_ns(&self) -> u64 {
        0
    }
}

fn segment(tiptoe: u32) -> Words<'static> {
    let files = read_dir(format!("/proc/{tiptoe}/fd")).expect("our own child");
    let mut files = files.flatten().map(|file| file.path());
    let path = files.find(|path| {
        let link = std::fs::read_link(path).unwrap_or_default();
        link.to_string_lossy().starts_with("/memfd:tiptoe-data")
    });
    let path = path.expect("a data segment");
    let bytes = path.metadata().expect("its size").len();
    let file: File = OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .expect("root may");
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the mapping is new, stays until the test's end, and the file's seals keep its length.
    unsafe {
        let at = libc::mmap(
            std::ptr::null_mut(),
            bytes as usize,
            access,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        );
        assert_ne!(at, libc::MAP_FAILED);
        Words::from_raw(at.cast(), bytes as usize)
    }
}

fn take_all(words: Words<'_>, pid: u32) {
    let cpus = available_parallelism().expect("CPUs").get() as u32;
    let geometry = Geometry::of_process(cpus).expect("few CPUs");
    let accounting = Accounting::new(geometry, words.atomics(), &Yield).expect("enough words");
    let thread = Target::Task {
        task: pid.into(),
        cpu: None,
    };
    let released = accounting.release(&Request::new(thread, Kind::Data, 0));
    released.expect("the thread's register is reserved");
    // The fourth register is always reserved for debuggers.
    accounting
        .reserve_wide(Kind::Data, 3, 1)
        .expect("three are free");
}

#[test]
fn threads_without_a_reservation_are_reported() {
    let Some(_turn) = turn() else { return };
    let mut program = Process::waiting(&target("watched"), &["many", &THREADS.to_string()]);
    let watched = watch(&["stats.hits", "--via", "agent", "--stats"]).attach(&[program.pid()]);
    watched.wait_ready();
    let geometry = Layout::of(&Needs {
        hits: true,
        ..Needs::default()
    })
    .geometry;
    let words = segment(watched.process.pid());
    let data = Data::new(words, geometry).expect("enough words");
    let recorded = data.hits().expect("a watch's segment");
    take_all(
        recorded.accounting().expect("the accounting"),
        program.pid(),
    );
    program.go();
    assert_eq!(program.line(), "ready");
    wait_until("all refused", LIMIT, || recorded.refused() == THREADS);
    program.go();
    assert_eq!(program.line(), "done");
    let report = watched.interrupt();
    assert!(program.finish().1.success());
    assert_eq!(hits(&report, 0), 10 * THREADS, "their hits count");
    let notes = report.value["typed_notes"]
        .as_array()
        .expect("notes")
        .iter();
    let mut notes = notes.filter(|note| note["note"]["kind"] == "not-accounted");
    let note = notes.next().expect("a note of the refusals");
    assert_eq!(note["note"]["threads"], THREADS, "{note}");
    assert!(notes.next().is_none());
    let side = &report.value["watch"]["reservations"][0];
    assert_eq!(side["unreserved"], THREADS, "{side:#}");
}
