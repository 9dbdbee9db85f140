//! Keeps a started command from running its own code.
//!
//! | hold | what holds it | what has run |
//! |---|---|---|
//! | [`Hold::BeforeExec`] | a pipe that tiptoe's forked child reads | nothing |
//! | [`Hold::AtExec`] | ptrace | nothing, but the program is mapped |
//! | [`Hold::InAgent`] | the constructor of the agent (tiptoe's library) | the loader |
//! | [`Hold::Nothing`] | | possibly everything |

use std::io;
use std::process::Child;

use nix::errno::Errno;
use nix::sys::ptrace;
use nix::unistd::Pid;

use crate::error::{AttachError, IoReason};
use crate::preload::StartedCommand;
use crate::stops::{self, Stop};

pub(crate) enum Hold {
    BeforeExec(StartedCommand),
    AtExec(Child),
    InAgent(Child),
    Nothing(Child),
}

impl Hold {
    pub(crate) fn child(&mut self) -> Option<&mut Child> {
        match self {
            Hold::BeforeExec(_) => None,
            Hold::AtExec(child) | Hold::InAgent(child) | Hold::Nothing(child) => Some(child),
        }
    }

    pub(crate) fn nothing(self) -> Hold {
        match self {
            Hold::AtExec(child) | Hold::InAgent(child) => Hold::Nothing(child),
            other => other,
        }
    }
}

/// The calling thread becomes the tracer.
pub(crate) fn to_exec(started: StartedCommand) -> io::Result<Child> {
    seize(started.pid)?;
    proceed_to_exec(started)
}

pub(crate) fn detach(pid: u32) -> Result<(), AttachError> {
    ptrace::detach(of(pid), None).map_err(|why| AttachError::CannotContinue {
        pid,
        why: why.into(),
    })
}

fn of(pid: u32) -> Pid {
    Pid::from_raw(pid.cast_signed())
}

fn seize(pid: u32) -> Result<(), Errno> {
    ptrace::seize(of(pid), ptrace::Options::PTRACE_O_TRACEEXEC)
}

/// Lets a seized command run to exec. Calls [`StartedCommand::join`] only after exec. Before exec, each signal stops
/// the command until this thread, its tracer, continues it.
fn proceed_to_exec(mut started: StartedCommand) -> io::Result<Child> {
    let pid = started.pid;
    match started.go() {
        // The command was killed; `until_exec` reports its end.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        went => went?,
    }
    let at_exec = until_exec(pid);
    if at_exec.is_err() {
        // SAFETY: takes two numbers. If `until_exec` fails, the child is not yet reaped, so the id is still the
        // child's.
        unsafe { libc::kill(pid.cast_signed(), libc::SIGKILL) };
    }
    let mut child = started.join()?;
    if at_exec? {
        return Ok(child);
    }
    let ended = child.wait()?;
    Err(IoReason::EndedBeforeExec(ended).into())
}

/// Waits until a seized process has called exec; `false` if it ended first. There is no deadline, because a slow disk
/// can delay exec for any time; a signal can end tiptoe during the wait ([`crate::phase`]).
fn until_exec(pid: u32) -> Result<bool, Errno> {
    loop {
        let signal = match stops::peek(pid, 0) {
            Ok(Stop::Event(libc::PTRACE_EVENT_EXEC)) => return Ok(true),
            Ok(Stop::Signal(signal)) => signal,
            Ok(Stop::Event(_) | Stop::None) => 0,
            // If exec failed, the thread that started the child has reaped it.
            Ok(Stop::Ended) | Err(Errno::ECHILD) => return Ok(false),
            Err(errno) => return Err(errno),
        };
        match stops::go_on(pid, signal) {
            // The command was killed while it was stopped; the next wait reports its end.
            Err(Errno::ESRCH) => {}
            gone_on => gone_on?,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::ffi::OsString;
    use std::path::Path;
    use std::sync::mpsc;
    use std::time::Duration;

    use crate::preload;

    /// Runs `trace` on a new thread. Fails the test if that thread hangs.
    fn with_deadline<T: Send + 'static>(
        trace: impl FnOnce(&mpsc::Sender<u32>) -> T + Send + 'static,
    ) -> T {
        let ((tell, pid), (end, ended)) = (mpsc::channel(), mpsc::channel());
        std::thread::spawn(move || end.send(trace(&tell)));
        ended
            .recv_timeout(Duration::from_secs(20))
            .unwrap_or_else(|hangs| {
                for pid in pid.try_iter() {
                    // SAFETY: takes two numbers; the child still waits for its tracer, so its id is not reused.
                    unsafe { libc::kill(pid as i32, libc::SIGKILL) };
                }
                panic!("the command is not at exec: {hangs}")
            })
    }

    fn signalled(program: &str, signal: i32) -> Result<bool, String> {
        let program = program.to_owned();
        with_deadline(move |tell| {
            let words = [OsString::from(&program)];
            let started = preload::start(Path::new(&program), &words, None).expect("a process");
            let pid = started.pid;
            tell.send(pid).expect("the test waits");
            seize(pid).expect("it is ours");
            // SAFETY: takes two numbers; nothing has waited for the child yet.
            assert_eq!(unsafe { libc::kill(pid as i32, signal) }, 0);
            let mut child = proceed_to_exec(started).map_err(|error| error.to_string())?;
            let file = std::fs::read_link(format!("/proc/{pid}/exe")).expect("it is held");
            child.kill().expect("it is ours");
            child.wait().expect("its end");
            Ok(file != std::env::current_exe().expect("this test"))
        })
    }

    #[test]
    fn a_signal_before_exec_is_no_deadlock() {
        for signal in [libc::SIGWINCH, libc::SIGSTOP, libc::SIGCONT, libc::SIGTSTP] {
            assert_eq!(signalled("/bin/true", signal), Ok(true), "signal {signal}");
        }
    }

    #[test]
    fn a_command_that_ends_before_exec_is_an_error() {
        for (signal, name) in [
            (libc::SIGTERM, "15 (SIGTERM)"),
            (libc::SIGKILL, "9 (SIGKILL)"),
        ] {
            let why = signalled("/bin/true", signal).unwrap_err();
            assert_eq!(
                why,
                format!("it ended before it called exec: signal: {name}")
            );
        }
    }

    #[test]
    fn a_command_that_cannot_exec_says_why() {
        for signal in [0, libc::SIGWINCH] {
            let why = signalled("/proc/self/maps", signal).unwrap_err();
            assert!(why.contains("Permission denied"), "{why}");
        }
    }
}
