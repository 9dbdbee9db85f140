//! The process whose variables are watched: a running one, or a command that is held right after
//! exec, when it is mapped and none of its code has run.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::process::Child;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::ptrace;
use nix::unistd::Pid;
use tiptoe_attach::preload::{self, StartedCommand};
use tiptoe_attach::stops::{self, Stop};
use tiptoe_kernel::watchpoints::Snapshot;
use tiptoe_stack::Frame;
use tiptoe_symbol::Class;
use tiptoe_sys::host::Process;
use tiptoe_sys::host::procfs::Mapping;

use super::variables::WatchedVariable;
use crate::driver::cannot_start;
use crate::module::{Cache, Module};
use crate::request::{Error, RequestTarget};
use crate::ulocks::{Names, Stacks};
use crate::words::few_processes;

/// The shortest time between two reads of the maps, however much unknown code a program runs.
const SELDOM: Duration = Duration::from_millis(5);
/// The numbers of %rsp and %rbp.
const SP: usize = 4;
const BP: usize = 5;
/// The most callers to look for.
const DEEPEST: usize = 16;

/// A process, and what is mapped in it.
pub(super) struct Target {
    pub(super) process: Process,
    pub(super) comm: String,
    pub(super) command: Vec<String>,
    pub(super) names: Names,
    cache: Cache,
    /// Addresses at which no code was found.
    strange: HashSet<u64>,
    /// When the maps were last read.
    looked: Instant,
    memory: File,
    /// The command, if it is held.
    held: Option<Child>,
    before: Duration,
    after: Duration,
}

impl Target {
    /// Finds a process, or starts one.
    pub(super) fn begin(target: &RequestTarget) -> Result<Target, Error> {
        match target {
            RequestTarget::Pids(pids) => Target::of(one(pids)?, None, Cache::default()),
            RequestTarget::Command(command) => {
                let program = preload::find_program(&command[0])?;
                let failed = |error: std::io::Error| cannot_start(command, &error);
                let started = preload::start(&program, command, None).map_err(failed)?;
                let pid = started.pid;
                seize(pid).map_err(|error| failed(error.into()))?;
                let child = proceed_to_exec(started).map_err(failed)?;
                let name = program.file_name().unwrap_or(&command[0]);
                let mut target = Target::of(pid, Some(child), Cache::default())?;
                target.comm = name.to_string_lossy().into_owned();
                Ok(target)
            }
        }
    }

    /// Takes a process with the agent in it; the agent holds it if it is a command.
    pub(super) fn within(
        process: Process,
        held: Option<Child>,
        cache: Cache,
    ) -> Result<Target, Error> {
        Target::of(process.pid(), held, cache)
    }

    fn of(pid: u32, held: Option<Child>, cache: Cache) -> Result<Target, Error> {
        let process = Process::new(pid)?;
        let leader = process.status()?.tgid;
        if leader != pid {
            let what = format!("{pid} is a thread of process {leader}");
            return Err(Error::new(what).with_hint(format!("-p {leader} --by thread")));
        }
        let memory = File::open(format!("/proc/{pid}/mem")).map_err(|error| {
            let what = format!("cannot read the memory of process {pid}: {error}");
            Error::new(what).with_hint("run as root, or as the process's user")
        })?;
        let words = process.command_line().unwrap_or_default();
        let mut target = Target {
            process,
            comm: process.comm()?,
            command: words
                .iter()
                .map(|word| word.to_string_lossy().into_owned())
                .collect(),
            names: Names::default(),
            cache,
            strange: HashSet::new(),
            looked: Instant::now(),
            memory,
            held,
            before: Duration::ZERO,
            after: Duration::ZERO,
        };
        target.look()?;
        Ok(target)
    }

    /// Reads what the process has mapped.
    fn look(&mut self) -> Result<(), Error> {
        self.looked = Instant::now();
        let maps = self.process.maps()?;
        let modules = self.cache.modules(self.process, &maps)?;
        self.names = Names {
            modules,
            maps,
            stacks: Stacks::default(),
            ..Names::default()
        };
        Ok(())
    }

    /// Reads the maps again if no known code is at an address, because libraries are loaded later.
    pub(super) fn know(&mut self, address: u64) {
        let is_soon = self.looked.elapsed() < SELDOM;
        if !is_soon && self.module(address).is_none() && self.strange.insert(address) {
            self.look_again();
        }
    }

