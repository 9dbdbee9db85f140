//! Identifies a process's program, so that an exec is noticed. The process id does not show an exec, nor does the old
//! memory, which stays while another process shares it (`CLONE_VM`, vfork).

use std::prelude::rust_2024::*;

use std::time::Duration;

use super::Process;
use super::stat::field_of;
use crate::host::error::Result;

/// Fields of a stat file, as in proc(5).
const START_CODE: usize = 26;
const START_STACK: usize = 28;
const START_DATA: usize = 45;
/// The kernel shows this, or 0, for a hidden address.
const HIDDEN: u64 = 1;
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(1);

/// Where a program's code, data and stack start. exec chooses these addresses at random, so a program cannot choose
/// another program's addresses. Without randomization, two programs with equal segments may have equal addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunningProgram([u64; 3]);

impl RunningProgram {
    fn of_stat(stat: &[u8]) -> RunningProgram {
        let fields = [START_CODE, START_STACK, START_DATA];
        let address = |field| field_of(stat, field).filter(|address| *address > HIDDEN);
        RunningProgram(fields.map(|field| address(field).unwrap_or(0)))
    }

    /// Returns whether all addresses are known. `false` if the process has ended, is just starting, or may not be
    /// traced.
    pub fn is_known(&self) -> bool {
        self.0.iter().all(|address| *address != 0)
    }

    /// Returns whether these are certainly different programs.
    pub fn differs(&self, other: &RunningProgram) -> bool {
        let mut pairs = self.0.iter().zip(&other.0);
        pairs.any(|(one, another)| *one != 0 && *another != 0 && one != another)
    }
}

impl Process {
    /// Returns the process's program. Retries for 20 ms while an address is unknown.
    pub fn running_program(self) -> Result<RunningProgram> {
        let look = || {
            let stat = self.through_living(|thread| thread.read("stat"))?;
            Ok(RunningProgram::of_stat(&stat))
        };
        for _ in 1..TRIES {
            match look() {
                Ok(program) if !program.is_known() => std::thread::sleep(PAUSE),
                found => return found,
            }
        }
        look()
    }

    /// Returns a thread's program, without retries.
    pub fn program_of_thread(self, tid: u32) -> Result<RunningProgram> {
        Ok(RunningProgram::of_stat(
            &self.read(&format!("task/{tid}/stat"))?,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    #[test]
    fn an_exec_is_another_program_although_the_number_stays() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "read go; exec cat"]);
        // SAFETY: the call takes numbers, and the forked child does nothing else before exec.
        unsafe {
            shell.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                Ok(())
            })
        };
        let mut child = shell.stdin(Stdio::piped()).spawn().unwrap();
        let process = Process::new(child.id()).unwrap();
        let first = process.running_program().unwrap();
        assert!(first.is_known());
        assert_eq!(process.program_of_thread(child.id()).unwrap(), first);
        assert!(!first.differs(&first) && !first.differs(&RunningProgram::default()));
        let mut go = child.stdin.take().unwrap();
        std::io::Write::write_all(&mut go, b"\n").unwrap();
        while process.comm().unwrap() != "cat" {
            std::thread::yield_now();
        }
        assert!(process.running_program().unwrap().differs(&first));
        drop(go);
        child.wait().unwrap();
        assert!(!RunningProgram::default().is_known());
    }
}
