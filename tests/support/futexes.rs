//! Counts futex calls by the kernel's tracepoint.

use std::ffi::CString;
use std::fs::File;
use std::io::Read;
use std::os::fd::AsRawFd;

use crate::foreign::{Attr, open};

const TRACEPOINT: u32 = 2;
const INHERIT: u64 = 1 << 1;
const SET_FILTER: libc::c_ulong = 0x4008_2406;

/// Counts the calls of a thread and of threads that it starts later.
#[derive(Debug)]
pub struct Futexes {
    waits: File,
    wakes: File,
}

impl Futexes {
    /// Begins to count. `None` if the kernel has no such tracepoint.
    pub fn of(thread: u32) -> Option<Futexes> {
        let id = "/sys/kernel/tracing/events/syscalls/sys_enter_futex/id";
        let id: u64 = std::fs::read_to_string(id).ok()?.trim().parse().ok()?;
        let event = |operations: &[u32]| {
            let attr = Attr {
                kind: TRACEPOINT,
                size: size_of::<Attr>() as u32,
                config: id,
                flags: INHERIT,
                ..Attr::default()
            };
            let event = open(&attr, thread as i32);
            // With and without FUTEX_PRIVATE_FLAG (128) and FUTEX_CLOCK_REALTIME (256).
            let flags = [0, 128, 256, 384];
            let all = operations
                .iter()
                .flat_map(|op| flags.map(|flag| format!("op == {}", op | flag)));
            let filter = CString::new(all.collect::<Vec<_>>().join(" || ")).expect("text");
            // SAFETY: the text outlives the call.
            let set = unsafe { libc::ioctl(event.as_raw_fd(), SET_FILTER, filter.as_ptr()) };
            assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
            event
        };
        Some(Futexes {
            waits: event(&[0, 6, 9, 11, 13]),
            wakes: event(&[1, 3, 4, 5, 7, 10, 12]),
        })
    }

    /// Returns the waits and wakes so far.
    pub fn counts(&self) -> [u64; 2] {
        [&self.waits, &self.wakes].map(|mut event| {
            let mut bytes = [0; 8];
            event.read_exact(&mut bytes).expect("a counter");
            u64::from_ne_bytes(bytes)
        })
    }
}
