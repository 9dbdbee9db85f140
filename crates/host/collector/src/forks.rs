//! Estimates how much tiptoe adds to the cost of a traced process's forks. Because of tiptoe, a fork also copies the
//! mappings of the agent (tiptoe's library) and of its trampolines, their page tables, and patched pages of code.
//! Only the parent's time is estimated, because the child is not traced.
//!
//! One fork cannot be timed both with and without these copies. So a child of tiptoe maps memory of the same shape,
//! and its forks alternately copy that memory and leave it out (`MADV_DONTFORK`). The measurement takes about 50 ms,
//! so it is done only if a target forked.

use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use nix::sys::resource::UsageWho;
use tiptoe_event::Cost;
use tiptoe_sys::host::procfs::{Mapping, Process};

use tiptoe_attach::resident::is_agent;
use tiptoe_price::own::used_by;
use tiptoe_price::{Child, median};

const PAGE: u64 = 4096;
/// At most this many pages of a mapping are looked up, because a mapping may be huge.
const MOST_PAGES: u64 = 1 << 15;
const FORKS: u32 = 16;
const ROUNDS: usize = 5;
/// The estimated cost of each mapping and each page, in ns, if measuring fails.
const BY_MAPPING: f64 = 1_000.0;
const BY_PAGE: f64 = 200.0;
/// The cost in the target is between these multiples of the measured cost, because the target's caches hold other data.
const CHEAPER: f64 = 0.5;
const DEARER: f64 = 2.0;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct CopiedMemory {
    parts: Vec<MappingPages>,
}

#[derive(Clone, Debug, PartialEq)]
struct MappingPages {
    start: u64,
    pages: u64,
    /// A fork copies the page-table entries of a file's mapping only if a page of that mapping was written.
    is_file: bool,
    /// The indexes of private pages, which tiptoe wrote.
    written: Vec<u64>,
    /// The indexes of the other resident pages, whose content is the file's.
    shown: Vec<u64>,
}

impl CopiedMemory {
    /// Finds the copied memory in a process whose agent keeps its tables in the address range `tables`. `None` if the
    /// process may not be read.
    pub fn of(
        process: Process,
        tables: Range<u64>,
        is_patched: impl Fn(&Mapping) -> bool,
    ) -> Option<CopiedMemory> {
        let maps = process.maps().ok()?;
        let pagemap = File::open(format!("/proc/{}/pagemap", process.pid())).ok()?;
        let mut parts = Vec::new();
        for mapping in &maps {
            let is_file = mapping.file().is_some();
            // Only code that may be patched is read, because reading a large program's page map takes ms.
            let may_be_patched = is_file && mapping.perms.exec && is_patched(mapping);
            let is_image = mapping.path.as_deref().is_some_and(is_agent);
            let is_ours = is_image || tables.contains(&mapping.start);
            if mapping.perms.shared || !(is_ours || may_be_patched) {
                continue;
            }
            let part = MappingPages::of(mapping, &pagemap)?;
            if is_ours || !part.written.is_empty() {
                parts.push(part);
            }
        }
        Some(CopiedMemory { parts })
    }

    pub fn cost(&self) -> Cost {
        let measured = self.measure().filter(|ns| *ns > 0.0);
        let ns = measured.unwrap_or_else(|| self.guess());
        Cost::between(ns * CHEAPER, ns, ns * DEARER)
    }

    fn guess(&self) -> f64 {
        let pages = |part: &MappingPages| part.written.len() + part.shown.len();
        let pages: usize = self.parts.iter().map(pages).sum();
        self.parts.len() as f64 * BY_MAPPING + pages as f64 * BY_PAGE
    }

    fn measure(&self) -> Option<f64> {
        let file = File::open("/proc/self/exe").ok()?;
        let mut plan = ForkPlan::new(self, &file);
        // Only one thread measures at a time, because the child finds its plan through a static.
        static TURN: Mutex<()> = Mutex::new(());
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        PLAN.store(&raw mut plan, Relaxed); // Relaxed: only the child reads the pointer, and the fork orders the store
        // SAFETY: `answer` does only what a signal handler may: it makes system calls, and touches only the plan's copy
        // and memory that it mapped.
        let child = unsafe { Child::start(answer) };
        PLAN.store(null_mut(), Relaxed);
        let mut child = child.ok()?;
        (child.ask(MAP).ok()? == 0.0).then_some(())?;
        let mut added = Vec::new();
        for _ in 0..ROUNDS {
            let without = child.ask(WITHOUT).ok()?;
            added.push(child.ask(WITH).ok()? - without);
        }
        Some(median(added))
    }
}

impl MappingPages {
    fn of(mapping: &Mapping, pagemap: &File) -> Option<MappingPages> {
        const PRESENT: u64 = 1 << 63;
        const OF_FILE: u64 = 1 << 61;
        let pages = ((mapping.end - mapping.start) / PAGE).min(MOST_PAGES);
        let mut entries = vec![0; pages as usize * 8];
        let at = mapping.start / PAGE * 8;
        pagemap.read_exact_at(&mut entries, at).ok()?;
        let entries = entries.as_chunks().0.iter();
        let entries = (0..).zip(entries.map(|entry| u64::from_ne_bytes(*entry)));
        let present = entries.filter(|(_, entry)| entry & PRESENT != 0);
        let (shown, written): (Vec<_>, Vec<_>) =
            present.partition(|(_, entry)| entry & OF_FILE != 0);
        let numbers = |pages: Vec<(u64, u64)>| pages.into_iter().map(|(page, _)| page).collect();
        Some(MappingPages {
            start: mapping.start,
            pages,
            is_file: mapping.file().is_some(),
            written: numbers(written),
            shown: numbers(shown),
        })
    }
}

