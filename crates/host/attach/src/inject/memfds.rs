//! Takes over the memfds that the stub (injected code) made in the target, and fills them.
//!
//! The target is not trusted. So tiptoe copies the descriptors instead of opening paths with its own rights, and checks
//! that each copy is fresh memory that can be sealed.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::statfs::{TMPFS_MAGIC, fstatfs};
use tiptoe_sys::host::limits::explain_file_size;
use tiptoe_wire::descriptors::seals;

use crate::error::IoReason;
use crate::error::inject_error::{BadDescriptor, InjectCall, InjectError};
use crate::memfd::seal;

/// Memory that a process made for an agent.
pub(crate) struct OfferedFds {
    pub agent: OwnedFd,
    pub data: OwnedFd,
    pub plan: OwnedFd,
}

impl OfferedFds {
    pub(crate) fn take(pid: u32, tid: u32, fds: [i32; 3]) -> Result<Self, InjectError> {
        let os = |error| InjectError::os(pid, InjectCall::TakeDescriptor, error);
        let process = pidfd(pid, tid).map_err(os)?;
        // The thread may have ended, and its id been reused.
        if !Path::new(&format!("/proc/{pid}/task/{tid}")).exists() {
            return Err(InjectError::Died { pid });
        }
        let [agent, data, plan] = fds.map(|fd| {
            getfd(&process, fd)
                .map_err(os)
                .and_then(|fd| fresh(pid, fd))
        });
        Ok(Self {
            agent: agent?,
            data: data?,
            plan: plan?,
        })
    }

    pub(crate) fn fill(&self, agent: &[u8], data: u64, plan: u64) -> io::Result<()> {
        let file = File::from(self.agent.try_clone()?);
        file.write_all_at(agent, 0).map_err(explain_file_size)?;
        seal(&self.agent, seals::AGENT)?;
        size(&self.data, data, seals::DATA)?;
        size(&self.plan, plan, libc::F_SEAL_SHRINK | libc::F_SEAL_GROW)
    }

    /// Seals the plan against new writable mappings. Existing mappings stay writable.
    pub(crate) fn close_plan(&self) -> io::Result<()> {
        seal(&self.plan, seals::PLAN)
    }
}

/// Opens a pidfd of the thread; before Linux 6.9, of the process.
fn pidfd(pid: u32, tid: u32) -> io::Result<OwnedFd> {
    let open = |id: u32, flags: i32| {
        // SAFETY: plain numbers go in; a new descriptor or an error comes out.
        owned(unsafe { libc::syscall(libc::SYS_pidfd_open, id, flags) })
    };
    open(tid, libc::O_EXCL).or_else(|_| open(pid, 0))
}

fn getfd(process: &OwnedFd, fd: i32) -> io::Result<OwnedFd> {
    // SAFETY: as in `pidfd`.
    owned(unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), fd, 0) })
}

fn owned(result: i64) -> io::Result<OwnedFd> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so this is a new descriptor without another owner.
    Ok(unsafe { OwnedFd::from_raw_fd(result as i32) })
}

const F_SEAL_EXEC: i32 = 0x20;

/// Accepts only an empty, unlinked, unsealed memfd, because a write to another file could harm other processes.
fn fresh(pid: u32, fd: OwnedFd) -> Result<OwnedFd, InjectError> {
    let hostile = |what| InjectError::Hostile { pid, what };
    let sealed = fcntl(&fd, FcntlArg::F_GET_SEALS).unwrap_or(-1);
    // Some systems seal every memfd against execution, so this seal is accepted.
    if sealed & !F_SEAL_EXEC != 0 {
        return Err(hostile(BadDescriptor::Unsealable));
    }
    // Huge pages may run out when memory is touched, which raises SIGBUS.
    if !fstatfs(&fd).is_ok_and(|system| system.filesystem_type() == TMPFS_MAGIC) {
        return Err(hostile(BadDescriptor::HugePages));
    }
    let file = File::from(fd);
    let empty = file
        .metadata()
        .is_ok_and(|meta| meta.is_file() && meta.len() == 0);
    if !empty {
        return Err(hostile(BadDescriptor::Full));
    }
    Ok(file.into())
}

/// Sets and seals a length. Then checks the length, because the target may have changed it before the seal, and
/// an access after the end would kill tiptoe by SIGBUS.
fn size(fd: &OwnedFd, len: u64, seals: i32) -> io::Result<()> {
    let file = File::from(fd.try_clone()?);
    file.set_len(len).map_err(explain_file_size)?;
    seal(fd, seals)?;
    match file.metadata()?.len() == len {
        true => Ok(()),
        false => Err(IoReason::LengthChanged.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(flags: u32) -> OwnedFd {
        // SAFETY: the name ends with NUL.
        owned(
            unsafe { libc::memfd_create(c"test".as_ptr(), flags | libc::MFD_ALLOW_SEALING) }.into(),
        )
        .expect("a memfd")
    }

    #[test]
    fn a_thread_of_another_process_offers_nothing() {
        let mut sleep = std::process::Command::new("sleep");
        let mut child = sleep.arg("1000").spawn().expect("sleep");
        let taken = OfferedFds::take(std::process::id(), child.id(), [0, 1, 2]).err();
        assert!(matches!(taken, Some(InjectError::Died { .. })), "{taken:?}");
        child.kill().expect("it lives");
        child.wait().expect("our child");
    }

    #[test]
    fn memory_that_the_target_cuts_short_is_not_taken() {
        use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

        const LEN: u64 = 1 << 20;
        const ENOUGH: u32 = 100_000;
        let (mut taken, mut refused) = (0, 0);
        while refused == 0 && taken < ENOUGH {
            let (over, fd) = (AtomicBool::new(false), memory(0));
            let targets = File::from(fd.try_clone().expect("a copy"));
            let sized = std::thread::scope(|scope| {
                scope.spawn(|| {
                    while !over.load(Relaxed) {
                        let _ = targets.set_len(0);
                    }
                });
                let sized = size(&fd, LEN, seals::DATA);
                over.store(true, Relaxed);
                sized
            });
            match sized {
                Ok(()) => {
                    assert_eq!(File::from(fd).metadata().expect("its length").len(), LEN);
                    taken += 1;
                }
                Err(_) => refused += 1,
            }
        }
        assert!(refused > 0, "the target was never in time");
    }

    /// Regression: SIGBUS killed tiptoe when no huge page was free.
    #[test]
    fn only_fresh_memory_of_ordinary_pages_is_taken() {
        assert!(fresh(1, memory(0)).is_ok());
        assert!(fresh(1, memory(libc::MFD_HUGETLB)).is_err());
        assert!(fresh(1, File::open("/proc/self/maps").expect("a file").into()).is_err());
        let full = memory(0);
        File::from(full.try_clone().expect("a copy"))
            .set_len(1)
            .expect("a byte");
        assert!(fresh(1, full).is_err());
    }
}
