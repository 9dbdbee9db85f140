//! Lets a command run until it, or a process that it starts, becomes the wanted program by exec.
//!
//! A thread of tiptoe, the *tracer*, traces the command and its descendants by ptrace. It holds the wanted program at
//! its exec, and continues the other processes whenever they stop. The tracer's end detaches all of them, also if tiptoe
//! dies.
//!
//! A stop is read without consuming it ([`stops`]), because the signal would be lost if tiptoe then died.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::ptrace;
use nix::unistd::Pid;
use tiptoe_sys::host::Process;

use crate::error::IoReason;
use crate::new_program::{NewProgram, OPTIONS, exe_id, own_file_id};
use crate::phase::{Phase, has_exited, set_held};
use crate::preload::StartedCommand;
use crate::stops::{self, Stop};

/// How often the tracer looks at the other processes while it holds the program.
const TICK: Duration = Duration::from_millis(1);

/// The events whose message is the new thread's id.
const BIRTHS: [i32; 3] = [
    libc::PTRACE_EVENT_FORK,
    libc::PTRACE_EVENT_VFORK,
    libc::PTRACE_EVENT_CLONE,
];
/// The most programs that are named if none was wanted.
const MOST_NAMES: usize = 20;

/// How a launch ended.
pub(crate) enum Launch {
    /// A process is the wanted program.
    Program {
        /// The command, which is this process or started it.
        child: Child,
        pid: u32,
        /// The program's file; empty for the command's own exec.
        path: PathBuf,
    },
    /// All processes ended first.
    Ended {
        status: ExitStatus,
        /// The names of the programs that they were.
        ran: Vec<String>,
    },
}

/// Holds a program at its exec. Dropping a `Tracer` lets the program run.
pub(crate) struct Tracer {
    /// The command, and the program.
    pids: [u32; 2],
    requests: Option<Sender<Request>>,
    thread: Option<JoinHandle<()>>,
}

/// What the tracer does with the held program.
type Request = Box<dyn FnOnce(io::Result<&mut NewProgram>) + Send>;

struct Tree {
    command: u32,
    /// The command before its first exec; afterwards `child`.
    started: Option<StartedCommand>,
    child: Option<Child>,
    ran: Vec<String>,
    threads: BTreeSet<u32>,
    /// Whether the command has ended, so that a later process may have its id.
    has_ended: bool,
}

/// Lets a command run until the first exec, or with `name` until that program's exec, where the tracer holds the
/// program. There is no deadline, because a launcher may do anything first; a signal can end tiptoe during the wait
/// ([`crate::phase`]).
pub(crate) fn launch(
    started: StartedCommand,
    name: Option<OsString>,
) -> io::Result<(Launch, Tracer)> {
    let command = started.pid;
    let (tell, told) = channel();
    let (requests, asked) = channel();
    let thread = std::thread::spawn(move || {
        let mut tree = Tree::new(started);
        let launch = tree.seize().and_then(|()| tree.find(name.as_deref()));
        let held = match &launch {
            Ok(Launch::Program { pid, .. }) => Some(*pid),
            _ => None,
        };
        if tell.send(launch).is_ok()
            && let Some(held) = held
        {
            tree.hold(held, &asked);
        }
    });
    let mut tracer = Tracer {
        pids: [command; 2],
        requests: Some(requests),
        thread: Some(thread),
    };
    let launch = told.recv().map_err(|_| IoReason::StarterDied)??;
    if let Launch::Program { pid, .. } = launch {
        tracer.pids[1] = pid;
    }
    Ok((launch, tracer))
}

