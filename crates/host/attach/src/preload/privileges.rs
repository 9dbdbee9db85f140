//! Detects programs with more rights than the user who starts them. The loader of such programs ignores paths in
//! LD_PRELOAD (ld.so(8), secure-execution mode), so the agent (tiptoe's library) cannot be preloaded.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use nix::sys::statvfs::{FsFlags, Statvfs, statvfs};

use crate::error::gain;
use tiptoe_sys::host::procfs::Process;

/// Returns the reason if this program's loader would ignore the agent.
pub fn gained_by(program: &Path) -> Option<&'static str> {
    let file = program.metadata().ok()?;
    // SAFETY: both calls return a number and cannot fail.
    let (user, group) = unsafe { (libc::getuid(), libc::getgid()) };
    let mode = file.permissions().mode();
    let runs_as = |bits: u32| mode & bits == bits;
    let gained = if runs_as(libc::S_ISUID) && file.uid() != user {
        gain::USER
    } else if runs_as(libc::S_ISGID | libc::S_IXGRP) && file.gid() != group {
        gain::GROUP
    } else if user != 0 && has_capabilities(program) {
        gain::CAPABILITIES
    } else {
        return None;
    };
    (!is_withheld(program)).then_some(gained)
}

fn has_capabilities(program: &Path) -> bool {
    let Ok(path) = CString::new(program.as_os_str().as_bytes()) else {
        return false;
    };
    let name = c"security.capability";
    // SAFETY: both strings end with NUL; without a buffer, the call only returns a size.
    unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), std::ptr::null_mut(), 0) > 0 }
}

/// Returns whether the kernel withholds such rights: from all programs that this process runs (no_new_privs), or from
/// all files of the program's file system (nosuid).
fn is_withheld(program: &Path) -> bool {
    let own = Process::current().status();
    let is_nosuid = |system: Statvfs| system.flags().contains(FsFlags::ST_NOSUID);
    own.is_ok_and(|own| own.no_new_privs) || statvfs(program).is_ok_and(is_nosuid)
}
