//! One process to be traced: a running process, or a command that tiptoe started and may still keep from running.

use std::cell::Cell;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

use tiptoe_sys::host::ends::{pidfd, wait_for_end};
use tiptoe_sys::host::{Error as SysError, Process};
use tiptoe_wire::descriptors::DescriptorEntry;
use tiptoe_wire::{Geometry, Plan as PlanSegment};

use crate::end_check;
use crate::error::AttachError;
use crate::hold::Hold;
use crate::inject::OfferedFds;
use crate::launch::{Launch, launch};
use crate::link::{Link, Terms};
use crate::new_program::NewProgram;
use crate::phase::{has_exited, set_command, set_held};
use crate::preload::{self, AgentDescriptors, StartedCommand};
use crate::ready::CountedProcess;
use crate::resident::AgentFile;

const ENDING: Duration = Duration::from_secs(1);

/// A process to be traced. Dropping an `Attached` kills a command that is still held.
pub struct Attached {
    /// The process.
    pub process: Process,
    /// The process's name at the attach; for a command, the program's file name.
    pub comm: String,
    /// The command line at the attach; for a command, the given words.
    pub command: Vec<String>,
    /// The link to the agent (tiptoe's library).
    pub link: Option<Link>,
    /// The link of an agent that tiptoe no longer uses. If this link were dropped, the agent would let a held command
    /// begin.
    retired: Option<Link>,
    /// What holds the command; `None` if tiptoe did not start the process.
    hold: Option<Hold>,
    /// The process's pidfd, which stays valid if another process gets the id; `None` before Linux 5.3.
    handle: Option<OwnedFd>,
    cpu_at_start: Cell<Duration>,
    cpu_last: Cell<Duration>,
}

impl Attached {
    /// Attaches to a running process. Fails if no process has this id, or if the id is that of a thread.
    pub fn to(pid: u32) -> Result<Attached, AttachError> {
        let process = Process::new(pid)?;
        match process.status()?.tgid {
            leader if leader == pid => {}
            leader => return Err(AttachError::IsThread { pid, leader }),
        }
        let cpu = process.cpu_time().unwrap_or_default();
        Ok(Attached {
            process,
            comm: process.comm()?,
            command: command_line(process),
            link: None,
            retired: None,
            hold: None,
            handle: pidfd(pid),
            cpu_at_start: Cell::new(cpu),
            cpu_last: Cell::new(cpu),
        })
    }

    /// Forks a process for `command`, whose file is `program`, and holds it before exec. With `passed`, the
    /// command will load the agent.
    pub fn start(
        program: &Path,
        command: &[OsString],
        passed: Option<AgentDescriptors>,
    ) -> Result<Attached, AttachError> {
        let started = preload::start(program, command, passed);
        let started = started.map_err(|why| cannot_run(&words(command), why))?;
        let name = program.file_name().unwrap_or(&command[0]);
        let mut attached = Attached::to(started.pid)?;
        // Until exec, /proc shows tiptoe's name and command line.
        attached.comm = name.to_string_lossy().into_owned();
        attached.command = words(command);
        attached.hold = Some(Hold::BeforeExec(started));
        Ok(attached)
    }

    /// Starts a command without an agent. The command's first word names the file.
    pub fn start_alone(command: &[OsString]) -> Result<Attached, AttachError> {
        Attached::start(&preload::find_program(&command[0])?, command, None)
    }

    /// Lets a command call exec, and stops it before any of its code has run. Does nothing if it has called exec.
    pub fn hold_at_exec(&mut self) -> Result<(), AttachError> {
        self.launch(None).map(drop)
    }

    /// Lets a command run until it, or a process that it starts, calls exec of the program `name`, a file name or a path.
    /// Stops that process before any of the program's code has run; from then on it is this `Attached`'s process.
    /// Returns the program's path. Fails if the command and its descendants end before.
    pub fn hold_at_program(&mut self, name: &OsStr) -> Result<PathBuf, AttachError> {
        self.launch(Some(name))
    }

