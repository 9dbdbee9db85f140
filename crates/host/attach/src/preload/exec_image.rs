//! The arguments of a command's exec, made before the fork.
//!
//! While the forked child waits, the kernel's probes may already be in libc, and would count the child's calls
//! as the command's. So from the wait on, the child must make only raw system calls.

use std::ffi::{CString, OsString};
use std::io::{self, PipeReader};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use tiptoe_sys::raw::{EINTR, Errno, call, nr};

pub(super) struct ExecImage {
    program: CString,
    argv: ExecWords,
    envp: ExecWords,
}

struct ExecWords {
    _strings: Vec<CString>,
    addresses: Vec<usize>,
}

impl ExecImage {
    pub(super) fn new(
        program: &Path,
        command: &[OsString],
        message: Option<(OsString, OsString)>,
    ) -> io::Result<ExecImage> {
        Ok(ExecImage {
            program: CString::new(program.as_os_str().as_bytes())?,
            argv: ExecWords::new(command.iter().cloned())?,
            envp: ExecWords::new(super::environment(message))?,
        })
    }

    /// Waits for a byte and calls exec; returns only an error. If the kernel does not know the file's format, calls
    /// libc's exec, which runs a shell for a script without `#!`.
    pub(super) fn exec(&self, go: &PipeReader) -> io::Error {
        let pointer = |word: usize| word as *const libc::c_char;
        let (program, argv, envp) = (
            self.program.as_ptr(),
            self.argv.addresses.as_ptr(),
            self.envp.addresses.as_ptr(),
        );
        if let Err(error) = wait(go.as_raw_fd()) {
            return error;
        }
        let words = [program as usize, argv as usize, envp as usize, 0, 0, 0];
        // SAFETY: a path, and two arrays that end with 0, of strings that end with NUL.
        let Err(Errno(why)) = (unsafe { call(nr::EXECVE, words) }) else {
            return io::ErrorKind::Other.into();
        };
        if why != libc::ENOEXEC {
            return io::Error::from_raw_os_error(why);
        }
        // SAFETY: as for `call`; the first word is one of those strings.
        unsafe { libc::execvpe(pointer(self.argv.addresses[0]), argv.cast(), envp.cast()) };
        io::Error::last_os_error()
    }
}

impl ExecWords {
    fn new(words: impl Iterator<Item = OsString>) -> io::Result<ExecWords> {
        let to_c = |word: OsString| CString::new(word.as_bytes()).map_err(io::Error::from);
        let strings: Vec<CString> = words.map(to_c).collect::<io::Result<_>>()?;
        let addresses = strings.iter().map(|text| text.as_ptr() as usize);
        Ok(ExecWords {
            addresses: addresses.chain([0]).collect(),
            _strings: strings,
        })
    }
}

/// Reads one byte. At the pipe's end, which means that tiptoe has given up, the child exits.
fn wait(go: i32) -> io::Result<()> {
    let mut byte = 0_u8;
    let words = [go as usize, &raw mut byte as usize, 1, 0, 0, 0];
    loop {
        // SAFETY: the kernel writes at most one byte to `byte`, which outlives the call.
        match unsafe { call(nr::READ, words) } {
            // SAFETY: ends the forked child, which owns nothing that other processes see.
            Ok(0) => unsafe { libc::_exit(1) },
            Ok(_) => return Ok(()),
            Err(EINTR) => {}
            Err(Errno(why)) => return Err(io::Error::from_raw_os_error(why)),
        }
    }
}
