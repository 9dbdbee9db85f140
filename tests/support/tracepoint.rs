//! Counts the kernel's tracepoints.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd};

const TRACEPOINT: u64 = 2;
const INHERIT: u64 = 1 << 1;
const SET_FILTER: u64 = 0x4008_2406;

/// A tracepoint counted in a process and its later threads.
#[derive(Debug)]
pub struct Tracepoint(File);

impl Tracepoint {
    /// Begins to count a tracepoint, such as `lock:contention_begin`, with a filter.
    pub fn count(name: &str, filter: Option<&str>, pid: u32) -> io::Result<Tracepoint> {
        let place = name.replace(':', "/");
        let id = std::fs::read_to_string(format!("/sys/kernel/tracing/events/{place}/id"))?;
        let id: u64 = id.trim().parse().map_err(io::Error::other)?;
        let mut words = [0u64; 16];
        let size = size_of_val(&words) as u64;
        words[0] = TRACEPOINT | size << 32;
        words[1] = id;
        words[5] = INHERIT;
        let pid = pid.cast_signed();
        // SAFETY: the perf_event_attr has the stated size, and outlives the call.
        let fd = unsafe {
            let opened = libc::syscall(libc::SYS_perf_event_open, words.as_ptr(), pid, -1, -1, 0);
            i32::try_from(opened).unwrap_or(-1)
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: nothing else owns the new descriptor.
        let event = unsafe { File::from_raw_fd(fd) };
        if let Some(filter) = filter {
            let filter = std::ffi::CString::new(filter).map_err(io::Error::other)?;
            // SAFETY: the filter is NUL-terminated and outlives the call.
            if unsafe { libc::ioctl(event.as_raw_fd(), SET_FILTER, filter.as_ptr()) } != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(Tracepoint(event))
    }

    /// Returns the count so far.
    pub fn read(&mut self) -> u64 {
        let mut count = [0; 8];
        let read = self.0.read_exact(&mut count);
        read.map(|()| u64::from_ne_bytes(count)).expect("a count")
    }
}