    fn launch(&mut self, name: Option<&OsStr>) -> Result<PathBuf, AttachError> {
        let started = match self.hold.take() {
            Some(Hold::BeforeExec(started)) => started,
            other => {
                self.hold = other;
                return Ok(PathBuf::new());
            }
        };
        let launched = launch(started, name.map(OsStr::to_owned));
        let (launched, tracer) = launched.map_err(|why| cannot_run(&self.command, why))?;
        let (child, pid, path) = match launched {
            Launch::Program { child, pid, path } => (child, pid, path),
            Launch::Ended { status, ran } => {
                return Err(AttachError::NeverRan {
                    word: self.command.first().cloned().unwrap_or_default(),
                    name: name.unwrap_or_default().to_string_lossy().into_owned(),
                    status,
                    ran: ran.join(", "),
                });
            }
        };
        if pid != self.process.pid() {
            self.process = Process::new(pid)?;
            self.handle = pidfd(pid);
            self.cpu_last.set(Duration::ZERO);
            self.mark();
        }
        self.hold = Some(Hold::AtExec(child, tracer));
        self.comm = self.process.comm().unwrap_or_default();
        Ok(path)
    }

    /// Makes a program that is held at its exec call exec again, and then load the agent. Makes the link to that agent. If
    /// this fails, the program is still held at the first exec.
    pub fn exec_with_agent(
        &mut self,
        agent: &[u8],
        geometry: Geometry,
        terms: &Terms,
    ) -> Result<(), AttachError> {
        let Some(Hold::AtExec(_, tracer)) = &self.hold else {
            return Ok(());
        };
        let key = AgentFile::parse(agent)?.key;
        let (agent, key) = preload::with_key(agent, key);
        let made = tracer.with_program(NewProgram::offer);
        let made = made.map_err(AttachError::NoSecondExec)?;
        let share = || {
            let pid = self.process.pid();
            let offered = OfferedFds::take(pid, pid, made).map_err(io::Error::other)?;
            offered.fill(&agent, geometry.data_bytes(), PlanSegment::FILE_BYTES)?;
            let (data, plan) = (offered.data.try_clone()?, offered.plan.try_clone()?);
            let link = Link::new(data, plan, geometry, terms, end_check(pid))?;
            offered.close_plan()?;
            let [agent, data, plan] = made;
            let descriptors = DescriptorEntry { agent, data, plan };
            tracer.with_program(move |program| {
                program.exec_again(|path, own| preload::message(descriptors, key, path, own))
            })?;
            Ok(link)
        };
        match share() {
            Ok(link) => self.link = Some(link),
            Err(error) => {
                let _ = tracer.with_program(move |program| program.close(&made));
                return Err(AttachError::NoSecondExec(error));
            }
        }
        Ok(())
    }

    /// Lets a command call exec, or continue after it. If the command has an agent, the agent then holds the command;
    /// otherwise the command runs.
    pub fn hold_in_agent(&mut self) -> Result<(), AttachError> {
        self.hold = match self.hold.take() {
            Some(Hold::AtExec(child, _)) => Some(Hold::InAgent(child)),
            other => other,
        };
        self.proceed(|started| started.proceed().map(Hold::InAgent))?;
        self.comm = self.process.comm().unwrap_or_default();
        Ok(())
    }

    /// Stops using the agent. If the agent holds a command, the command still waits for [`Attached::release`].
    pub fn retire_agent(&mut self) {
        self.retired = self.link.take();
    }

    /// Lets a held command begin.
    pub fn release(&mut self) -> Result<(), AttachError> {
        if let (Some(Hold::InAgent(_)), Some(link)) = (&self.hold, &self.link) {
            link.go()?;
        }
        self.proceed(|started| started.proceed().map(Hold::Nothing))?;
        self.retired = None;
        self.hold = self.hold.take().map(Hold::nothing);
        set_held(0);
        Ok(())
    }

    fn proceed(
        &mut self,
        to: impl FnOnce(StartedCommand) -> io::Result<Hold>,
    ) -> Result<(), AttachError> {
        match self.hold.take() {
            Some(Hold::BeforeExec(started)) => {
                let held = to(started).map_err(|why| cannot_run(&self.command, why))?;
                self.hold = Some(held);
            }
            other => self.hold = other,
        }
        Ok(())
    }

    /// Returns whether tiptoe started this process, or its ancestor.
    pub fn is_command(&self) -> bool {
        self.hold.is_some()
    }

