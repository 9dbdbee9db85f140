//! The three memfds that the stub makes, taken over and filled from outside.
//!
//! They come out of a program that tiptoe does not trust, so each is taken as the very open
//! file that the target holds (never opened anew with tiptoe's rights), and must be fresh,
//! sealable memory before a byte is written to it.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

use super::InjectError;

/// What the stub offers.
pub(super) struct Offer {
    pub agent: OwnedFd,
    pub data: OwnedFd,
    pub plan: OwnedFd,
}

impl Offer {
    /// Takes over descriptors `fds` of thread `tid`.
    pub(super) fn take(pid: u32, tid: u32, fds: [i32; 3]) -> Result<Self, InjectError> {
        let os = |error| InjectError::os(pid, "pidfd_getfd", error);
        let process = pidfd(pid, tid).map_err(os)?;
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

    /// Writes the agent, sizes the segments, and seals all that tiptoe no longer changes.
    pub(super) fn fill(&self, agent: &[u8], data: u64, plan: u64) -> io::Result<()> {
        let file = File::from(self.agent.try_clone()?);
        file.write_all_at(agent, 0)?;
        seal(
            &self.agent,
            libc::F_SEAL_WRITE | libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL,
        )?;
        File::from(self.data.try_clone()?).set_len(data)?;
        seal(
            &self.data,
            libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL,
        )?;
        File::from(self.plan.try_clone()?).set_len(plan)?;
        seal(&self.plan, libc::F_SEAL_SHRINK | libc::F_SEAL_GROW)
    }

    /// From here on nobody gets a new way to write the plan; mappings that exist still can.
    pub(super) fn close_plan(&self) -> io::Result<()> {
        seal(&self.plan, libc::F_SEAL_FUTURE_WRITE | libc::F_SEAL_SEAL)
    }
}

/// A handle on the thread, or (before Linux 6.9) on its process.
fn pidfd(pid: u32, tid: u32) -> io::Result<OwnedFd> {
    let open = |id: u32, flags: i32| {
        // SAFETY: plain numbers go in; a new descriptor or an error comes out.
        owned(unsafe { libc::syscall(libc::SYS_pidfd_open, id, flags) })
    };
    open(tid, libc::O_EXCL).or_else(|_| open(pid, 0))
}

fn getfd(process: &OwnedFd, fd: i32) -> io::Result<OwnedFd> {
    // SAFETY: plain numbers go in; a new descriptor or an error comes out.
    owned(unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), fd, 0) })
}

fn owned(result: i64) -> io::Result<OwnedFd> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so this is a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(result as i32) })
}

/// Only an empty, unlinked, unsealed memfd passes: writing to it can harm nobody.
fn fresh(pid: u32, fd: OwnedFd) -> Result<OwnedFd, InjectError> {
    let hostile = |what| InjectError::Hostile { pid, what };
    // SAFETY: a plain query of a descriptor that we own.
    if unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GET_SEALS) } != 0 {
        return Err(hostile("a descriptor is no sealable memory"));
    }
    let file = File::from(fd);
    let empty = file
        .metadata()
        .is_ok_and(|meta| meta.is_file() && meta.len() == 0);
    if !empty {
        return Err(hostile("a descriptor is not empty"));
    }
    Ok(file.into())
}

fn seal(fd: &OwnedFd, seals: i32) -> io::Result<()> {
    // SAFETY: a plain request on a descriptor that we own.
    match unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, seals) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