    /// Reads the maps again if more code is mapped than before, because a new command may end
    /// before a hit in a library would cause it.
    pub(super) fn follow(&mut self) {
        let code = |maps: &[Mapping]| maps.iter().filter(|m| m.perms.exec).count();
        let maps = self.process.maps().unwrap_or_default();
        if code(&maps) > code(&self.names.maps) {
            self.look_again();
        }
    }

    /// Reads the maps again. If the process has ended, or runs another program, the old state
    /// stays.
    fn look_again(&mut self) {
        let maps = self.process.maps().unwrap_or_default();
        let is_same = |mapping: &Mapping| {
            self.names
                .maps
                .iter()
                .any(|known| known.start == mapping.start)
        };
        if maps.first().is_some_and(is_same) {
            let _ = self.look();
        }
    }

    /// Reads its memory; returns whether all of it could be read.
    pub(super) fn read(&self, at: u64, bytes: &mut [u8]) -> bool {
        self.memory.read_exact_at(bytes, at).is_ok()
    }

    /// Returns the module with code at an address, if it is a 64-bit one.
    pub(super) fn module(&self, address: u64) -> Option<&Module> {
        let mut modules = self.names.modules.iter();
        let module = modules.find(|m| m.text.iter().any(|text| text.contains(&address)))?;
        (module.object.image.header().class == Class::Elf64).then_some(module)
    }

    /// Returns whether it is a command that has not begun.
    pub(super) fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// Lets a held command begin. If the agent holds it, `go` has already released it.
    pub(super) fn go_on(&mut self, is_agents: bool) -> Result<Option<Child>, Error> {
        if self.held.is_some() && !is_agents {
            let pid = of(self.process.pid());
            ptrace::detach(pid, None)
                .map_err(|error| Error::new(format!("cannot continue process {pid}: {error}")))?;
        }
        Ok(self.held.take())
    }

    /// Starts counting its CPU time.
    pub(super) fn mark(&mut self) {
        self.before = self.process.cpu_time().unwrap_or_default();
        self.after = self.before;
    }

    /// Returns whether it still runs, and reads its CPU time. It may be a zombie that its parent
    /// has not reaped.
    pub(super) fn is_there(&mut self) -> bool {
        let now = self.process.cpu_time();
        self.after = now.as_ref().copied().unwrap_or(self.after);
        let has_ended = || {
            let main_ended = self
                .process
                .status()
                .is_ok_and(|status| status.state == 'Z');
            main_ended && self.process.maps().is_ok_and(|maps| maps.is_empty())
        };
        now.is_ok() && !has_ended()
    }

    /// Returns the CPU time since the mark.
    pub(super) fn cpu_ns(&self) -> u64 {
        self.after.saturating_sub(self.before).as_nanos() as u64
    }

    /// Returns why a variable no longer exists, if the process still does.
    pub(super) fn gone(&self, place: &WatchedVariable) -> Option<&'static str> {
        if place
            .of_thread()
            .is_some_and(|owner| owner.has_ended(self.process))
        {
            return Some("its thread ended");
        }
        if self.read(place.address(), &mut [0]) {
            return None;
        }
        let maps = self.process.maps().unwrap_or_default();
        let is_gone =
            !maps.is_empty() && !maps.iter().any(|mapping| mapping.contains(place.address()));
        is_gone.then_some("it was unmapped")
    }

    /// Unwinds the stack that a hit saved, as far as it was saved, and returns the return
    /// addresses.
    pub(super) fn unwind(&self, ip: u64, first: &Snapshot) -> Vec<u64> {
        let sp = first.registers[SP];
        let word = |at: u64| {
            let index = at.checked_sub(sp)? / 8;
            first.stack.get(usize::try_from(index).ok()?).copied()
        };
        let mut frame = Frame {
            pc: ip,
            sp,
            bp: first.registers[BP],
        };
        let mut callers = Vec::new();
        let mut at = ip;
        while callers.len() < DEEPEST {
            let Some(module) = self.module(at) else { break };
            let rule = module
                .object
                .unwind_table()
                .rule(at.wrapping_sub(module.bias));
            let Some(caller) = rule.step(&frame, word) else {
                break;
            };
            frame = caller;
            at = frame.pc.wrapping_sub(1);
            callers.push(frame.pc);
        }
        callers
    }
}