    /// Returns whether this is a process that a command started. Its parent may wait for it at once, and then its CPU time
    /// can no longer be read.
    pub fn is_descendant(&self) -> bool {
        let pid = self.process.pid();
        self.hold.as_ref().is_some_and(|hold| !hold.is_of(pid))
    }

    /// Returns whether this is a command that tiptoe still holds.
    pub fn is_held(&self) -> bool {
        !matches!(self.hold, None | Some(Hold::Nothing(_)))
    }

    /// Returns whether this is a command that has not called exec.
    pub fn is_before_exec(&self) -> bool {
        matches!(self.hold, Some(Hold::BeforeExec(_)))
    }

    /// Returns the handle of a command that has called exec.
    pub fn child(&mut self) -> Option<&mut Child> {
        self.hold.as_mut().and_then(Hold::child)
    }

    /// Returns the process's id and name.
    pub fn counted(&self) -> CountedProcess {
        (self.process.pid(), self.comm.clone())
    }

    /// Begins to count the process's CPU time.
    pub fn mark(&self) {
        self.fetch_cpu_time();
        self.cpu_at_start.set(self.cpu_last.get());
    }

    /// Returns the process's CPU time when counting began.
    pub fn counted_from(&self) -> Duration {
        self.cpu_at_start.get()
    }

    /// Sets the CPU time when counting began, to an earlier result of [`Attached::counted_from`].
    pub fn count_from(&self, cpu_time: Duration) {
        self.cpu_at_start.set(cpu_time);
    }

    /// Reads and returns the CPU time since [`Attached::mark`]; after the process's end, the last value read.
    pub fn fetch_cpu_time(&self) -> Duration {
        if let Ok(now) = self.process.cpu_time() {
            self.cpu_last.set(now.max(self.cpu_last.get()));
        }
        self.cpu_time()
    }

    /// Reads and returns the CPU time since the process's start; after the process's end, the last value read.
    pub fn fetch_total_cpu_time(&self) -> Duration {
        self.fetch_cpu_time();
        self.cpu_last.get()
    }

    /// Returns the result of the last [`Attached::fetch_cpu_time`].
    pub fn cpu_time(&self) -> Duration {
        let (first, last) = (self.cpu_at_start.get(), self.cpu_last.get());
        last.saturating_sub(first)
    }

    /// Returns whether the process has ended, even if its parent has not waited for it.
    pub fn has_ended(&self) -> bool {
        let pid = self.process.pid();
        match self.is_command() && !self.is_descendant() {
            true => has_exited(pid),
            false => end_check(pid)(),
        }
    }

    /// Returns whether the process has ended, for a caller whose request failed. The kernel frees a process's memory
    /// before it reports the end, so if the memory is gone, this function first waits for the end.
    pub fn has_failed_by_end(&self) -> bool {
        let has_no_memory = match self.process.maps() {
            Ok(maps) => maps.is_empty(),
            Err(error) => matches!(error, SysError::NoSuchProcess { .. }),
        };
        if let Some(handle) = self.handle.as_ref().filter(|_| has_no_memory) {
            wait_for_end(handle.as_fd(), ENDING);
        }
        self.has_ended()
    }

    /// Returns the signal that killed the process; `None` if the process exited, or its status is unknown.
    pub fn killed_by(&self) -> Option<i32> {
        // The stat file has the status until the process is reaped; afterwards only the pidfd has the status.
        let status = reaped(self.handle.as_ref()?).or_else(|| self.process.exit_status().ok())?;
        Some(status & 0x7f).filter(|signal| *signal != 0)
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        if !self.is_held() || self.is_before_exec() {
            return;
        }
        let is_launched = self.is_descendant();
        if let Some(handle) = &self.handle {
            kill(handle);
        }
        let (mut child, tracer) = match self.hold.take() {
            Some(Hold::AtExec(child, tracer)) => (child, Some(tracer)),
            Some(Hold::InAgent(child)) => (child, None),
            _ => return,
        };
        if !is_launched {
            let _ = child.kill();
        }
        // The tracer must go first, because the command's end is seen only when all of its traced threads are reaped.
        drop(tracer);
        match is_launched {
            // No deadline, because no process can block SIGKILL.
            false => drop(child.wait()),
            // The launcher may have something to clean up.
            true if matches!(child.try_wait(), Ok(None)) => {
                // SAFETY: takes two numbers; the child was not reaped, so the id is still the child's.
                unsafe { libc::kill(child.id().cast_signed(), libc::SIGTERM) };
            }
            true => {}
        }
        set_held(0);
        set_command(0);
    }
}

