//! A program that has just called exec, of whose code nothing has run. ptrace stops the process there.
//!
//! A launcher, such as env(1) or a shell script, starts the program to be traced with an environment that tiptoe did not
//! make. So tiptoe makes the new program call exec once more, with the agent (tiptoe's library) in its
//! environment. The second exec has the same effects as the first, because nothing of the program runs between the two.
//!
//! INVARIANT: tiptoe may die at any moment. The arguments of the second exec are written below the stack, where the
//! program has nothing yet. Then one ptrace call sets all registers. So the program either begins, or calls exec. No stop
//! on the way is by a signal, which the program would get if tiptoe died, and no instruction is stepped, because the
//! kernel would then end the program by SIGTRAP.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::libc::user_regs_struct;
use nix::sys::ptrace;
use nix::unistd::Pid;
use tiptoe_sys::host::Process;

use crate::error::IoReason;
use crate::inject::auxv_value;
use crate::preload::{AgentEntries, PRELOAD, preload_entry};
use crate::stops::{self, Stop};

/// The most bytes of a string in the arguments or the environment, with its end (execve(2)).
const LONGEST: usize = 32 << 12;
/// The most arguments and environment entries.
const MOST: u64 = 1 << 16;
/// The most bytes written below the stack. At exec the kernel maps 128 KiB there.
const ROOM: usize = 96 << 10;
/// The distance from the stack to what is written below it.
const GAP: u64 = 256;

const AT_EXECFN: u64 = 31;
const SYSCALL: [u8; 2] = [0x0f, 0x05];

pub(crate) struct NewProgram {
    pid: u32,
    memory: File,
    registers: user_regs_struct,
    /// The addresses of the strings.
    arguments: Vec<u64>,
    environment: Vec<u64>,
    /// The path that exec got: the program's, or a script's that the program interprets.
    given: PathBuf,
    is_script: bool,
}

/// The arguments of a second exec, as memory that begins at `at`.
struct ExecArguments {
    at: u64,
    words: Vec<u64>,
    strings: Vec<u8>,
}

impl NewProgram {
    /// The calling thread must be the tracer of the stopped process.
    pub(crate) fn read(pid: u32) -> io::Result<NewProgram> {
        let options = OpenOptions::new().read(true).write(true).clone();
        let memory = options.open(format!("/proc/{pid}/mem"))?;
        let registers = ptrace::getregs(of(pid))?;
        let mut at = registers.rsp + 8;
        let [count] = words_at(&memory, registers.rsp)?;
        if count > MOST {
            return Err(IoReason::ManyArguments.into());
        }
        let arguments = pointers(&memory, &mut at)?;
        let environment = pointers(&memory, &mut at)?;
        let auxv = fs::read(format!("/proc/{pid}/auxv"))?;
        let given =
            auxv_value(&auxv, AT_EXECFN).map_or_else(|| Ok(Vec::new()), |at| string(&memory, at));
        let given = PathBuf::from(OsString::from_vec(given?));
        let file = Process::new(pid).and_then(|process| process.open_in_cwd(&given));
        let file = file
            .ok()
            .and_then(|file| Some(id_of(&file.metadata().ok()?)));
        let exe = fs::metadata(format!("/proc/{pid}/exe"))?;
        Ok(NewProgram {
            pid,
            memory,
            registers,
            arguments,
            environment,
            is_script: file != Some(id_of(&exe)),
            given,
        })
    }

    /// Returns a path to the program: the path that exec got, or the kernel's if that was a script's. In another root
    /// folder both may lead to another file, or to none.
    pub(crate) fn path(&self) -> PathBuf {
        let own = self.exe_id();
        let paths = [self.given.clone(), self.exe()];
        let mut paths = paths.into_iter().filter(|path| file_id(path) == own);
        paths.next().unwrap_or_else(|| self.exe_link())
    }

    fn exe_link(&self) -> PathBuf {
        format!("/proc/{}/exe", self.pid).into()
    }

    fn exe(&self) -> PathBuf {
        let process = Process::new(self.pid);
        process.and_then(Process::exe).unwrap_or_default()
    }

    fn exe_id(&self) -> Option<(u64, u64)> {
        file_id(&self.exe_link())
    }