struct ForkPlan {
    parts: Vec<MappingPages>,
    file: i32,
    file_pages: u64,
    /// The range of each part; empty if it could not be mapped.
    mapped: Vec<Range<usize>>,
}

impl ForkPlan {
    fn new(copied: &CopiedMemory, file: &File) -> ForkPlan {
        let parts = copied.parts.clone();
        ForkPlan {
            mapped: vec![0..0; parts.len()],
            parts,
            file: file.as_raw_fd(),
            file_pages: file.metadata().map_or(0, |found| found.len() / PAGE),
        }
    }
}

static PLAN: AtomicPtr<ForkPlan> = AtomicPtr::new(null_mut());

const MAP: u8 = 0;
const WITHOUT: u8 = 1;
const WITH: u8 = 2;

/// Runs in the child: maps the plan's memory, or returns the CPU time of a fork in ns. Must take no lock and allocate
/// nothing: if another thread held a lock at the fork, nothing in the child releases that lock.
fn answer(question: u8) -> f64 {
    // SAFETY: the parent stored the address of a live plan, and this child has a copy at the same address.
    let Some(plan) = (unsafe { PLAN.load(Relaxed).as_mut() }) else {
        return 1.0;
    };
    match question {
        MAP => map(plan),
        WITHOUT => forks(plan, libc::MADV_DONTFORK),
        _ => forks(plan, libc::MADV_DOFORK),
    }
}

fn map(plan: &mut ForkPlan) -> f64 {
    for (part, mapped) in plan.parts.iter().zip(&mut plan.mapped) {
        let (pages, kind, file) = match part.is_file {
            true => (part.pages.min(plan.file_pages), 0, plan.file),
            false => (part.pages, libc::MAP_ANONYMOUS, -1),
        };
        let len = (pages * PAGE) as usize;
        let wanted = part.start as *mut libc::c_void;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_NORESERVE | kind;
        // SAFETY: without MAP_FIXED nothing is replaced.
        let got = unsafe { libc::mmap(wanted, len, access, flags, file, 0) };
        if got == libc::MAP_FAILED {
            continue;
        }
        *mapped = got as usize..got as usize + len;
        let inside = |page: &&u64| **page < pages;
        let at = |page: &u64| got.cast::<u8>().wrapping_add((page * PAGE) as usize);
        for page in part.shown.iter().filter(inside).map(at) {
            // SAFETY: the address is within what was just mapped.
            unsafe { page.read_volatile() };
        }
        for page in part.written.iter().filter(inside).map(at) {
            // SAFETY: the address is within what was just mapped, and no other thread uses it.
            unsafe { page.write_volatile(1) };
        }
    }
    0.0
}

fn forks(plan: &ForkPlan, advice: i32) -> f64 {
    for mapped in &plan.mapped {
        // SAFETY: this child mapped the memory, and the call only changes whether forks copy it.
        unsafe { libc::madvise(mapped.start as *mut libc::c_void, mapped.len(), advice) };
    }
    let before = used_by(UsageWho::RUSAGE_SELF);
    for _ in 0..FORKS {
        // SAFETY: the forked child ends at once, without libc's handlers.
        unsafe {
            match libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) {
                0 => libc::_exit(0),
                child if child > 0 => libc::waitpid(child as i32, null_mut(), 0),
                _ => return f64::NAN,
            };
        }
    }
    let used = used_by(UsageWho::RUSAGE_SELF).saturating_sub(before);
    used.as_nanos() as f64 / f64::from(FORKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(count: u64) -> CopiedMemory {
        let part = |number: u64| MappingPages {
            start: 0x2100_0000_0000 + (number << 32),
            pages: 64,
            is_file: false,
            written: (0..32).collect(),
            shown: Vec::new(),
        };
        let parts = (0..count).map(part).collect();
        CopiedMemory { parts }
    }

    #[test]
    fn a_fork_that_copies_more_costs_more() {
        let each = |count| memory(count).measure().expect("it can be measured here");
        let [none, many] = [0, 64].map(each);
        assert!(many > none, "{none} {many}");
        assert!(memory(64).guess() > memory(1).guess());
    }

    #[test]
    fn pages_that_a_process_wrote_are_found() {
        let len = 8 * PAGE as usize;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let at = unsafe { libc::mmap(null_mut(), len, access, flags, -1, 0) };
        assert_ne!(at, libc::MAP_FAILED);
        // SAFETY: the range is within the fresh mapping.
        unsafe { at.cast::<u8>().add(3 * PAGE as usize).write_volatile(1) };
        let mapping = Mapping {
            start: at as u64,
            end: at as u64 + len as u64,
            ..Mapping::default()
        };
        let pagemap = File::open("/proc/self/pagemap").expect("our own");
        let part = MappingPages::of(&mapping, &pagemap).expect("our own");
        assert_eq!((part.written, part.shown), (vec![3], vec![]));
    }
}