/// Returns the only process of the request.
pub(super) fn one(pids: &[u32]) -> Result<u32, Error> {
    match pids {
        [pid] => Ok(*pid),
        _ => {
            let what = "addresses differ between processes, so only one process can be watched";
            Err(Error::new(what).with_hint(format!("-p PID: {}", few_processes(pids))))
        }
    }
}

impl Drop for Target {
    /// A command that is still held must not run.
    fn drop(&mut self) {
        if let Some(child) = &mut self.held {
            let _ = child.kill();
            // Without a deadline, because nothing blocks SIGKILL.
            let _ = child.wait();
        }
    }
}

fn of(pid: u32) -> Pid {
    Pid::from_raw(pid as i32)
}

/// Traces a command that has not called exec, so that it stops there.
fn seize(pid: u32) -> Result<(), Errno> {
    ptrace::seize(of(pid), ptrace::Options::PTRACE_O_TRACEEXEC)
}

/// Lets a command that this thread traces call exec, and holds it there.
///
/// It must be joined only after that, otherwise there is a deadlock: any signal stops it before
/// exec, even an ignored one such as that of a resized terminal. Only this thread can end that
/// stop, but a join waits for the starter, which waits for exec.
fn proceed_to_exec(mut started: StartedCommand) -> io::Result<Child> {
    let pid = started.pid;
    match started.go() {
        // It was killed: its end says how.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        went => went?,
    }
    let at_exec = until_exec(pid);
    if at_exec.is_err() {
        // SAFETY: takes two numbers. Nothing waits for a child that has not failed to call exec, so
        // the number is its own.
        unsafe { libc::kill(pid.cast_signed(), libc::SIGKILL) };
    }
    let mut child = started.join()?;
    if at_exec? {
        return Ok(child);
    }
    let ended = child.wait()?;
    Err(io::Error::other(format!(
        "it ended before it called exec: {ended}"
    )))
}

/// Waits until a seized process has called exec; returns whether it did, or ended first. There is
/// no deadline, because the file may be on a slow disk; during the wait a signal ends tiptoe
/// ([`tiptoe_attach::phase`]).
fn until_exec(pid: u32) -> Result<bool, Errno> {
    loop {
        let signal = match stops::next_of_child(pid) {
            Ok(Stop::Event(libc::PTRACE_EVENT_EXEC)) => return Ok(true),
            Ok(Stop::Signal(signal)) => signal,
            Ok(Stop::Event(_) | Stop::None) => 0,
            // Its starter reaps a child whose exec failed.
            Ok(Stop::Ended) | Err(Errno::ECHILD) => return Ok(false),
            Err(errno) => return Err(errno),
        };
        match stops::go_on(pid, signal) {
            // It was killed in its stop: its end is next.
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

    #[test]
    fn one_of_several_processes_must_be_named() {
        let pid = std::process::id();
        assert_eq!(one(&[pid]).unwrap(), pid);
        let hint = one(&[pid; 10]).unwrap_err().hint().unwrap();
        assert!(hint.starts_with(&format!("-p PID: {pid} ")), "{hint}");
        assert!(hint.ends_with(" and 2 more"), "{hint}");
    }

    /// Runs `trace` on a thread of its own, which is the tracer; fails the test if it hangs.
    fn with_deadline<T: Send + 'static>(
        trace: impl FnOnce(&mpsc::Sender<u32>) -> T + Send + 'static,
    ) -> T {
        let ((tell, pid), (end, ended)) = (mpsc::channel(), mpsc::channel());
        std::thread::spawn(move || end.send(trace(&tell)));
        ended
            .recv_timeout(Duration::from_secs(20))
            .unwrap_or_else(|hangs| {
                for pid in pid.try_iter() {
                    // SAFETY: takes two numbers; the child still waits for its tracer.
                    unsafe { libc::kill(pid as i32, libc::SIGKILL) };
                }
                panic!("the command is not at exec: {hangs}")
            })
    }

    /// Sends a signal to a command that is traced and has not called exec; returns what became of
    /// it.
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

    /// Regression: its stop and the join waited for each other.
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
