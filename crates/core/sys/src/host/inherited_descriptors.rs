//! Descriptors that this process was started with.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// Takes over an inherited writable descriptor above stderr, and makes exec close it. Otherwise fails with `EBADF`.
pub fn take_writable(fd: i32) -> io::Result<OwnedFd> {
    // SAFETY: these commands take and return integers.
    let (flags, mode) = unsafe {
        (
            libc::fcntl(fd, libc::F_GETFD),
            libc::fcntl(fd, libc::F_GETFL),
        )
    };
    // All descriptors that tiptoe opens are close-on-exec.
    let is_inherited = flags >= 0 && flags & libc::FD_CLOEXEC == 0;
    let is_writable = mode >= 0 && mode & libc::O_ACCMODE != libc::O_RDONLY;
    if fd <= libc::STDERR_FILENO || !is_inherited || !is_writable {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: F_SETFD takes an integer.
    if unsafe { libc::fcntl(fd, libc::F_SETFD, flags | libc::FD_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is open and inherited, so nothing in this process owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::{AsRawFd, IntoRawFd};

    #[test]
    fn only_inherited_writable_descriptors_are_taken() {
        let inherited = |file: File| {
            let fd = file.into_raw_fd();
            // SAFETY: fcntl with an integer touches no memory.
            unsafe { libc::fcntl(fd, libc::F_SETFD, 0) };
            fd
        };
        let open = |writes| {
            File::options()
                .read(true)
                .write(writes)
                .open("/dev/null")
                .unwrap()
        };
        let taken = take_writable(inherited(open(true))).unwrap();
        let again = take_writable(taken.as_raw_fd());
        let own = open(true);
        let read_only = inherited(open(false));
        for refused in [
            again,
            take_writable(own.as_raw_fd()),
            take_writable(read_only),
            take_writable(2),
            take_writable(-1),
        ] {
            assert_eq!(refused.unwrap_err().raw_os_error(), Some(libc::EBADF));
        }
    }
}
