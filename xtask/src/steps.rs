//! Counts executed instructions by single steps.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};

const TRAP: libc::c_long = 0xcc;
/// A function that takes more steps is assumed not to return.
const MOST: usize = 10_000;

/// Counts the instructions of each function's first call, including callees'. The functions' addresses are those that
/// `nm` prints for a position-independent program.
pub fn count(program: &Path, functions: &BTreeMap<String, u64>) -> BTreeMap<String, usize> {
    let mut command = Command::new(program);
    // SAFETY: the closure makes only a system call.
    unsafe {
        command.pre_exec(|| match libc::ptrace(libc::PTRACE_TRACEME) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        });
    }
    let tracee = Tracee(command.spawn().expect("the program starts"));
    tracee.wait();
    let base = tracee.base(program);
    let mut left: BTreeMap<u64, (&String, libc::c_long)> = BTreeMap::new();
    for (name, offset) in functions {
        let at = base + offset;
        let old = tracee.peek(at);
        tracee.poke(at, old & !0xff | TRAP);
        left.insert(at, (name, old));
    }
    let mut counts = BTreeMap::new();
    while !left.is_empty() {
        tracee.go(libc::PTRACE_CONT);
        let mut registers = tracee.registers();
        registers.rip -= 1;
        let (name, old) = left.remove(&registers.rip).expect("one of our traps");
        tracee.poke(registers.rip, old);
        tracee.set_registers(&registers);
        let frame = registers.rsp;
        let steps = (1..MOST).find(|_| {
            tracee.go(libc::PTRACE_SINGLESTEP);
            tracee.registers().rsp > frame
        });
        counts.insert(name.clone(), steps.expect("the function returns"));
    }
    counts
}

struct Tracee(Child);

impl Drop for Tracee {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Tracee {
    fn pid(&self) -> libc::pid_t {
        self.0.id().cast_signed()
    }

    fn base(&self, program: &Path) -> u64 {
        let maps =
            std::fs::read_to_string(format!("/proc/{}/maps", self.pid())).expect("our child");
        let name = program.to_str().expect("a plain path");
        let line = maps.lines().find(|line| line.ends_with(name));
        let start = line.and_then(|line| line.split('-').next());
        let start = start.and_then(|start| u64::from_str_radix(start, 16).ok());
        start.expect("the program is mapped")
    }

    fn wait(&self) {
        let mut status = 0;
        // SAFETY: the status outlives the call.
        let waited = unsafe { libc::waitpid(self.pid(), &raw mut status, 0) };
        assert_eq!(waited, self.pid());
        assert!(
            libc::WIFSTOPPED(status) && libc::WSTOPSIG(status) == libc::SIGTRAP,
            "the program ended or got a signal: {status:#x}"
        );
    }

    fn go(&self, how: libc::c_uint) {
        // SAFETY: the call takes numbers.
        let went = unsafe { libc::ptrace(how, self.pid(), 0, 0) };
        assert_eq!(went, 0, "{}", io::Error::last_os_error());
        self.wait();
    }

    fn peek(&self, at: u64) -> libc::c_long {
        // SAFETY: the call takes numbers.
        unsafe { libc::ptrace(libc::PTRACE_PEEKTEXT, self.pid(), at, 0) }
    }

    fn poke(&self, at: u64, word: libc::c_long) {
        // SAFETY: the call takes numbers.
        let poked = unsafe { libc::ptrace(libc::PTRACE_POKETEXT, self.pid(), at, word) };
        assert_eq!(poked, 0, "{}", io::Error::last_os_error());
    }

    fn registers(&self) -> libc::user_regs_struct {
        // SAFETY: zeros are valid registers, and they outlive the call.
        unsafe {
            let mut registers = std::mem::zeroed();
            let read = libc::ptrace(libc::PTRACE_GETREGS, self.pid(), 0, &raw mut registers);
            assert_eq!(read, 0, "{}", io::Error::last_os_error());
            registers
        }
    }

    fn set_registers(&self, registers: &libc::user_regs_struct) {
        // SAFETY: the registers outlive the call.
        let set = unsafe { libc::ptrace(libc::PTRACE_SETREGS, self.pid(), 0, registers) };
        assert_eq!(set, 0, "{}", io::Error::last_os_error());
    }
}
