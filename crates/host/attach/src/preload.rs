//! Starts a command with the agent (tiptoe's library) in it, through LD_PRELOAD. The agent removes tiptoe's entries
//! from the environment before the program can see them.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, PipeWriter, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use nix::fcntl::{FcntlArg, fcntl};
use tiptoe_sys::host::random;
use tiptoe_wire::descriptors::{DescriptorEntry, Key, seals};

use crate::error::{AttachError, IoReason};
use crate::memfd::{memfd, seal};
use crate::phase::{set_command, set_starter};

mod exec_image;
mod order;
mod privileges;

use exec_image::ExecImage;
pub use privileges::gained_by;

pub(crate) const PRELOAD: &[u8] = b"LD_PRELOAD=";
/// The lowest number of an inherited descriptor. Lower numbers stay free for the program.
const HIGH: i32 = 200;

/// The descriptors that a command inherits, and the key of the environment entry that lists them
/// ([`tiptoe_wire::descriptors`]).
pub struct AgentDescriptors {
    fds: [OwnedFd; 3],
    key: Key,
}

impl AgentDescriptors {
    /// Makes inheritable copies of the descriptors. Writes a new key at offset `at` of the agent's file.
    pub fn new(
        agent: &[u8],
        at: usize,
        data: &OwnedFd,
        plan: &OwnedFd,
    ) -> io::Result<AgentDescriptors> {
        let (agent, key) = with_key(agent, at);
        let file = memfd(c"tiptoe-agent", agent.len() as u64)?;
        File::from(file.try_clone()?).write_all(&agent)?;
        seal(&file, seals::AGENT)?;
        let [agent, data, plan] = [&file, data, plan].map(inheritable);
        Ok(AgentDescriptors {
            fds: [agent?, data?, plan?],
            key,
        })
    }

    fn message(&self, program: &Path) -> (OsString, OsString) {
        let [agent, data, plan] = self.fds.each_ref().map(AsRawFd::as_raw_fd);
        let descriptors = DescriptorEntry { agent, data, plan };
        let own = std::env::var_os("LD_PRELOAD");
        message(descriptors, self.key, program, own.as_deref())
    }
}

/// Returns the agent's file with a new key at offset `at`.
pub(crate) fn with_key(agent: &[u8], at: usize) -> (Vec<u8>, Key) {
    let key: Key = random::words();
    let mut agent = agent.to_vec();
    let place = agent.iter_mut().skip(at);
    let bytes = key.map(u64::to_le_bytes);
    for (to, from) in place.zip(bytes.as_flattened()) {
        *to = *from;
    }
    (agent, key)
}

/// Returns the value for LD_PRELOAD, and the environment entry of [`tiptoe_wire::descriptors`]. `own` is the program's
/// own LD_PRELOAD.
pub(crate) fn message(
    descriptors: DescriptorEntry,
    key: Key,
    program: &Path,
    own: Option<&OsStr>,
) -> (OsString, OsString) {
    let mut preload = OsString::new();
    if let Some(runtime) = order::runtime_that_must_be_first(program, own) {
        preload.push(runtime);
        preload.push(":");
    }
    preload.push(format!("/proc/self/fd/{}", descriptors.agent));
    let mut entry = String::new();
    // Writing to a string cannot fail.
    let _ = descriptors.write(key, &mut entry);
    (preload, entry.into())
}

fn inheritable(fd: &OwnedFd) -> io::Result<OwnedFd> {
    let copy = |lowest: i32| {
        let copy = fcntl(fd, FcntlArg::F_DUPFD(lowest))?;
        // SAFETY: a fresh descriptor that has no other owner.
        Ok(unsafe { OwnedFd::from_raw_fd(copy) })
    };
    // A low `ulimit -n` may forbid such high numbers.
    copy(HIGH).or_else(|_| copy(3))
}

