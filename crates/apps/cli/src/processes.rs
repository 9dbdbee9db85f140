//! Finds running processes by name.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use crate::failure::Failure;

/// The kernel keeps this many bytes of a name, so only the beginning of a longer name is compared.
const COMM_BYTES: usize = 15;

/// Process ids are below this number (proc(5), `pid_max`). A larger number may be a variable's address.
const PID_LIMIT: u32 = 1 << 22;

pub fn is_pid(word: &str) -> bool {
    let is_number = word.bytes().all(|byte| byte.is_ascii_digit());
    is_number && word.parse::<u32>().is_ok_and(|pid| pid < PID_LIMIT)
}

/// Fails if `-p` was given and `word`, which should be a `wanted`, is a number that was probably meant for `-p`.
pub fn refuse_pid(word: &str, wanted: &'static str, pids: &[u32]) -> Result<(), Failure> {
    let word = word.to_owned();
    match !pids.is_empty() && is_pid(&word) {
        true => Err(Failure::IsPid { word, wanted }),
        false => Ok(()),
    }
}

/// Returns the processes whose comm is `name`, in order. Excludes tiptoe itself, and zombies and kernel threads, which
/// cannot be traced. Fails if no process is left.
pub fn named(name: &str) -> Result<Vec<u32>, Failure> {
    let found = named_in(Path::new("/proc"), name).map_err(Failure::UnreadableProcesses)?;
    match found.is_empty() {
        true => Err(Failure::NoSuchProcess(name.to_owned())),
        false => Ok(found),
    }
}

fn named_in(proc: &Path, name: &str) -> std::io::Result<Vec<u32>> {
    let name = &name.as_bytes()[..name.len().min(COMM_BYTES)];
    let own = std::process::id();
    let mut found: Vec<u32> = fs::read_dir(proc)?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid| *pid != own && comm(proc, *pid).is_some_and(|comm| comm == name))
        .filter(|pid| runs_a_program(proc, *pid))
        .collect();
    found.sort_unstable();
    Ok(found)
}

/// Returns whether a process runs a program, unlike zombies and kernel threads; `true` if this user may not read
/// that.
fn runs_a_program(proc: &Path, pid: u32) -> bool {
    let program = fs::read_link(proc.join(pid.to_string()).join("exe"));
    program.map_or_else(|error| error.kind() != ErrorKind::NotFound, |_| true)
}

fn comm(proc: &Path, pid: u32) -> Option<Vec<u8>> {
    let mut comm = fs::read(proc.join(pid.to_string()).join("comm")).ok()?;
    comm.pop_if(|last| *last == b'\n');
    Some(comm)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_a_number_after_process_ids_is_refused() {
        for (word, pids, is_refused) in [
            ("32169", &[1][..], true),
            ("32169", &[], false),
            ("4198400", &[1], false),
            ("0x2", &[1], false),
            ("", &[1], false),
            ("f", &[1], false),
        ] {
            let refused = refuse_pid(word, "variable", pids);
            assert_eq!(refused.is_err(), is_refused, "{word} {pids:?}");
        }
    }

    #[test]
    fn names_are_compared_by_the_bytes_that_the_kernel_keeps() {
        let proc = tempfile::tempdir().unwrap();
        for (pid, comm) in [
            ("30", "redis-server\n"),
            ("4", "redis-server\n"),
            ("5", "redis\n"),
            ("6", "a-very-long-nam\n"),
        ] {
            fs::create_dir(proc.path().join(pid)).unwrap();
            fs::write(proc.path().join(pid).join("comm"), comm).unwrap();
            symlink("/bin/it", proc.path().join(pid).join("exe")).unwrap();
        }
        let zombie = proc.path().join("7");
        fs::create_dir(&zombie).unwrap();
        fs::write(zombie.join("comm"), "redis-server\n").unwrap();
        fs::create_dir(proc.path().join("self")).unwrap();
        assert_eq!(named_in(proc.path(), "redis-server").unwrap(), [4, 30]);
        assert_eq!(named_in(proc.path(), "a-very-long-name").unwrap(), [6]);
        assert!(named_in(proc.path(), "nginx").unwrap().is_empty());
    }
}