/// Kills a process, also if it is not the command itself.
fn kill(handle: &OwnedFd) {
    let no_info = std::ptr::null::<libc::siginfo_t>();
    let (number, fd) = (libc::SYS_pidfd_send_signal, handle.as_raw_fd());
    // SAFETY: takes two numbers and no signal data.
    unsafe { libc::syscall(number, fd, libc::SIGKILL, no_info, 0) };
}

/// Returns a process's command line, which the program may have overwritten.
pub fn command_line(process: Process) -> Vec<String> {
    words(&process.command_line().unwrap_or_default())
}

fn words(command: &[OsString]) -> Vec<String> {
    let words = command.iter();
    words
        .map(|word| word.to_string_lossy().into_owned())
        .collect()
}

fn cannot_run(command: &[String], why: io::Error) -> AttachError {
    let word = command.first().cloned().unwrap_or_default();
    AttachError::CannotRun { word, why }
}

fn reaped(handle: &OwnedFd) -> Option<i32> {
    /// ioctl_pidfd(2). The first 8 of the 64 bytes are a mask of the requested fields; the call replaces this mask by
    /// that of the available fields. The last 4 bytes are the exit code.
    const PIDFD_GET_INFO: libc::c_ulong = 0xc040_ff0b;
    const PIDFD_INFO_EXIT: u32 = 1 << 3;
    let mut info = [0_u32; 16];
    info[0] = PIDFD_INFO_EXIT;
    // SAFETY: the request's number holds the size of `info`, which the kernel fills.
    let result = unsafe { libc::ioctl(handle.as_raw_fd(), PIDFD_GET_INFO, info.as_mut_ptr()) };
    (result == 0 && info[0] & PIDFD_INFO_EXIT != 0).then(|| info[15].cast_signed())
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::time::Instant;

    fn wait_for_end_of(pid: u32) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !end_check(pid)() {
            assert!(Instant::now() < deadline, "process {pid} still runs");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_command_that_is_dropped_while_it_is_held_never_runs() {
        let file = std::env::temp_dir().join(format!("tiptoe-held-{}", std::process::id()));
        let words = [OsString::from("touch"), file.clone().into()];
        for is_at_exec in [false, true] {
            let mut held = Attached::start_alone(&words).expect("a process");
            if is_at_exec {
                held.hold_at_exec().expect("it is ours");
            }
            let pid = held.process.pid();
            assert!(held.is_held() && !held.has_ended());
            drop(held);
            wait_for_end_of(pid);
            assert!(!file.exists(), "at exec: {is_at_exec}");
        }
    }

    #[test]
    fn a_released_command_runs_to_its_end() {
        let words = ["sh", "-c", "kill -s TERM $$"].map(OsString::from);
        let mut command = Attached::start_alone(&words).expect("a process");
        assert_eq!(
            (&*command.comm, &*command.command[2]),
            ("sh", "kill -s TERM $$")
        );
        command.release().expect("it is ours");
        assert!(command.is_command() && !command.is_held());
        wait_for_end_of(command.process.pid());
        assert!(command.has_ended());
        assert_eq!(command.killed_by(), Some(libc::SIGTERM));
        command
            .child()
            .expect("it called exec")
            .wait()
            .expect("its end");
        assert!(command.has_ended());
    }

    #[test]
    fn the_number_of_a_thread_is_refused() {
        // SAFETY: gettid has no arguments.
        let own = std::thread::spawn(|| Attached::to(unsafe { libc::gettid() } as u32).err());
        let error = own.join().expect("it ends").expect("it is a thread");
        let leader = std::process::id();
        assert_eq!(error.hint(), Some(format!("-p {leader}")));
        assert!(matches!(error, AttachError::IsThread { leader: found, .. } if found == leader));
    }
}
