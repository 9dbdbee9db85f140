//! Resource limits.

use std::prelude::rust_2024::*;

use std::fs;
use std::io;

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::error::{Error, Result};
use super::procfs::{Process, tasks_of_all};

/// Descriptors kept free for other uses.
const SPARE: u64 = 64;

/// The limit on open files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenFiles {
    /// The current limit.
    pub soft: u64,
    /// The highest limit that the process may set.
    pub hard: u64,
}

/// Returns our limit on open files.
pub fn open_files() -> OpenFiles {
    let limit = getrlimit(Resource::Nofile);
    OpenFiles {
        soft: limit.current.unwrap_or(u64::MAX),
        hard: limit.maximum.unwrap_or(u64::MAX),
    }
}

/// Raises the limit, so that `more` files can be opened. A command must be started before this call, because the
/// command would inherit the raised limit.
pub fn reserve_open_files(more: u64) -> Result<()> {
    let used = fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64);
    let needed = used + more + SPARE;
    let OpenFiles { soft, hard } = open_files();
    if needed <= soft {
        return Ok(());
    }
    set_open_files(needed, hard.max(needed))
        .or_else(|_| set_open_files(needed.min(hard), hard))
        .ok()
        .filter(|()| needed <= open_files().soft)
        .ok_or(Error::DescriptorLimit {
            needed,
            limit: hard,
        })
}

/// If an error says that a file is too large, adds the limit and how to raise it.
pub fn explain_file_size(error: io::Error) -> io::Error {
    match getrlimit(Resource::Fsize).current {
        Some(most) if error.kind() == io::ErrorKind::FileTooLarge => io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!(
                "File too large: the limit on file sizes is {most} bytes here, for shared memory, too \
                 (`ulimit -f unlimited` before tiptoe lifts it)"
            ),
        ),
        _ => error,
    }
}

/// Pins the calling thread to the first allowed CPU.
pub fn stay_on_one_cpu() -> Option<u32> {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    let allowed = sched_getaffinity(None).ok()?;
    let cpu = (0..CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu))?;
    let mut one = CpuSet::new();
    one.set(cpu);
    sched_setaffinity(None, &one).ok()?;
    u32::try_from(cpu).ok()
}

/// Returns how many CPUs are online.
pub fn online_cpus() -> u32 {
    // SAFETY: the call takes and returns numbers.
    let online = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    u32::try_from(online).unwrap_or(1).max(1)
}

/// Returns the limit on a process's address space in bytes, if any.
pub fn address_space(process: Process) -> Option<u64> {
    limit(process, "Max address space")
}

/// Returns how many more threads a process may create; `None` if no limit is near. Ignores the user's processes that
/// tiptoe does not see.
pub fn threads_left(process: Process) -> Option<u64> {
    const FAR: u64 = 1024;
    const ABOVE_LIMITS: u64 = 1 << 21 | 1 << 24; // CAP_SYS_ADMIN, CAP_SYS_RESOURCE
    let status = process.status().ok()?;
    let user = status.uids[0];
    if user == 0 || status.cap_eff & ABOVE_LIMITS != 0 {
        return None;
    }
    let limit = limit(process, "Max processes")?;
    if limit > tasks_of_all().ok()? + FAR {
        return None;
    }
    let of_user = |process: Process| {
        let status = process
            .status()
            .ok()
            .filter(|status| status.uids[0] == user);
        status.map_or(0, |status| u64::from(status.threads))
    };
    let used: u64 = Process::all().ok()?.into_iter().map(of_user).sum();
    Some(limit.saturating_sub(used))
}

fn limit(process: Process, name: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{}/limits", process.pid())).ok()?;
    soft_limit(&text, name)
}

fn soft_limit(limits: &str, name: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

fn set_open_files(soft: u64, hard: u64) -> Result<(), Errno> {
    let (current, maximum) = (Some(soft), Some(hard));
    setrlimit(Resource::Nofile, Rlimit { current, maximum })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_the_soft_one() {
        let limits = "Max cpu time              unlimited            unlimited            seconds\n\
                      Max address space         4096000              unlimited            bytes\n";
        assert_eq!(soft_limit(limits, "Max address space"), Some(4_096_000));
        assert_eq!(soft_limit(limits, "Max cpu time"), None);
        assert_eq!(soft_limit("", "Max address space"), None);
    }

    #[test]
    fn an_error_of_another_reason_stays() {
        let error = explain_file_size(io::Error::from_raw_os_error(libc::ENOSPC));
        assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
    }

    #[test]
    fn an_impossible_request_is_refused_with_the_numbers() {
        let error = reserve_open_files(1 << 40).unwrap_err();
        assert!(matches!(error, Error::DescriptorLimit { needed, .. } if needed > 1 << 40));
        assert!(error.hint().unwrap().contains("ulimit -n"));
        reserve_open_files(1).unwrap();
    }
}
