//! perf_event_open(2): one event, one descriptor.
//!
//! Only counting is done here, so an event is no more than its descriptor: it
//! counts until it is closed, also when its task has ended.

use std::prelude::rust_2024::*;

use std::ffi::CStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

mod breakpoint;
mod group;
mod signal;

pub use breakpoint::{Access, Breakpoint};
pub use signal::Answered;

/// The kernel's own structures and constants.
pub use perf_event_open_sys::bindings as abi;

/// The attributes of an event, as the kernel defines them.
pub type Attr = abi::perf_event_attr;

/// Where an event counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// One thread, on whatever CPU it runs; 0 is the calling thread.
    Thread(u32),
    /// One CPU, whatever runs there.
    Cpu(u32),
    /// One CPU, while it runs tasks of a cgroup.
    Cgroup {
        /// An open descriptor of the cgroup's directory in the hierarchy that perf events know.
        directory: i32,
        /// The CPU.
        cpu: u32,
    },
}

/// What one read of an event gives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// How often it happened.
    pub count: u64,
    /// For how long the event was wanted, in ns of its tasks' running time.
    pub time_enabled_ns: u64,
    /// For how long of that it counted.
    pub time_running_ns: u64,
}

/// A uprobe: the instruction at `offset` in the file `path`.
#[derive(Clone, Copy, Debug)]
pub struct Uprobe<'a> {
    /// The event type of uprobes, from [`uprobe_pmu`].
    pub pmu: u32,
    /// The file, as tiptoe sees it.
    pub path: &'a CStr,
    /// The offset in the file.
    pub offset: u64,
}

/// An open event. It ends when this is dropped.
#[derive(Debug)]
pub struct PerfEvent(OwnedFd);

impl PerfEvent {
    /// Opens an event. `attr.size` and the read format are filled in here.
    ///
    /// `attr` may hold no pointer; uprobes, which need one, have [`PerfEvent::open_uprobe`].
    pub fn open(attr: Attr, on: On) -> io::Result<Self> {
        Self::open_behind(attr, on, None)
    }

    fn open_behind(attr: Attr, on: On, leader: Option<i32>) -> io::Result<Self> {
        let mut attr = complete(attr);
        let (pid, cpu) = match on {
            On::Thread(tid) => (i32::try_from(tid).map_err(|_| io::ErrorKind::NotFound)?, -1),
            On::Cpu(cpu) => (-1, i32::try_from(cpu).map_err(|_| io::ErrorKind::NotFound)?),
            On::Cgroup { directory, cpu } => (
                directory,
                i32::try_from(cpu).map_err(|_| io::ErrorKind::NotFound)?,
            ),
        };
        let of_cgroup = match on {
            On::Cgroup { .. } => abi::PERF_FLAG_PID_CGROUP,
            _ => 0,
        };
        // SAFETY: `attr` has the size that it states and outlives the call. A
        // pointer in it is only read by the kernel, which checks each access.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw mut attr,
                pid,
                cpu,
                leader.unwrap_or(-1),
                u64::from(abi::PERF_FLAG_FD_CLOEXEC | of_cgroup),
            )
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel just gave us this descriptor, and nobody else knows it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd as i32) }))
    }

    /// Arms a uprobe for a thread; it counts from now on, in that thread alone.
    ///
    /// Such an event must never be inherited: to copy it for a new thread, the
    /// kernel reads `path` again, now in the memory of the *target*, and the
    /// target's clone(2) fails with EFAULT (seen on Linux 6.18).
    pub fn open_uprobe(probe: &Uprobe<'_>, on: On) -> io::Result<Self> {
        Self::open_probe(probe, 0, on)
    }

    /// The same for the function that begins there: its returns are counted.
    ///
    /// The kernel writes another return address into each call's frame; a program that
    /// throws past one ends. `Unsupported` where the kernel has no such probes.
    pub fn open_uretprobe(probe: &Uprobe<'_>, on: On) -> io::Result<Self> {
        let bit = retprobe_bit().ok_or(io::ErrorKind::Unsupported)?;
        Self::open_probe(probe, 1 << bit, on)
    }

    fn open_probe(probe: &Uprobe<'_>, config: u64, on: On) -> io::Result<Self> {
        let mut attr = attr(probe.pmu, 0);
        attr.config = config;
        attr.__bindgen_anon_3.uprobe_path = probe.path.as_ptr() as u64;
        attr.__bindgen_anon_4.probe_offset = probe.offset;
        Self::open(attr, on)
    }

    /// Its descriptor.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// The counts so far, of a thread also when it has ended. `UnexpectedEof` of a pinned event that is in error.
    pub fn read(&self) -> io::Result<Counts> {
        let mut words = [0u64; 3];
        // SAFETY: `words` is writable for exactly the length given.
        let got = unsafe {
            libc::read(
                self.0.as_raw_fd(),
                words.as_mut_ptr().cast(),
                size_of_val(&words),
            )
        };
        if got < 0 {
            return Err(io::Error::last_os_error());
        }
        if got as usize != size_of_val(&words) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let [count, time_enabled_ns, time_running_ns] = words;
        Ok(Counts {
            count,
            time_enabled_ns,
            time_running_ns,
        })
    }
}

/// With its size, and what a read gives.
fn complete(mut attr: Attr) -> Attr {
    attr.size = size_of::<Attr>() as u32;
    attr.read_format = u64::from(abi::PERF_FORMAT_TOTAL_TIME_ENABLED)
        | u64::from(abi::PERF_FORMAT_TOTAL_TIME_RUNNING);
    attr
}

/// The attributes of an event of this type, all else off.
pub fn attr(kind: u32, config: u32) -> Attr {
    let mut attr = Attr::default();
    attr.type_ = kind;
    attr.config = u64::from(config);
    attr
}

/// The event type of uprobes on this kernel, if it has them (Linux 4.17).
pub fn uprobe_pmu() -> Option<u32> {
    let text = fs::read_to_string("/sys/bus/event_source/devices/uprobe/type").ok()?;
    text.trim().parse().ok()
}

/// Which bit of a uprobe's `config` asks for its returns: the file says `config:BIT`.
fn retprobe_bit() -> Option<u32> {
    let text = fs::read_to_string("/sys/bus/event_source/devices/uprobe/format/retprobe").ok()?;
    let bit = text.trim().strip_prefix("config:")?.parse().ok()?;
    (bit < u64::BITS).then_some(bit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_software_event_counts() {
        let attr = attr(abi::PERF_TYPE_SOFTWARE, abi::PERF_COUNT_SW_TASK_CLOCK);
        let event = match PerfEvent::open(attr, On::Thread(0)) {
            Ok(event) => event,
            Err(e) => return crate::skipped::skipped("perf_event_open", &std::format!("{e}")),
        };
        let first = event.read().unwrap();
        let second = event.read().unwrap();
        assert!(second.count > first.count && second.time_running_ns > first.time_running_ns);
    }

    #[test]
    fn no_such_thread() {
        let attr = attr(abi::PERF_TYPE_SOFTWARE, abi::PERF_COUNT_SW_CPU_CLOCK);
        assert!(PerfEvent::open(attr, On::Thread(u32::MAX)).is_err());
        assert!(PerfEvent::open(attr, On::Thread(u32::MAX / 2)).is_err());
    }
}