    pub(crate) fn file_name(&self) -> String {
        let path = self.exe();
        let name = path.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    /// Returns whether this is the program `name`: its path if `name` has a slash, otherwise its file name, or the name
    /// of a link to it that was given to exec. A script is not a program.
    pub(crate) fn is_named(&self, name: &OsStr) -> bool {
        if name.as_bytes().contains(&b'/') {
            return file_id(Path::new(name)).is_some_and(|id| Some(id) == self.exe_id());
        }
        // For a script, the kernel makes the interpreter's path the first argument.
        let first = || {
            let first = self.arguments.first().copied().unwrap_or_default();
            string(&self.memory, first).map(OsString::from_vec)
        };
        let called = match self.is_script {
            true => PathBuf::from(first().unwrap_or_default()),
            false => self.given.clone(),
        };
        [self.exe().file_name(), called.file_name()].contains(&Some(name))
    }

    /// Makes the process call exec of the same file, with the same arguments and `entries` in its environment. The
    /// calling thread remains the tracer, and the process is stopped after the second exec. If exec fails, the process is
    /// as before.
    pub(crate) fn exec_again(&self, entries: &AgentEntries) -> io::Result<()> {
        let (preload, entry) = entries.message(&self.path());
        let arguments = self.arguments_of_exec(&preload, entry)?;
        arguments.write(&self.memory)?;
        let rip = self.syscall_instruction()?;
        let [path, argv, envp] = arguments.words[..3] else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        // Ends the first exec, whose result would otherwise replace the number of the second.
        self.to_syscall()?;
        let before = ptrace::getregs(of(self.pid))?;
        let registers = user_regs_struct {
            rip,
            rax: libc::SYS_execve as u64,
            rdi: path,
            rsi: argv,
            rdx: envp,
            // No system call was interrupted, so none is restarted.
            orig_rax: u64::MAX,
            ..before
        };
        ptrace::setregs(of(self.pid), registers)?;
        self.to_syscall()?;
        if self.to_syscall()? == Stop::Event(libc::PTRACE_EVENT_EXEC) {
            return Ok(());
        }
        let failed = ptrace::getregs(of(self.pid))?.rax.cast_signed();
        ptrace::setregs(of(self.pid), before)?;
        Err(io::Error::from_raw_os_error(failed.wrapping_neg() as i32))
    }

    /// Continues up to exec, or to the beginning or end of a system call. Returns the stop there.
    fn to_syscall(&self) -> io::Result<Stop> {
        let mut signal = 0;
        loop {
            stops::to_syscall(self.pid, signal)?;
            signal = match stops::peek(self.pid, 0)? {
                end @ (Stop::Event(libc::PTRACE_EVENT_EXEC) | Stop::Signal(stops::SYSCALL)) => {
                    return Ok(end);
                }
                Stop::Signal(signal) => signal,
                Stop::Event(_) | Stop::None => 0,
                Stop::Ended => return Err(Errno::ESRCH.into()),
            };
        }
    }

    /// Finds a system call instruction in the code that the process is about to run, the loader's.
    fn syscall_instruction(&self) -> io::Result<u64> {
        let maps = Process::new(self.pid)
            .and_then(Process::maps)
            .map_err(io::Error::other)?;
        let code = maps
            .iter()
            .find(|mapping| mapping.contains(self.registers.rip));
        let code = code.ok_or(io::ErrorKind::NotFound)?;
        let mut bytes = vec![0; (code.end - code.start) as usize];
        self.memory.read_exact_at(&mut bytes, code.start)?;
        let found = bytes
            .windows(SYSCALL.len())
            .position(|bytes| bytes == SYSCALL);
        Ok(code.start + found.ok_or(io::ErrorKind::NotFound)? as u64)
    }

    fn arguments_of_exec(&self, preload: &OsStr, entry: OsString) -> io::Result<ExecArguments> {
        let own = self.own_preload()?;
        let own_text = own.map(|at| string(&self.memory, at)).transpose()?;
        let first = preload_entry(preload, own_text.as_deref());
        let argv = self.given_arguments()?;
        // Three words for the caller, then both arrays with their ends.
        let entries = self.environment.len() + usize::from(own.is_none()) + 1;
        let words = 3 + argv.len() + 1 + entries + 1;
        let texts = [
            self.given.as_os_str().as_bytes(),
            first.as_bytes(),
            entry.as_bytes(),
        ];
        let strings = texts.map(|text| [text, &[0]].concat());
        let size = words * 8 + strings.iter().map(Vec::len).sum::<usize>();
        if size > ROOM {
            return Err(IoReason::ManyArguments.into());
        }
        let at = (self.registers.rsp - GAP - size as u64) & !15;
        let mut next = at + words as u64 * 8;
        let [path, preload, descriptors] = strings.each_ref().map(|text| {
            let at = next;
            next += text.len() as u64;
            at
        });
        let arrays = at + 3 * 8;
        let envp = arrays + (argv.len() as u64 + 1) * 8;
        let environment = self.environment.iter().copied();
        let mut environment: Vec<u64> = environment
            .map(|at| if Some(at) == own { preload } else { at })
            .collect();
        if own.is_none() {
            environment.push(preload);
        }
        let words = [path, arrays, envp].into_iter().chain(argv).chain([0]);
        let words = words.chain(environment).chain([descriptors, 0]);
        Ok(ExecArguments {
            at,
            words: words.collect(),
            strings: strings.concat(),
        })
    }

    fn own_preload(&self) -> io::Result<Option<u64>> {
        for at in &self.environment {
            let mut name = [0; PRELOAD.len()];
            // The shortest string may end right at the end of the stack.
            let read = self.memory.read_at(&mut name, *at)?;
            if read == PRELOAD.len() && name == *PRELOAD {
                return Ok(Some(*at));
            }
        }
        Ok(None)
    }

    /// Returns the arguments that exec got. For a script, the kernel replaced the first by the interpreter, the
    /// interpreter's own argument, and the script's path.
    fn given_arguments(&self) -> io::Result<Vec<u64>> {
        if !self.is_script {
            return Ok(self.arguments.clone());
        }
        let script = self.given.as_os_str().as_bytes();
        for (index, at) in self.arguments.iter().enumerate().skip(1).take(2) {
            if string(&self.memory, *at)? == script {
                let rest = self.arguments[index + 1..].iter();
                return Ok(self.arguments[..1].iter().chain(rest).copied().collect());
            }
        }
        Err(IoReason::UnknownFormat.into())
    }
}

impl ExecArguments {
    fn write(&self, memory: &File) -> io::Result<()> {
        let words: Vec<[u8; 8]> = self.words.iter().map(|word| word.to_le_bytes()).collect();
        memory.write_all_at(words.as_flattened(), self.at)?;
        memory.write_all_at(&self.strings, self.at + words.len() as u64 * 8)
    }
}

fn file_id(path: &Path) -> Option<(u64, u64)> {
    Some(id_of(&fs::metadata(path).ok()?))
}

fn id_of(file: &fs::Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

fn of(pid: u32) -> Pid {
    Pid::from_raw(pid.cast_signed())
}

fn words_at<const N: usize>(memory: &File, at: u64) -> io::Result<[u64; N]> {
    let mut bytes = [[0; 8]; N];
    memory.read_exact_at(bytes.as_flattened_mut(), at)?;
    Ok(bytes.map(u64::from_le_bytes))
}

/// Reads pointers up to a null pointer. `at` is moved behind it.
fn pointers(memory: &File, at: &mut u64) -> io::Result<Vec<u64>> {
    let mut found = Vec::new();
    while found.len() as u64 <= MOST {
        let [word] = words_at(memory, *at)?;
        *at += 8;
        if word == 0 {
            return Ok(found);
        }
        found.push(word);
    }
    Err(IoReason::ManyArguments.into())
}

fn string(memory: &File, at: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; 256];
    loop {
        let read = memory.read_at(&mut bytes, at)?;
        if let Some(end) = bytes[..read].iter().position(|byte| *byte == 0) {
            bytes.truncate(end);
            return Ok(bytes);
        }
        if read < bytes.len() || bytes.len() >= LONGEST {
            return Err(io::ErrorKind::InvalidData.into());
        }
        bytes.resize(LONGEST, 0);
    }
}
