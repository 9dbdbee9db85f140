//! Makes and seals memory files.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use tiptoe_sys::host::limits::explain_file_size;

/// Makes a memfd of `len` bytes whose size is sealed.
pub(crate) fn memfd(name: &CStr, len: u64) -> io::Result<OwnedFd> {
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    let file = File::from(memfd_create(name, flags)?);
    file.set_len(len).map_err(explain_file_size)?;
    seal(&file, libc::F_SEAL_SHRINK | libc::F_SEAL_GROW)?;
    Ok(OwnedFd::from(file))
}

pub(crate) fn seal(fd: impl AsFd, seals: i32) -> io::Result<()> {
    fcntl(fd, FcntlArg::F_ADD_SEALS(SealFlag::from_bits_retain(seals)))?;
    Ok(())
}