impl Tracer {
    /// Runs `work` on the tracer's thread, because only this thread may use ptrace on the held program.
    pub(crate) fn with_program<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut NewProgram) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let (tell, told) = channel();
        let requests = self.requests.as_ref().ok_or(IoReason::StarterDied)?;
        let sent = requests.send(Box::new(move |program| {
            let _ = tell.send(program.and_then(work));
        }));
        sent.map_err(|_| IoReason::StarterDied)?;
        told.recv().map_err(|_| IoReason::StarterDied)?
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        // `join` returns before the kernel has ended the thread's tracing. Until then a wait for the command would
        // return at its stops.
        let is_traced = |pid: &u32| {
            let status = Process::new(*pid).and_then(Process::status);
            let tracer = status.map_or(0, |status| status.tracer_pid);
            tracer != 0 && Path::new(&format!("/proc/self/task/{tracer}")).exists()
        };
        while self.pids.iter().any(is_traced) {
            std::thread::yield_now();
        }
    }
}

impl Tree {
    fn new(started: StartedCommand) -> Tree {
        Tree {
            command: started.pid,
            has_ended: false,
            started: Some(started),
            child: None,
            ran: Vec::new(),
            threads: BTreeSet::new(),
        }
    }

    /// Traces the command, which has not begun.
    fn seize(&mut self) -> io::Result<()> {
        let seized = ptrace::seize(Pid::from_raw(self.command.cast_signed()), OPTIONS);
        // A command that has been killed cannot be traced; `find` says so.
        seized.or_else(|errno| match has_exited(self.command) {
            true => Ok(()),
            false => Err(errno.into()),
        })
    }

    fn find(&mut self, name: Option<&OsStr>) -> io::Result<Launch> {
        match self.started.as_mut().map(StartedCommand::go) {
            // The command was killed.
            Some(Err(error)) if error.kind() == io::ErrorKind::BrokenPipe => {}
            went => went.unwrap_or(Ok(()))?,
        }
        let found = self.run(name);
        match (found, self.started.take(), self.child.take()) {
            (Ok(Some((pid, path))), _, Some(child)) => Ok(Launch::Program { child, pid, path }),
            (Ok(_), _, Some(mut child)) => Ok(Launch::Ended {
                status: child.wait()?,
                ran: std::mem::take(&mut self.ran),
            }),
            (found, Some(started), _) => {
                if found.is_err() {
                    // Otherwise `join` would wait for an exec that does not come.
                    // SAFETY: takes two numbers. Nothing has waited for the child, so the id is still the child's.
                    unsafe { libc::kill(self.command.cast_signed(), libc::SIGKILL) };
                }
                // If exec failed, this says why.
                let mut child = started.join()?;
                let _ = child.kill();
                Err(IoReason::EndedBeforeExec(child.wait()?).into())
            }
            (found, None, child) => {
                if let Some(mut child) = child {
                    child.kill().and_then(|()| child.wait())?;
                }
                Err(found.err().unwrap_or(IoReason::StarterDied.into()))
            }
        }
    }

