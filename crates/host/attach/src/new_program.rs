//! A program that has just called exec, of whose code nothing has run. ptrace stops the process there.
//!
//! A launcher, such as env(1) or a shell script, starts the program to be traced with an environment that tiptoe did not
//! make. So the new program is made to create the agent's memory files (the agent is tiptoe's library), and to call exec
//! once more with the agent in its environment. Nothing of the program runs between the two execs, so that the second one
//! has the same effects as the first.
//!
//! What the process needs for its calls is written below the stack, where the program has nothing yet. One ptrace call
//! sets all registers for a call.
//!
//! INVARIANT: tiptoe may die at any moment. During a call for the agent's memory the program then dies, too
//! (PTRACE_O_EXITKILL), as a command does that has not begun. Otherwise the program either begins, or calls exec. No stop
//! is by a signal, which the program would get if tiptoe died, and no instruction is stepped, because the kernel would
//! then end the program by SIGTRAP.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::libc::user_regs_struct;
use nix::sys::ptrace::{self, Options};
use nix::unistd::Pid;
use tiptoe_sys::host::Process;
use tiptoe_sys::host::procfs::Mapping;

use crate::error::IoReason;
use crate::inject::auxv_value;
use crate::preload::{PRELOAD, preload_entry};
use crate::stops::{self, Stop};

/// The most bytes of a string in the arguments or the environment, with its end (execve(2)).
const LONGEST: usize = 32 << 12;
/// The most arguments and environment entries.
const MOST: u64 = 1 << 16;
/// The most bytes written below the stack. At exec the kernel usually maps 128 KiB there.
const ROOM: usize = 96 << 10;
/// The most bytes of code that are searched for a system call.
const MOST_CODE: u64 = 4 << 20;
/// The distance from the stack to what is written below it.
const GAP: u64 = 256;

const AT_FLAGS: u64 = 8;
const AT_SECURE: u64 = 23;
const AT_EXECFN: u64 = 31;
const SYSCALL: [u8; 2] = [0x0f, 0x05];

/// The options of a traced process.
pub(crate) const OPTIONS: Options = Options::PTRACE_O_TRACESYSGOOD
    .union(Options::PTRACE_O_TRACEEXEC)
    .union(Options::PTRACE_O_TRACEFORK)
    .union(Options::PTRACE_O_TRACEVFORK)
    .union(Options::PTRACE_O_TRACECLONE);

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
    is_secure: bool,
    /// Whether the kernel kept a script's first argument (binfmt_misc with the flag P).
    keeps_first: bool,
    /// Whether the first exec has returned.
    is_past_exec: bool,
    /// The address of a system call instruction, once it is known.
    instruction: Option<u64>,
}

/// The arguments of a second exec, as memory that begins at `at`: both arrays, then strings.
struct ExecArguments {
    at: u64,
    /// The path's, and the arrays'.
    addresses: [u64; 3],
    words: Vec<u64>,
    strings: Vec<u8>,
}

impl NewProgram {
    /// The calling thread must be the tracer of the stopped process.
    pub(crate) fn read(pid: u32) -> io::Result<NewProgram> {
        let mut options = OpenOptions::new();
        let memory = options
            .read(true)
            .write(true)
            .open(format!("/proc/{pid}/mem"))?;
        let registers = ptrace::getregs(of(pid))?;
        let mut at = registers.rsp + 8;
        if word_at(&memory, registers.rsp)? > MOST {
            return Err(IoReason::ManyArguments.into());
        }
        let arguments = pointers(&memory, &mut at)?;
        let environment = pointers(&memory, &mut at)?;
        let auxv = fs::read(format!("/proc/{pid}/auxv"))?;
        let given =
            auxv_value(&auxv, AT_EXECFN).map_or_else(|| Ok(Vec::new()), |at| string(&memory, at));
        let given = PathBuf::from(OsString::from_vec(given?));
        let process = Process::new(pid).map_err(io::Error::other)?;
        let is_script = id_of(process.open_in_cwd(&given)) != exe_id(pid);
        Ok(NewProgram {
            pid,
            memory,
            registers,
            arguments,
            environment,
            is_script,
            given,
            is_secure: auxv_value(&auxv, AT_SECURE) != Some(0),
            keeps_first: auxv_value(&auxv, AT_FLAGS).is_some_and(|flags| flags & 1 != 0),
            is_past_exec: false,
            instruction: None,
        })
    }

    /// Returns a path to the program: the path that exec got, or the kernel's if that was a script's. In another root
    /// folder both may lead to another file, or to none.
    pub(crate) fn path(&self) -> PathBuf {
        let own = exe_id(self.pid);
        let exe = Process::new(self.pid).and_then(Process::exe);
        let paths = [self.given.clone(), exe.unwrap_or_default()];
        let mut paths = paths.into_iter().filter(|path| own_file_id(path) == own);
        let link = || PathBuf::from(format!("/proc/{}/exe", self.pid));
        paths.next().unwrap_or_else(link)
    }

