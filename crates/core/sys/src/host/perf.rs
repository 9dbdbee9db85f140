//! Events of perf_event_open(2). An event counts until its descriptor is closed, and is readable after its task's end.

use std::prelude::rust_2024::*;

use std::ffi::CStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

mod breakpoint;
mod signal;

pub use breakpoint::{Access, Breakpoint};
pub use signal::SigtrapHandler;

/// The kernel's structures and constants.
pub use perf_event_open_sys::bindings as abi;

/// An event's attributes.
pub type Attr = abi::perf_event_attr;

/// Where an event counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountedOn {
    /// One thread, on any CPU; 0 is the caller.
    Thread(u32),
    /// One CPU, whatever runs on it.
    Cpu(u32),
    /// One CPU, while it runs tasks of a cgroup.
    Cgroup {
        /// The open directory, in the hierarchy of [`super::cgroup::Cgroups::for_perf`].
        directory: i32,
        /// The CPU.
        cpu: u32,
    },
}

/// An event's values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// How often the event happened.
    pub count: u64,
    /// How long the event was enabled while its tasks ran.
    pub time_enabled_ns: u64,
    /// How long the event counted.
    pub time_running_ns: u64,
}

/// A uprobe.
#[derive(Clone, Copy, Debug)]
pub struct Uprobe<'a> {
    /// The result of [`uprobe_pmu`].
    pub pmu: u32,
    /// The file, in tiptoe's mount namespace.
    pub path: &'a CStr,
    /// The offset in the file.
    pub offset: u64,
}

/// An open event.
#[derive(Debug)]
pub struct PerfEvent(OwnedFd);

impl PerfEvent {
    /// Opens an event. `attr` must contain no pointer. [`PerfEvent::open_uprobe`] is for uprobes, which need a pointer.
    pub fn open(attr: Attr, on: CountedOn) -> io::Result<Self> {
        Self::open_in(attr, on, None)
    }

    /// Opens an event in `leader`'s group; without `leader`, the event leads a group.
    pub fn open_in(attr: Attr, on: CountedOn, leader: Option<&PerfEvent>) -> io::Result<Self> {
        let mut attr = complete(attr);
        let number = |number: u32| i32::try_from(number).map_err(|_| io::ErrorKind::NotFound);
        let (pid, cpu, of_cgroup) = match on {
            CountedOn::Thread(tid) => (number(tid)?, -1, 0),
            CountedOn::Cpu(cpu) => (-1, number(cpu)?, 0),
            CountedOn::Cgroup { directory, cpu } => {
                (directory, number(cpu)?, abi::PERF_FLAG_PID_CGROUP)
            }
        };
        // SAFETY: `attr` has its stated size and outlives the call. The kernel only reads through a pointer in
        // it, and checks each access.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw mut attr,
                pid,
                cpu,
                leader.map_or(-1, |leader| leader.0.as_raw_fd()),
                u64::from(abi::PERF_FLAG_FD_CLOEXEC | of_cgroup),
            )
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd as i32) }))
    }

    /// Opens a uprobe, which counts at once. New threads must not inherit the event, because the kernel would read
    /// `path` in the *target's* memory, and clone(2) would fail with EFAULT (seen on Linux 6.18).
    pub fn open_uprobe(probe: &Uprobe<'_>, on: CountedOn) -> io::Result<Self> {
        Self::open_probe(probe, 0, on)
    }

    /// Opens a uprobe on a function's returns. The kernel replaces return addresses, so a program crashes if it throws
    /// an exception past the function. Fails with `Unsupported` if the kernel has no return probes.
    pub fn open_uretprobe(probe: &Uprobe<'_>, on: CountedOn) -> io::Result<Self> {
        let bit = retprobe_bit().ok_or(io::ErrorKind::Unsupported)?;
        Self::open_probe(probe, 1 << bit, on)
    }

    fn open_probe(probe: &Uprobe<'_>, config: u64, on: CountedOn) -> io::Result<Self> {
        let mut attr = attr(probe.pmu, 0);
        attr.config = config;
        attr.__bindgen_anon_3.uprobe_path = probe.path.as_ptr() as u64;
        attr.__bindgen_anon_4.probe_offset = probe.offset;
        Self::open(attr, on)
    }

    /// Returns the event's descriptor.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Reads the counts. Fails with `UnexpectedEof` if the event is pinned and in error.
    pub fn read(&self) -> io::Result<Counts> {
        let mut words = [[0; size_of::<u64>()]; 3];
        if rustix::io::read(&self.0, words.as_flattened_mut())? != size_of_val(&words) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let [count, time_enabled_ns, time_running_ns] = words.map(u64::from_ne_bytes);
        Ok(Counts {
            count,
            time_enabled_ns,
            time_running_ns,
        })
    }
}

fn complete(mut attr: Attr) -> Attr {
    attr.size = size_of::<Attr>() as u32;
    attr.read_format = u64::from(abi::PERF_FORMAT_TOTAL_TIME_ENABLED)
        | u64::from(abi::PERF_FORMAT_TOTAL_TIME_RUNNING);
    attr
}

/// Returns attributes with all options off.
pub fn attr(kind: u32, config: u32) -> Attr {
    let mut attr = Attr::default();
    attr.type_ = kind;
    attr.config = u64::from(config);
    attr
}

/// Returns the event type of uprobes, if the kernel has them (Linux 4.17).
pub fn uprobe_pmu() -> Option<u32> {
    let text = fs::read_to_string("/sys/bus/event_source/devices/uprobe/type").ok()?;
    text.trim().parse().ok()
}

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
        let event = match PerfEvent::open(attr, CountedOn::Thread(0)) {
            Ok(event) => event,
            Err(e) => return crate::skipped::skipped("perf_event_open", &std::format!("{e}")),
        };
        let first = event.read().unwrap();
        let second = event.read().unwrap();
        assert!(second.count > first.count && second.time_running_ns > first.time_running_ns);
    }

    #[test]
    fn a_group_counts_while_its_leader_is_on() {
        let clock = attr(abi::PERF_TYPE_SOFTWARE, abi::PERF_COUNT_SW_TASK_CLOCK);
        let mut off = clock;
        off.set_disabled(1);
        let leader = match PerfEvent::open_in(off, CountedOn::Thread(0), None) {
            Ok(event) => event,
            Err(e) => return crate::skipped::skipped("perf_event_open", &std::format!("{e}")),
        };
        let member = PerfEvent::open_in(clock, CountedOn::Thread(0), Some(&leader)).unwrap();
        let read = || (leader.read().unwrap().count, member.read().unwrap().count);
        assert_eq!(read(), (0, 0));
        leader.enable().unwrap();
        let (one, two) = read();
        assert!(one > 0 && two > 0);
        leader.disable().unwrap();
        assert_eq!(read(), read());
    }

    #[test]
    fn no_such_thread() {
        let attr = attr(abi::PERF_TYPE_SOFTWARE, abi::PERF_COUNT_SW_CPU_CLOCK);
        assert!(PerfEvent::open(attr, CountedOn::Thread(u32::MAX)).is_err());
        assert!(PerfEvent::open(attr, CountedOn::Thread(u32::MAX / 2)).is_err());
    }
}
