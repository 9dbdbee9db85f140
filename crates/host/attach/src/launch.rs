//! Lets a command run until it, or a process that it starts, becomes the wanted program by exec.
//!
//! A thread of tiptoe, the *tracer*, traces the command and its descendants by ptrace. It holds the wanted program at
//! its exec, and continues the other processes whenever they stop. The tracer's end detaches all of them. So they also
//! continue if tiptoe dies.
//!
//! A stop is read without consuming it ([`stops`]), because the signal would be lost if tiptoe then died.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::PathBuf;
use std::process::{Child, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::ptrace::{self, Options};
use nix::unistd::Pid;

use crate::error::IoReason;
use crate::new_program::NewProgram;
use crate::phase::{Phase, has_exited};
use crate::preload::{AgentEntries, StartedCommand};
use crate::stops::{self, Stop};

/// How often the tracer looks at the other processes while it holds the program.
const TICK: Duration = Duration::from_millis(1);

/// The events whose message is the new thread's id.
const BIRTHS: [i32; 3] = [
    libc::PTRACE_EVENT_FORK,
    libc::PTRACE_EVENT_VFORK,
    libc::PTRACE_EVENT_CLONE,
];
/// How many different programs of a launch are named.
const NAMED: usize = 8;

/// How a launch ended.
pub(crate) enum Launch {
    Held(Held),
    /// No process became the wanted program. The names are those of the programs that ran.
    Ended(ExitStatus, Vec<String>),
}

/// A program that has just called exec.
pub(crate) struct Held {
    /// The command, which is this process or an ancestor.
    pub(crate) child: Child,
    pub(crate) pid: u32,
    /// The program's file.
    pub(crate) path: PathBuf,
    pub(crate) tracer: Tracer,
}

/// Holds a process at its exec. Dropping a `Tracer` lets the process run.
pub(crate) struct Tracer {
    requests: Option<Sender<Request>>,
    thread: Option<JoinHandle<()>>,
}

/// Asks for a second exec with the agent ([`NewProgram::exec_again`]).
struct Request(AgentEntries, Sender<io::Result<()>>);

struct Tree {
    command: u32,
    /// The command before its first exec; afterwards `child`.
    started: Option<StartedCommand>,
    child: Option<Child>,
    status: Option<ExitStatus>,
    ran: Vec<String>,
    threads: BTreeSet<u32>,
}

/// Lets a command run until the first exec, or with `name` until that program's exec. There is no deadline, because a
/// launcher may do anything first; a signal can end tiptoe during the wait ([`crate::phase`]).
pub(crate) fn launch(started: StartedCommand, name: Option<OsString>) -> io::Result<Launch> {
    let (tell, told) = channel();
    let (requests, asked) = channel();
    let thread = std::thread::spawn(move || {
        let mut tree = Tree::new(started);
        let found = tree.find(name.as_deref());
        let held = found.as_ref().ok().and_then(Option::as_ref);
        let held = held.map(|(pid, _)| *pid);
        let child = tree.child.take_if(|_| held.is_some());
        let rest = (child, tree.status, std::mem::take(&mut tree.ran));
        if tell.send(found.map(|found| (found, rest))).is_ok()
            && let Some(held) = held
        {
            tree.hold(held, &asked);
        }
    });
    let tracer = Tracer {
        requests: Some(requests),
        thread: Some(thread),
    };
    match told.recv().map_err(|_| IoReason::StarterDied)?? {
        (Some((pid, path)), (Some(child), ..)) => Ok(Launch::Held(Held {
            child,
            pid,
            path,
            tracer,
        })),
        (_, (_, Some(status), ran)) => Ok(Launch::Ended(status, ran)),
        _ => Err(IoReason::StarterDied.into()),
    }
}

impl Tracer {
    /// Makes the held program call exec again. It is still held afterwards.
    pub(crate) fn exec_again(&self, entries: AgentEntries) -> io::Result<()> {
        let (tell, told) = channel();
        let requests = self.requests.as_ref().ok_or(IoReason::StarterDied)?;
        let asked = requests.send(Request(entries, tell));
        asked.map_err(|_| IoReason::StarterDied)?;
        told.recv().map_err(|_| IoReason::StarterDied)?
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Tree {
    fn new(started: StartedCommand) -> Tree {
        Tree {
            command: started.pid,
            started: Some(started),
            child: None,
            status: None,
            ran: Vec::new(),
            threads: BTreeSet::new(),
        }
    }

    /// Returns the process that became the wanted program, and that program's path; `None` if all processes ended first.
    fn find(&mut self, name: Option<&OsStr>) -> io::Result<Option<(u32, PathBuf)>> {
        let found = self.seize().and_then(|()| self.run(name));
        let started = self.started.take().filter(|_| found.is_err());
        if let Some(started) = started {
            let has_ended = has_exited(self.command);
            // SAFETY: takes two numbers. Nothing has waited for the child, so the id is still the child's.
            unsafe { libc::kill(self.command.cast_signed(), libc::SIGKILL) };
            // The reason why exec failed says more than `found`.
            let status = started.join()?.wait()?;
            if has_ended {
                return Err(IoReason::EndedBeforeExec(status).into());
            }
        }
        if let (Err(_), Some(child)) = (&found, &mut self.child) {
            child.kill().and_then(|()| child.wait())?;
        }
        found
    }

    fn seize(&mut self) -> io::Result<()> {
        let options = Options::PTRACE_O_TRACESYSGOOD
            | Options::PTRACE_O_TRACEEXEC
            | Options::PTRACE_O_TRACEFORK
            | Options::PTRACE_O_TRACEVFORK
            | Options::PTRACE_O_TRACECLONE;
        ptrace::seize(Pid::from_raw(self.command.cast_signed()), options)?;
        match self.started.as_mut().map(StartedCommand::go) {
            // The command was killed, and `run` finds its end.
            Some(Err(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            went => went.unwrap_or(Ok(())),
        }
    }

    fn run(&mut self, name: Option<&OsStr>) -> io::Result<Option<(u32, PathBuf)>> {
        loop {
            match stops::peek_any(0) {
                Ok((tid, Stop::Event(libc::PTRACE_EVENT_EXEC))) => {
                    self.begin(tid)?;
                    if let Some(path) = self.wanted(tid, name) {
                        Phase::Preparing.begin();
                        return Ok(Some((tid, path)));
                    }
                    stops::go_on(tid, 0).or_else(may_be_killed)?;
                }
                Ok((tid, stop)) => self.proceed(tid, stop)?,
                // If exec failed, the thread that started the command has reaped it.
                Err(Errno::ECHILD) => {
                    self.end(self.command)?;
                    return Ok(None);
                }
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Returns the path of a program that has just called exec, if it is the wanted program.
    fn wanted(&mut self, pid: u32, name: Option<&OsStr>) -> Option<PathBuf> {
        let Some(name) = name else {
            return Some(PathBuf::new());
        };
        let program = NewProgram::read(pid).ok()?;
        let file = program.file_name();
        if self.ran.len() < NAMED && !self.ran.contains(&file) {
            self.ran.push(file);
        }
        program.is_named(name).then(|| program.path())
    }

    /// Takes the handle of a command that has called exec. Before exec this would be a deadlock: any signal would stop
    /// the command, and only this thread could continue it.
    fn begin(&mut self, tid: u32) -> io::Result<()> {
        if let Some(started) = self.started.take_if(|started| started.pid == tid) {
            self.child = Some(started.join()?);
            // The command runs now, so a signal that ends tiptoe must be passed on to it.
            Phase::Attaching.begin();
        }
        Ok(())
    }

    fn proceed(&mut self, tid: u32, stop: Stop) -> io::Result<()> {
        self.threads.insert(tid);
        let gone_on = match stop {
            Stop::Ended => return self.end(tid),
            Stop::Signal(signal) => stops::go_on(tid, signal),
            Stop::Event(libc::PTRACE_EVENT_STOP) if stops::is_of_group(tid) => stops::listen(tid),
            Stop::Event(event) => {
                if BIRTHS.contains(&event) {
                    let born = ptrace::getevent(Pid::from_raw(tid.cast_signed()));
                    let born = born.ok().and_then(|tid| u32::try_from(tid).ok());
                    self.threads.extend(born);
                }
                stops::go_on(tid, 0)
            }
            Stop::None => Ok(()),
        };
        Ok(gone_on.or_else(may_be_killed)?)
    }

    /// Reaps an ended thread. Only then its parent is notified.
    fn end(&mut self, tid: u32) -> io::Result<()> {
        self.threads.remove(&tid);
        if tid != self.command {
            let _ = stops::look(tid, false);
            return Ok(());
        }
        let is_before_exec = self.started.is_some();
        if let Some(started) = self.started.take() {
            self.child = Some(started.join()?);
        }
        if let Some(child) = &mut self.child {
            let status = child.wait()?;
            self.status = Some(status);
            if is_before_exec {
                return Err(IoReason::EndedBeforeExec(status).into());
            }
        }
        Ok(())
    }

    /// Holds the program until the tracer is dropped.
    fn hold(mut self, program: u32, asked: &Receiver<Request>) {
        loop {
            for tid in self.threads.clone() {
                match stops::peek(tid, libc::WNOHANG) {
                    // The command's end is left to the owner of its handle.
                    Ok(Stop::Ended) if tid == self.command => drop(self.threads.remove(&tid)),
                    Ok(Stop::None) => {}
                    Ok(_) if tid == program => {}
                    Ok(stop) => drop(self.proceed(tid, stop)),
                    Err(_) => drop(self.threads.remove(&tid)),
                }
            }
            match asked.recv_timeout(TICK) {
                Ok(Request(entries, tell)) => {
                    let program = NewProgram::read(program);
                    let _ = tell.send(program.and_then(|program| program.exec_again(&entries)));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }
}

/// A thread that was killed while it was stopped is not stopped any more.
fn may_be_killed(errno: Errno) -> Result<(), Errno> {
    match errno {
        Errno::ESRCH => Ok(()),
        errno => Err(errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::path::Path;

    use crate::preload;

    /// Fails the test if the launch hangs.
    fn with_deadline<T: Send + 'static>(
        pid: u32,
        launch: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        let (end, ended) = channel();
        std::thread::spawn(move || end.send(launch()));
        ended
            .recv_timeout(Duration::from_secs(20))
            .unwrap_or_else(|hangs| {
                // SAFETY: takes two numbers; the child still waits for its tracer, so its id is not reused.
                unsafe { libc::kill(pid as i32, libc::SIGKILL) };
                panic!("the command is not at exec: {hangs}")
            })
    }

    fn signalled(program: &str, signal: i32) -> Result<bool, String> {
        let words = [OsString::from(program)];
        let started = preload::start(Path::new(program), &words, None, None).expect("a process");
        let pid = started.pid;
        // SAFETY: takes two numbers; nothing has waited for the child yet.
        assert_eq!(unsafe { libc::kill(pid as i32, signal) }, 0);
        let launched = with_deadline(pid, move || launch(started, None));
        let Launch::Held(held) = launched.map_err(|error| error.to_string())? else {
            return Err("it ended".to_owned());
        };
        assert_eq!(held.pid, pid);
        let file = std::fs::read_link(format!("/proc/{pid}/exe")).expect("it is held");
        let mut child = held.child;
        child.kill().expect("it is ours");
        drop(held.tracer);
        child.wait().expect("its end");
        Ok(file != std::env::current_exe().expect("this test"))
    }

    #[test]
    fn a_signal_before_exec_is_no_deadlock() {
        for signal in [libc::SIGWINCH, libc::SIGCONT] {
            assert_eq!(signalled("/bin/true", signal), Ok(true), "signal {signal}");
        }
    }

    #[test]
    fn a_stopped_command_waits_to_be_continued() {
        let words = [OsString::from("true")];
        let started = preload::start(Path::new("/bin/true"), &words, None, None);
        let started = started.expect("a process");
        let pid = started.pid;
        // SAFETY: takes two numbers; nothing has waited for the child yet.
        let signal = |signal| assert_eq!(unsafe { libc::kill(pid as i32, signal) }, 0);
        signal(libc::SIGSTOP);
        let (tell, told) = channel();
        std::thread::spawn(move || tell.send(launch(started, None)));
        let launched = std::iter::repeat_with(|| {
            signal(libc::SIGCONT);
            told.recv_timeout(Duration::from_millis(10))
        });
        let launched = launched.take(2_000).find_map(Result::ok);
        let Some(Ok(Launch::Held(mut held))) = launched else {
            panic!("it is not held");
        };
        drop(held.tracer);
        assert!(held.child.wait().expect("its end").success());
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