    /// Returns the name by which the program was called: that of a link to it that was given to exec, or that a script
    /// gives as its interpreter.
    pub(crate) fn called(&self) -> Option<OsString> {
        let called = match self.is_script {
            // The kernel makes the interpreter's path the first argument.
            true => {
                let first = string(&self.memory, *self.arguments.first()?).ok()?;
                PathBuf::from(OsString::from_vec(first))
            }
            false => self.given.clone(),
        };
        called.file_name().map(OsStr::to_owned)
    }

    /// Makes the process create the agent's memory files, and returns their numbers.
    pub(crate) fn offer(&mut self) -> io::Result<[i32; 3]> {
        if self.is_secure {
            return Err(IoReason::GainsRights.into());
        }
        let mut made = [0; 3];
        for (at, name) in [c"tiptoe-agent", c"tiptoe-data", c"tiptoe-plan"]
            .iter()
            .enumerate()
        {
            let flags = u64::from(libc::MFD_ALLOW_SEALING);
            match self.call_with(name, libc::SYS_memfd_create, flags) {
                Ok(number) => made[at] = number as i32,
                Err(error) => {
                    self.close(&made[..at])?;
                    return Err(error);
                }
            }
        }
        // There may be no /proc, or only that of other processes, or a security module may forbid the file. Then the
        // loader would print an error.
        let path = CString::new(format!("/proc/self/fd/{}", made[0]))?;
        if self
            .call_with(&path, libc::SYS_access, libc::R_OK as u64)
            .is_err()
        {
            self.close(&made)?;
            return Err(IoReason::NoProc.into());
        }
        Ok(made)
    }

    fn call_with(&mut self, text: &CStr, number: i64, second: u64) -> io::Result<u64> {
        let place = (self.registers.rsp - GAP) & !15;
        self.memory.write_all_at(text.to_bytes_with_nul(), place)?;
        self.call(number, [place, second])
    }

    /// Closes files from [`NewProgram::offer`].
    pub(crate) fn close(&mut self, made: &[i32]) -> io::Result<()> {
        for number in made {
            self.call(libc::SYS_close, [*number as u64, 0])?;
        }
        Ok(())
    }

    /// Makes the process call exec of the same file, with the same arguments, and with the entries of
    /// [`preload::message`](crate::preload::message) in its environment. `message` gets the program's path and its own
    /// LD_PRELOAD. The process is stopped after the second exec. If exec fails, the process is as before.
    pub(crate) fn exec_again(
        &mut self,
        message: impl FnOnce(&Path, Option<&OsStr>) -> (OsString, OsString),
    ) -> io::Result<()> {
        let own = self.own_preload()?;
        let list = own.map(|at| string(&self.memory, at)).transpose()?;
        let list = list.as_ref().and_then(|list| list.strip_prefix(PRELOAD));
        let list = list.map(OsStr::from_bytes);
        let (preload, entry) = message(&self.path(), list);
        let first = preload_entry(&preload, list);
        let arguments = self.arguments_of_exec(own, &first, &entry)?;
        arguments.write(&self.memory)?;
        let before = self.begin(libc::SYS_execve, arguments.addresses)?;
        if self.to_syscall()? == Stop::Event(libc::PTRACE_EVENT_EXEC) {
            return Ok(());
        }
        self.end(&before).map(drop)
    }

    /// Makes the process execute a system call.
    fn call(&mut self, number: i64, [first, second]: [u64; 2]) -> io::Result<u64> {
        self.get_ready()?;
        self.set_dies_with_tiptoe(true)?;
        let before = self.begin(number, [first, second, 0])?;
        self.to_syscall()?;
        let result = self.end(&before);
        self.set_dies_with_tiptoe(false)?;
        result
    }

    /// Does what takes long before a call, and need not be done while the program would die with tiptoe. Returns the
    /// address of a system call instruction.
    fn get_ready(&mut self) -> io::Result<u64> {
        if !self.is_past_exec {
            // Otherwise the result of the first exec would replace the number of the call.
            self.to_syscall()?;
            self.is_past_exec = true;
        }
        let instruction = match self.instruction {
            Some(instruction) => instruction,
            None => self.syscall_instruction()?,
        };
        self.instruction = Some(instruction);
        Ok(instruction)
    }

    /// Begins a system call. Returns the registers that the program must get back.
    fn begin(&mut self, number: i64, [rdi, rsi, rdx]: [u64; 3]) -> io::Result<user_regs_struct> {
        let rip = self.get_ready()?;
        let before = ptrace::getregs(of(self.pid))?;
        let registers = user_regs_struct {
            rip,
            rax: number.cast_unsigned(),
            rdi,
            rsi,
            rdx,
            // No system call was interrupted, so none is restarted.
            orig_rax: u64::MAX,
            ..before
        };
        ptrace::setregs(of(self.pid), registers)?;
        self.to_syscall()?;
        Ok(before)
    }

