use std::prelude::rust_2024::*;

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::{BpfKind, Check, Refusal};
use crate::host::bpf::{self, UprobeCounters, UprobeTarget};
use crate::host::perf::{Access, Breakpoint, CountedOn, PerfEvent, Uprobe, abi, attr, uprobe_pmu};

const MEMBARRIER_QUERY: i32 = 0;
const MEMBARRIER_PRIVATE_EXPEDITED_SYNC_CORE: i64 = 1 << 5;
const BPF_TYPES: [(BpfKind, u32); 4] = [
    (BpfKind::Kprobe, 2),
    (BpfKind::Tracepoint, 5),
    (BpfKind::RawTracepoint, 17),
    (BpfKind::PerfEvent, 7),
];
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";

const FIRST_USER_NAMESPACE: &str = "user:[4026531837]";

pub(in crate::host) fn in_first_user_namespace() -> bool {
    fs::read_link("/proc/self/ns/user").is_ok_and(|link| link.as_os_str() == FIRST_USER_NAMESPACE)
}

/// Returns whether our process ids are those of the first pid namespace.
pub fn in_first_pid_namespace() -> bool {
    fs::read_link("/proc/self/ns/pid").is_ok_and(|link| link.as_os_str() == FIRST_PID_NAMESPACE)
}

/// Returns our pid namespace's device (in the kernel's encoding) and inode; `None` if the namespace is the first or
/// unknown.
pub fn pid_namespace() -> Option<(u64, u64)> {
    let found = fs::metadata("/proc/self/ns/pid").ok()?;
    let (major, minor) = (libc::major(found.dev()), libc::minor(found.dev()));
    let device = u64::from(major) << 20 | u64::from(minor);
    (!in_first_pid_namespace()).then_some((device, found.ino()))
}

/// Returns whether the kernel has at least this version, or an unknown one.
pub fn is_linux(major: u32, minor: u32) -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    is_release(&release, major, minor)
}

fn is_release(release: &str, major: u32, minor: u32) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    let mut number = || numbers.next()?.parse().ok();
    match (number(), number()) {
        (Some(found), Some(found_minor)) => (found, found_minor) >= (major, minor),
        _ => true,
    }
}

pub(super) fn bpf() -> [(BpfKind, Check); 4] {
    BPF_TYPES.map(|(kind, number)| {
        let tried = bpf::try_load(number);
        (kind, tried.map_err(|e| Refusal::from("bpf", &e)))
    })
}

pub(super) fn btf() -> Check {
    let opened = File::open("/sys/kernel/btf/vmlinux");
    opened
        .map(drop)
        .map_err(|e| Refusal::from("/sys/kernel/btf/vmlinux", &e))
}

pub(super) fn hardware_counters() -> Check {
    counter(abi::PERF_TYPE_HARDWARE, abi::PERF_COUNT_HW_CPU_CYCLES)
}

pub(super) fn software_counters() -> Check {
    counter(abi::PERF_TYPE_SOFTWARE, abi::PERF_COUNT_SW_TASK_CLOCK)
}

fn counter(kind: u32, config: u32) -> Check {
    let mut attr = attr(kind, config);
    attr.set_exclude_kernel(1);
    attr.set_exclude_hv(1);
    perf(PerfEvent::open(attr, CountedOn::Thread(0)))
}

/// Links a uprobe to our file's first byte, which never runs, because it is no code.
pub(super) fn process_uprobes() -> Check {
    let counters = UprobeCounters::new(1).map_err(|e| Refusal::from("bpf", &e))?;
    let place = UprobeTarget {
        path: c"/proc/self/exe",
        pid: std::process::id(),
        offsets: &[0],
        cookies: &[0],
    };
    let linked = counters.link(&place);
    linked.map(drop).map_err(|e| Refusal::from("bpf", &e))
}

pub(super) fn thread_uprobes() -> Check {
    let pmu = uprobe_pmu().ok_or(Refusal {
        call: "/sys/bus/event_source/devices/uprobe",
        errno: libc::ENOENT,
    })?;
    let probe = Uprobe {
        pmu,
        path: c"/proc/self/exe",
        offset: 0,
    };
    perf(PerfEvent::open_uprobe(&probe, CountedOn::Thread(0)))
}

