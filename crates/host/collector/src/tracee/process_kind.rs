//! Rejects process ids that cannot be traced.

use tiptoe_sys::host::procfs::Process;

use crate::request::Error;

/// Fails if this id is not that of a running program; the error says what it is.
pub(super) fn check(process: Process) -> Result<(), Error> {
    let pid = process.pid();
    let status = process.status()?;
    let comm = process.comm().unwrap_or_default();
    if pid == std::process::id() {
        return Err(Error::new(format!("process {pid} is this tiptoe itself"))
            .with_hint("-p takes the process to trace, `-- CMD` starts one"));
    }
    if status.tgid != pid {
        let whole = status.tgid;
        return Err(
            Error::new(format!("{pid} is a thread of process {whole} ({comm})"))
                .with_hint(format!("-p {whole} traces it with all its threads")),
        );
    }
    if process.is_kernel_thread()? {
        return Err(
            Error::new(format!("process {pid} ({comm}) is a thread of the kernel"))
                .with_hint("tiptoe traces functions of programs"),
        );
    }
    match matches!(status.state, 'Z' | 'X') && status.threads <= 1 {
        true => Err(Error::new(format!(
            "process {pid} ({comm}) has ended: it is a zombie, which its parent has not waited for"
        ))),
        false => Ok(()),
    }
}
