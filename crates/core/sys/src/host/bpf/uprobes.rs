//! Counts a process's hits of uprobes in BPF.
//!
//! A probed place's cookie is the index of its counter. The BPF program must add atomically, because its thread may be
//! preempted, and another thread may then run the program on the same CPU.
//!
//! INVARIANT: the program uses less than 64 bytes of stack, because Linux 6.13 and later may panic at a uprobe whose
//! program uses 64 bytes or more.

use std::prelude::rust_2024::*;

use std::ffi::CStr;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use super::{LINK_CREATE, MAP_CREATE, MAP_LOOKUP_ELEM, Words, call, descriptor, load};

const MAP_TYPE_PERCPU_ARRAY: u64 = 6;
const PROGRAM_TYPE_KPROBE: u32 = 2;
const ATTACH_UPROBE_MULTI: u32 = 48;

/// Counters, and the BPF program that increments them.
#[derive(Debug)]
pub struct UprobeCounters {
    program: OwnedFd,
    map: OwnedFd,
    counters: usize,
    /// The number of possible CPUs.
    cpus: usize,
}

/// Places to count in a process.
#[derive(Clone, Copy, Debug)]
pub struct UprobeTarget<'a> {
    /// The file, as tiptoe sees it.
    pub path: &'a CStr,
    /// The process.
    pub pid: u32,
    /// The places' offsets in the file.
    pub offsets: &'a [u64],
    /// The index of each place's counter.
    pub cookies: &'a [u64],
}

/// Places whose hits are counted until the drop.
#[derive(Debug)]
pub struct UprobeLink {
    _held: OwnedFd,
}

impl UprobeCounters {
    /// Returns counters at 0. Needs `CAP_BPF`, `CAP_PERFMON`, and Linux 6.6.
    pub fn new(counters: usize) -> io::Result<Self> {
        let map = create_map(counters)?;
        let program = load(
            PROGRAM_TYPE_KPROBE,
            ATTACH_UPROBE_MULTI,
            &program(map.as_raw_fd()),
        )?;
        Ok(Self {
            program,
            map,
            counters,
            cpus: possible_cpus(),
        })
    }

    /// Counts hits of all these places; on error, of none.
    pub fn link(&self, place: &UprobeTarget<'_>) -> io::Result<UprobeLink> {
        if place.offsets.len() != place.cookies.len() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut words = Words::default();
        words[0] = self.program.as_raw_fd() as u64;
        words[1] = u64::from(ATTACH_UPROBE_MULTI);
        words[2] = place.path.as_ptr() as u64;
        words[3] = place.offsets.as_ptr() as u64;
        words[5] = place.cookies.as_ptr() as u64;
        words[6] = u64::from(u32::try_from(place.offsets.len()).unwrap_or(u32::MAX));
        words[7] = u64::from(place.pid);
        // SAFETY: the path ends with a nul, both lists are as long as stated, and the call only reads them. The
        // descriptor is new.
        let _held = unsafe { descriptor(LINK_CREATE, &mut words) }?;
        Ok(UprobeLink { _held })
    }

    /// Returns all counters, summed over the CPUs.
    pub fn read(&self) -> io::Result<Vec<u64>> {
        let mut per_cpu = vec![0u64; self.cpus];
        (0..self.counters)
            .map(|index| {
                self.read_one(index as u32, &mut per_cpu)?;
                Ok(per_cpu.iter().sum())
            })
            .collect()
    }

    fn read_one(&self, index: u32, per_cpu: &mut [u64]) -> io::Result<()> {
        let mut words = Words::default();
        words[0] = self.map.as_raw_fd() as u64;
        words[1] = &raw const index as u64;
        words[2] = per_cpu.as_mut_ptr() as u64;
        // SAFETY: the key is four bytes, and `per_cpu` has eight for each possible CPU.
        unsafe { call(MAP_LOOKUP_ELEM, &mut words) }.map(drop)
    }
}

fn create_map(counters: usize) -> io::Result<OwnedFd> {
    let entries = u32::try_from(counters.max(1)).map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut words = Words::default();
    words[0] = MAP_TYPE_PERCPU_ARRAY | (size_of::<u32>() as u64) << 32;
    words[1] = size_of::<u64>() as u64 | u64::from(entries) << 32;
    // SAFETY: the command takes numbers and returns a new descriptor.
    unsafe { descriptor(MAP_CREATE, &mut words) }
}

/// Returns the program, encoded as in `linux/bpf.h`: opcode, registers, offset, immediate.
fn program(map: i32) -> [u64; 12] {
    let op = |code: u8, dst: u8, src: u8, offset: i16, value: i32| {
        u64::from(code)
            | u64::from(dst | src << 4) << 8
            | u64::from(offset.cast_unsigned()) << 16
            | u64::from(value.cast_unsigned()) << 32
    };
    const GET_ATTACH_COOKIE: i32 = 174;
    const MAP_LOOKUP: i32 = 1;
    const PSEUDO_MAP_FD: u8 = 1;
    [
        op(0x85, 0, 0, 0, GET_ATTACH_COOKIE), // r0 = cookie(ctx)
        op(0x63, 10, 0, -4, 0),               // *(u32 *)(r10 - 4) = r0
        op(0x18, 1, PSEUDO_MAP_FD, 0, map),   // r1 = map
        op(0, 0, 0, 0, 0),                    //   (second half)
        op(0xbf, 2, 10, 0, 0),                // r2 = r10
        op(0x07, 2, 0, 0, -4),                // r2 += -4
        op(0x85, 0, 0, 0, MAP_LOOKUP),        // r0 = lookup(r1, r2)
        op(0x15, 0, 0, 2, 0),                 // if r0 == 0 goto out
        op(0xb7, 1, 0, 0, 1),                 // r1 = 1
        op(0xdb, 0, 1, 0, 0),                 // lock *(u64 *)r0 += r1
        op(0xb7, 0, 0, 0, 0),                 // out: r0 = 0
        op(0x95, 0, 0, 0, 0),                 // exit
    ]
}

fn possible_cpus() -> usize {
    let text = fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    // Too large a number only costs memory. With too small a number the kernel would write past the buffer's end.
    last_cpu(&text).map_or(8192, |last| last + 1)
}

fn last_cpu(list: &str) -> Option<usize> {
    list.trim().rsplit([',', '-']).next()?.parse().ok()
}

#[cfg(test)]
#[path = "../../../../../../tests/support/bpf_stack.rs"]
mod bpf_stack;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_keeps_its_stack_below_what_a_kernel_panics_at() {
        assert_eq!(bpf_stack::stack_bytes(&program(0)), 4);
    }

    #[test]
    fn cpu_lists() {
        for (list, last) in [
            ("0\n", Some(0)),
            ("0-1", Some(1)),
            ("0-3,8-11", Some(11)),
            ("", None),
        ] {
            assert_eq!(last_cpu(list), last, "{list}");
        }
    }

    #[test]
    fn new_counters_are_zero_and_lists_must_match() {
        let counters = match UprobeCounters::new(3) {
            Ok(counters) => counters,
            Err(e) => return crate::skipped::skipped("BPF uprobes", &std::format!("{e}")),
        };
        assert_eq!(counters.read().unwrap(), [0, 0, 0]);
        let place = UprobeTarget {
            path: c"/proc/self/exe",
            pid: std::process::id(),
            offsets: &[0],
            cookies: &[],
        };
        assert!(counters.link(&place).is_err());
    }
}
