//! Names of a target's processes, for lines on stderr.

use std::path::Path;

use tiptoe_collector::{CountedProcess, RequestTarget, few};
use tiptoe_sys::host::Process;

/// Returns one name for the target, because the status line has no room for more.
pub fn one(target: &RequestTarget) -> String {
    match target {
        RequestTarget::Command(command) => {
            let program = command.first().map(Path::new);
            let name = program.and_then(Path::file_name).unwrap_or_default();
            name.to_string_lossy().into_owned()
        }
        RequestTarget::Pids(pids) => match pids.as_slice() {
            [pid] => {
                let comm = Process::new(*pid).and_then(Process::comm);
                of_processes(&[(*pid, comm.unwrap_or_default())])
            }
            pids => format!("{} processes", pids.len()),
        },
        RequestTarget::System => of_processes(&[]),
    }
}

/// Returns the names of the counted processes, or of a few of them if they are many.
pub fn of_processes(counted: &[CountedProcess]) -> String {
    let named = counted
        .iter()
        .map(|(pid, name)| format!("{name} (pid {pid})"));
    match counted {
        [] => "the whole system".to_owned(),
        _ => few(&named.collect::<Vec<_>>()),
    }
}
