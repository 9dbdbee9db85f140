//! Rejects process ids that cannot be traced.

use tiptoe_sys::host::procfs::Process;

use crate::error::Error;

pub fn check(process: Process) -> Result<(), Error> {
    let pid = process.pid();
    let status = process.status()?;
    let comm = process.comm().unwrap_or_default();
    if pid == std::process::id() {
        return Err(Error::IsTiptoe(pid));
    }
    if status.tgid != pid {
        return Err(Error::IsThread {
            tid: pid,
            pid: status.tgid,
            comm,
        });
    }
    if process.is_kernel_thread()? {
        return Err(Error::IsKernelThread { pid, comm });
    }
    match matches!(status.state, 'Z' | 'X') && status.threads <= 1 {
        true => Err(Error::IsZombie { pid, comm }),
        false => Ok(()),
    }
}