/// Opens a breakpoint on a word that is never written. Like a watched variable's breakpoint, it would raise a signal
/// (Linux 5.13).
pub(super) fn breakpoints() -> Check {
    static WORD: u64 = 0;
    perf(PerfEvent::signal_accesses(&Breakpoint {
        address: &raw const WORD as u64,
        len: size_of_val(&WORD) as u8,
        access: Access::Write,
    }))
}

fn perf(opened: io::Result<PerfEvent>) -> Check {
    opened
        .map(drop)
        .map_err(|e| Refusal::from("perf_event_open", &e))
}

pub(super) fn membarrier_sync_core() -> Check {
    // SAFETY: the query changes nothing and takes no pointer.
    let commands = unsafe { libc::syscall(libc::SYS_membarrier, MEMBARRIER_QUERY, 0, 0) };
    match commands {
        c if c < 0 => Err(Refusal::last("membarrier")),
        c if c & MEMBARRIER_PRIVATE_EXPEDITED_SYNC_CORE != 0 => Ok(()),
        _ => Err(Refusal {
            call: "membarrier",
            errno: libc::EINVAL,
        }),
    }
}

pub(super) fn rseq() -> Check {
    // SAFETY: the call fails before it reads the null pointer.
    let result = unsafe { libc::syscall(libc::SYS_rseq, 0usize, 0, i32::MIN, 0) };
    check_implemented("rseq", result)
}

pub(super) fn futex_waitv() -> Check {
    // SAFETY: an empty list is refused before anything is read.
    let result = unsafe { libc::syscall(libc::SYS_futex_waitv, 0usize, 0, 0, 0usize, 0) };
    check_implemented("futex_waitv", result)
}

fn check_implemented(call: &'static str, result: i64) -> Check {
    let refusal = Refusal::last(call);
    match (result, refusal.errno) {
        (0.., _) | (_, libc::EINVAL) => Ok(()),
        _ => Err(refusal),
    }
}

pub(super) fn process_vm_readv() -> Check {
    let (from, mut to) = (7u64, 0u64);
    let remote = libc::iovec {
        iov_base: (&raw const from).cast_mut().cast(),
        iov_len: size_of_val(&from),
    };
    let local = libc::iovec {
        iov_base: (&raw mut to).cast(),
        iov_len: size_of_val(&to),
    };
    let me = std::process::id() as i32;
    // SAFETY: each vector has one entry, for a word above, which outlives the call.
    let got = unsafe { libc::process_vm_readv(me, &raw const local, 1, &raw const remote, 1, 0) };
    match got {
        8 => Ok(()),
        _ => Err(Refusal::last("process_vm_readv")),
    }
}

/// Maps a memfd as code. Like the memfd of tiptoe's code in a target, it lacks `MFD_EXEC`, because
/// `vm.memfd_noexec=2` refuses that flag but allows the mapping.
pub(super) fn executable_memfd() -> Check {
    const BYTES: usize = 4096;
    let refusal =
        |call: &'static str| move |error: Errno| Refusal::from(call, &io::Error::from(error));
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = memfd_create(c"tiptoe", flags).map_err(refusal("memfd_create"))?;
    ftruncate(&file, BYTES as u64).map_err(refusal("ftruncate"))?;
    let (access, kind) = (ProtFlags::READ | ProtFlags::EXEC, MapFlags::PRIVATE);
    // SAFETY: the kernel chooses the address, so this replaces no memory.
    let code = unsafe { mmap(std::ptr::null_mut(), BYTES, access, kind, &file, 0) };
    let code = code.map_err(refusal("mmap"))?;
    // SAFETY: nothing refers to this mapping.
    let _ = unsafe { munmap(code, BYTES) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::is_release;

    #[test]
    fn versions_are_compared_as_numbers() {
        for (release, is_it) in [
            ("6.10.0-1-amd64", true),
            ("6.9.12\n", false),
            ("6.1.0-50-cloud-amd64", false),
            ("7.0-rc1", true),
            ("5.15.0", false),
            ("", true),
        ] {
            assert_eq!(is_release(release, 6, 10), is_it, "{release}");
        }
    }
}