/// Returns the file that execvp(3) would run for a command's first word.
pub fn find_program(word: &OsStr) -> Result<PathBuf, AttachError> {
    let missing = || AttachError::NoProgram {
        word: word.to_owned(),
    };
    if word.as_bytes().contains(&b'/') {
        let path = PathBuf::from(word);
        return path.exists().then_some(path).ok_or_else(missing);
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    let mut found = std::env::split_paths(&path).map(|folder| folder.join(word));
    found.find(|file| is_executable(file)).ok_or_else(missing)
}

/// Returns a script's interpreter; `path` itself for another file.
pub fn interpreter(path: &Path) -> PathBuf {
    const NESTED: usize = 4;
    let mut path = path.to_owned();
    for _ in 0..NESTED {
        let mut line = [0; 256];
        let read = File::open(&path).and_then(|mut file| file.read(&mut line));
        let Some(line) = line[..read.unwrap_or(0)].strip_prefix(b"#!") else {
            break;
        };
        let line = line.split(|byte| *byte == b'\n').next().unwrap_or(line);
        let mut words = line.split(|byte| byte.is_ascii_whitespace());
        match words.find(|word| !word.is_empty()) {
            Some(word) => path = PathBuf::from(OsStr::from_bytes(word)),
            None => break,
        }
    }
    path
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata()
        .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

pub(crate) struct StartedCommand {
    pub(crate) pid: u32,
    proceed: PipeWriter,
    spawned: std::thread::JoinHandle<io::Result<Child>>,
}

impl StartedCommand {
    pub(crate) fn proceed(mut self) -> io::Result<Child> {
        self.go()?;
        self.join()
    }

    pub(crate) fn go(&mut self) -> io::Result<()> {
        self.proceed.write_all(&[1])
    }

    /// Waits until the command has called exec or ended; fails if exec failed. Before exec, the command's tracer must
    /// not call this function. Any signal, even SIGWINCH, would stop the command, and the waiting tracer could not
    /// continue the command (deadlock).
    pub(crate) fn join(self) -> io::Result<Child> {
        drop(self.proceed);
        self.spawned
            .join()
            .unwrap_or_else(|_| Err(IoReason::StarterDied.into()))
    }
}

/// Forks a process that waits for [`StartedCommand::go`] before it becomes `command`, whose file is `program`.
pub(crate) fn start(
    program: &Path,
    command: &[OsString],
    passed: Option<AgentDescriptors>,
) -> io::Result<StartedCommand> {
    let (mut pid_reader, mut to_parent) = io::pipe()?;
    let (go, proceed) = io::pipe()?;
    let message = passed.as_ref().map(|passed| passed.message(program));
    let image = ExecImage::new(program, command, message)?;
    let mut child = Command::new(&command[0]);
    let far_end = proceed.as_raw_fd();
    let hook = move || {
        default_signals();
        to_parent.write_all(&std::process::id().to_le_bytes())?;
        // The child must close the pipe's write end. Otherwise the child's read would not end if tiptoe dies.
        // SAFETY: the forked child does not use the descriptor otherwise.
        unsafe { libc::close(far_end) };
        Err(image.exec(&go))
    };
    // SAFETY: the forked child only writes, reads and execs, and allocates nothing.
    unsafe { child.pre_exec(hook) };
    let spawned = std::thread::spawn(move || {
        set_starter(true);
        let spawned = child.spawn();
        set_starter(false);
        drop(passed);
        spawned
    });
    let mut pid = [0; 4];
    pid_reader.read_exact(&mut pid)?;
    let pid = u32::from_le_bytes(pid);
    set_command(pid);
    Ok(StartedCommand {
        pid,
        proceed,
        spawned,
    })
}

/// Restores the default actions of signals that tiptoe handles, because Ctrl-C must end a command that has not
/// begun. Ignored signals stay ignored.
fn default_signals() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: both calls only exchange a word in this forked child.
        unsafe {
            if libc::signal(signal, libc::SIG_DFL) == libc::SIG_IGN {
                libc::signal(signal, libc::SIG_IGN);
            }
        }
    }
}

fn environment(message: Option<(OsString, OsString)>) -> impl Iterator<Item = OsString> {
    let variables = std::env::vars_os();
    let mut entries: Vec<OsString> = variables
        .map(|(name, value)| [name, value].join(OsStr::new("=")))
        .collect();
    if let Some((preload, descriptors_entry)) = message {
        let mut own = entries.iter_mut();
        let own = own.find(|entry| entry.as_bytes().starts_with(PRELOAD));
        let list = own.as_ref().map(|entry| &entry.as_bytes()[PRELOAD.len()..]);
        let first = preload_entry(&preload, list.map(OsStr::from_bytes));
        match own {
            Some(entry) => *entry = first,
            None => entries.push(first),
        }
        entries.push(descriptors_entry);
    }
    entries.into_iter()
}

/// Returns the entry LD_PRELOAD with `preload` before the program's own list.
pub(crate) fn preload_entry(preload: &OsStr, own: Option<&OsStr>) -> OsString {
    let mut entry = OsStr::from_bytes(PRELOAD).to_owned();
    entry.push(preload);
    if let Some(own) = own {
        entry.push(":");
        entry.push(own);
    }
    entry
}