    /// Ends a system call. Returns its result.
    fn end(&self, before: &user_regs_struct) -> io::Result<u64> {
        let result = ptrace::getregs(of(self.pid))?.rax;
        ptrace::setregs(of(self.pid), *before)?;
        match result.cast_signed() {
            errno @ -4095..0 => Err(io::Error::from_raw_os_error(-errno as i32)),
            _ => Ok(result),
        }
    }

    fn set_dies_with_tiptoe(&self, dies: bool) -> io::Result<()> {
        let mut options = OPTIONS;
        options.set(Options::PTRACE_O_EXITKILL, dies);
        Ok(ptrace::setoptions(of(self.pid), options)?)
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
        let process = Process::new(self.pid).map_err(io::Error::other)?;
        let maps = process.maps().map_err(io::Error::other)?;
        let is_next = |mapping: &&Mapping| mapping.contains(self.registers.rip);
        let code = maps.iter().find(is_next).ok_or(io::ErrorKind::NotFound)?;
        let size = (code.end - code.start).min(MOST_CODE);
        let mut bytes = vec![0; size as usize];
        self.memory.read_exact_at(&mut bytes, code.start)?;
        let mut pairs = bytes.windows(SYSCALL.len());
        let found = pairs.position(|bytes| bytes == SYSCALL);
        Ok(code.start + found.ok_or(io::ErrorKind::NotFound)? as u64)
    }

    /// `own` is the address of the program's entry LD_PRELOAD, which `first` replaces.
    fn arguments_of_exec(
        &self,
        own: Option<u64>,
        first: &OsStr,
        entry: &OsStr,
    ) -> io::Result<ExecArguments> {
        let argv = self.given_arguments()?;
        let entries = self.environment.len() + usize::from(own.is_none()) + 1;
        // Each array has a null pointer at its end.
        let words = argv.len() + 1 + entries + 1;
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
        let envp = at + (argv.len() as u64 + 1) * 8;
        let environment = self.environment.iter().copied();
        let mut environment: Vec<u64> = environment
            .map(|at| if Some(at) == own { preload } else { at })
            .collect();
        if own.is_none() {
            environment.push(preload);
        }
        let words = argv.into_iter().chain([0]).chain(environment);
        Ok(ExecArguments {
            at,
            addresses: [path, at, envp],
            words: words.chain([descriptors, 0]).collect(),
            strings: strings.concat(),
        })
    }

    /// Returns the address of the entry LD_PRELOAD, of several the last, as the loader does.
    fn own_preload(&self) -> io::Result<Option<u64>> {
        for at in self.environment.iter().rev() {
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
        let is_its_path = |index: usize| -> io::Result<bool> {
            let argument = self.arguments.get(index);
            argument.map_or(Ok(false), |at| Ok(string(&self.memory, *at)? == script))
        };
        let index = match (is_its_path(1)?, is_its_path(2)?) {
            _ if self.keeps_first => None,
            (true, false) => Some(1),
            (false, true) => Some(2),
            // Both: the interpreter's own argument, or the script's first, is this path, too.
            _ => None,
        };
        if let (Some(index), Some(first)) = (index, self.arguments.first()) {
            let rest = self.arguments.iter().skip(index + 1);
            return Ok([first].into_iter().chain(rest).copied().collect());
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

/// Returns device and inode of a process's program.
pub(crate) fn exe_id(pid: u32) -> Option<(u64, u64)> {
    id_of(Process::new(pid).and_then(Process::open_exe))
}

/// Returns device and inode of a file that tiptoe sees at this path.
pub(crate) fn own_file_id(path: &Path) -> Option<(u64, u64)> {
    let tiptoe = Process::current();
    id_of(tiptoe.open_in_cwd(path))
}

fn id_of(file: tiptoe_sys::host::Result<File>) -> Option<(u64, u64)> {
    let file = file.ok()?.metadata().ok()?;
    Some((file.dev(), file.ino()))
}

fn of(pid: u32) -> Pid {
    Pid::from_raw(pid.cast_signed())
}

fn word_at(memory: &File, at: u64) -> io::Result<u64> {
    let mut bytes = [0; 8];
    memory.read_exact_at(&mut bytes, at)?;
    Ok(u64::from_le_bytes(bytes))
}

/// Reads pointers up to a null pointer. Moves `at` to the word after it.
fn pointers(memory: &File, at: &mut u64) -> io::Result<Vec<u64>> {
    let mut found = Vec::new();
    while found.len() as u64 <= MOST {
        let word = word_at(memory, *at)?;
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