    fn run(&mut self, name: Option<&OsStr>) -> io::Result<Option<(u32, PathBuf)>> {
        loop {
            match stops::peek_any(0) {
                Ok((tid, Stop::Event(libc::PTRACE_EVENT_EXEC))) => {
                    stops::take_exec(tid)?;
                    self.begin(tid)?;
                    let Some(name) = name else {
                        return Ok(Some((tid, PathBuf::new())));
                    };
                    // The command runs now, so a signal that ends tiptoe must be passed on to it.
                    Phase::Attaching.begin();
                    if let Some(path) = self.wanted(tid, name) {
                        set_held(tid);
                        return Ok(Some((tid, path)));
                    }
                    stops::go_on(tid, 0).or_else(may_be_killed)?;
                }
                Ok((tid, stop)) => self.proceed(tid, stop)?,
                // If exec failed, the thread that started the command has reaped it.
                Err(Errno::ECHILD) => return Ok(None),
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Returns the path of a program that has just called exec, if it is the program `name`: its path if `name` has a
    /// slash, otherwise its file name or the name by which it was called. A script is not a program.
    fn wanted(&mut self, pid: u32, name: &OsStr) -> Option<PathBuf> {
        let exe = Process::new(pid).and_then(Process::exe).ok()?;
        let file = exe.file_name().unwrap_or_default();
        let shown = file.to_string_lossy().into_owned();
        if self.ran.len() < MOST_NAMES && !self.ran.contains(&shown) {
            self.ran.push(shown);
        }
        let program = NewProgram::read(pid).ok();
        let is_it = match name.as_bytes().contains(&b'/') {
            true => exe_id(pid).is_some_and(|id| own_file_id(Path::new(name)) == Some(id)),
            false => {
                let called = program.as_ref().and_then(NewProgram::called);
                [Some(file), called.as_deref()].contains(&Some(name))
            }
        };
        is_it.then(|| program.map_or(exe, |program| program.path()))
    }

    /// Takes the handle of a command that has called exec. Before exec this would be a deadlock: any signal would stop
    /// the command, and only this thread could continue it.
    fn begin(&mut self, tid: u32) -> io::Result<()> {
        if let Some(started) = self.started.take_if(|started| started.pid == tid) {
            self.child = Some(started.join()?);
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
                if event == libc::PTRACE_EVENT_EXEC {
                    stops::take_exec(tid)?;
                }
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
        if !self.is_command(tid) {
            let _ = stops::look(tid, false);
            return Ok(());
        }
        match &mut self.child {
            // The handle keeps the status.
            Some(child) => {
                child.wait()?;
                self.has_ended = true;
            }
            // It did not get to its exec.
            None => return Err(Errno::ESRCH.into()),
        }
        Ok(())
    }

    fn is_command(&self, tid: u32) -> bool {
        tid == self.command && !self.has_ended
    }

    /// Holds the program until the tracer is dropped.
    fn hold(mut self, program: u32, asked: &Receiver<Request>) {
        let mut fresh = None;
        loop {
            for tid in self.threads.clone() {
                match stops::peek(tid, libc::WNOHANG) {
                    // The owner of the command's handle waits for its end.
                    Ok(Stop::Ended) if self.is_command(tid) => {
                        self.has_ended = true;
                        self.threads.remove(&tid);
                    }
                    Ok(Stop::None) => {}
                    Ok(stop) if tid == program && stop != Stop::Ended => {}
                    Ok(Stop::Ended) if tid == program => {
                        // Once it is reaped, another process may get its id.
                        set_held(0);
                        drop(self.end(tid));
                    }
                    Ok(stop) => drop(self.proceed(tid, stop)),
                    Err(_) => drop(self.threads.remove(&tid)),
                }
            }
            match asked.recv_timeout(TICK) {
                Ok(work) => match &mut fresh {
                    Some(fresh) => work(Ok(fresh)),
                    None => match NewProgram::read(program) {
                        Ok(read) => work(Ok(fresh.insert(read))),
                        Err(error) => work(Err(error)),
                    },
                },
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        // The thread's end would detach the program, too, but only some time later.
        let _ = ptrace::detach(Pid::from_raw(program.cast_signed()), None);
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

    /// Sends a signal to a command that is traced but has not begun. Returns whether it got to its exec.
    fn signalled(program: &str, signal: i32) -> Result<bool, String> {
        let words = [OsString::from(program)];
        let started = preload::start(Path::new(program), &words, None).expect("a process");
        let pid = started.pid;
        let launched = with_deadline(pid, move || {
            let mut tree = Tree::new(started);
            tree.seize().expect("it is ours");
            // SAFETY: takes two numbers; nothing has waited for the child yet.
            assert_eq!(unsafe { libc::kill(pid as i32, signal) }, 0);
            let found = tree.find(None).map_err(|error| error.to_string())?;
            let Launch::Program { mut child, .. } = found else {
                return Err("it ended".to_owned());
            };
            let file = std::fs::read_link(format!("/proc/{pid}/exe")).expect("it is held");
            child.kill().expect("it is ours");
            child.wait().expect("its end");
            Ok(file)
        });
        Ok(launched? != std::env::current_exe().expect("this test"))
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
        let started = preload::start(Path::new("/bin/true"), &words, None);
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
        let Some(Ok((Launch::Program { mut child, .. }, tracer))) = launched else {
            panic!("it is not held");
        };
        drop(tracer);
        assert!(child.wait().expect("its end").success());
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
