//! System calls without libc, for code inside a traced program (x86-64). No function touches `errno`, thread-local
//! storage or the heap, so calls are safe in a signal handler, and on threads that libc does not know.

use core::arch::asm;

/// A positive error number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

/// No such process or thread.
pub const ESRCH: Errno = Errno(3);
/// Interrupted by a signal.
pub const EINTR: Errno = Errno(4);

/// System call numbers.
pub mod nr {
    #![expect(missing_docs, reason = "the kernel's own names")]
    pub const READ: usize = 0;
    pub const WRITE: usize = 1;
    pub const CLOSE: usize = 3;
    pub const FSTAT: usize = 5;
    pub const LSEEK: usize = 8;
    pub const MMAP: usize = 9;
    pub const MPROTECT: usize = 10;
    pub const MUNMAP: usize = 11;
    pub const RT_SIGACTION: usize = 13;
    pub const RT_SIGPROCMASK: usize = 14;
    pub const IOCTL: usize = 16;
    pub const PREAD64: usize = 17;
    pub const PWRITE64: usize = 18;
    pub const MREMAP: usize = 25;
    pub const MADVISE: usize = 28;
    pub const GETPID: usize = 39;
    pub const CLONE: usize = 56;
    pub const FORK: usize = 57;
    pub const VFORK: usize = 58;
    pub const EXECVE: usize = 59;
    pub const FCNTL: usize = 72;
    pub const GETRLIMIT: usize = 97;
    pub const PTRACE: usize = 101;
    pub const GETUID: usize = 102;
    pub const GETGID: usize = 104;
    pub const SETGROUPS: usize = 116;
    pub const SETRESUID: usize = 117;
    pub const SETRESGID: usize = 119;
    pub const CAPSET: usize = 126;
    pub const RT_SIGPENDING: usize = 127;
    pub const RT_SIGTIMEDWAIT: usize = 128;
    pub const RT_SIGQUEUEINFO: usize = 129;
    pub const RT_SIGSUSPEND: usize = 130;
    pub const MLOCK: usize = 149;
    pub const MUNLOCK: usize = 150;
    pub const MLOCKALL: usize = 151;
    pub const MUNLOCKALL: usize = 152;
    pub const PRCTL: usize = 157;
    pub const ARCH_PRCTL: usize = 158;
    pub const GETTID: usize = 186;
    pub const FUTEX: usize = 202;
    pub const CLOCK_GETTIME: usize = 228;
    pub const TGKILL: usize = 234;
    pub const OPENAT: usize = 257;
    pub const NEWFSTATAT: usize = 262;
    pub const PSELECT6: usize = 270;
    pub const PPOLL: usize = 271;
    pub const UNSHARE: usize = 272;
    pub const GET_ROBUST_LIST: usize = 274;
    pub const EPOLL_PWAIT: usize = 281;
    pub const SIGNALFD: usize = 282;
    pub const SIGNALFD4: usize = 289;
    pub const DUP3: usize = 292;
    pub const PIPE2: usize = 293;
    pub const RT_TGSIGQUEUEINFO: usize = 297;
    pub const KEYCTL: usize = 250;
    pub const PERF_EVENT_OPEN: usize = 298;
    pub const SETNS: usize = 308;
    pub const PROCESS_VM_READV: usize = 310;
    pub const PROCESS_VM_WRITEV: usize = 311;
    pub const GETPRIORITY: usize = 140;
    pub const SCHED_SETATTR: usize = 314;
    pub const SECCOMP: usize = 317;
    pub const GETRANDOM: usize = 318;
    pub const EXECVEAT: usize = 322;
    pub const MEMBARRIER: usize = 324;
    pub const MLOCK2: usize = 325;
    pub const CLONE3: usize = 435;
    pub const LANDLOCK_CREATE_RULESET: usize = 444;
    pub const LANDLOCK_ADD_RULE: usize = 445;
    pub const LANDLOCK_RESTRICT_SELF: usize = 446;
    pub const PKEY_MPROTECT: usize = 329;
    pub const CLOSE_RANGE: usize = 436;
    pub const EPOLL_PWAIT2: usize = 441;
}

/// Makes a system call; returns the kernel's raw result.
///
/// # Safety
/// The call's effects on memory and the process must be sound.
#[expect(clippy::too_many_arguments, reason = "the kernel's own form")]
#[inline(always)]
pub unsafe fn syscall6(
    number: usize,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> isize {
    let result: isize;
    // SAFETY: the clobbers are those of the system call convention. The caller guarantees the effects.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// Converts the kernel's raw result.
#[inline(always)]
pub fn check(word: isize) -> Result<usize, Errno> {
    if (-4095..0).contains(&word) {
        Err(Errno(-word as i32))
    } else {
        Ok(word as usize)
    }
}

/// Makes a system call.
///
/// # Safety
/// As [`syscall6`].
#[inline(always)]
pub unsafe fn call(number: usize, args: [usize; 6]) -> Result<usize, Errno> {
    let [a, b, c, d, e, f] = args;
    // SAFETY: the caller guarantees the effects.
    check(unsafe { syscall6(number, a, b, c, d, e, f) })
}

/// Returns this process's id.
#[inline]
pub fn getpid() -> u32 {
    // SAFETY: no arguments, no effects.
    unsafe { syscall6(nr::GETPID, 0, 0, 0, 0, 0, 0) as u32 }
}

/// Returns this thread's id in its pid namespace.
#[inline]
pub fn gettid() -> u32 {
    // SAFETY: no arguments, no effects.
    unsafe { syscall6(nr::GETTID, 0, 0, 0, 0, 0, 0) as u32 }
}

/// Returns whether a thread is alive.
pub fn thread_alive(pid: u32, tid: u32) -> bool {
    // SAFETY: signal 0 delivers nothing.
    let sent = unsafe { call(nr::TGKILL, [pid as usize, tid as usize, 0, 0, 0, 0]) };
    sent != Err(ESRCH)
}

/// Closes a descriptor.
pub fn close(fd: i32) {
    // SAFETY: callers close only descriptors that they opened.
    unsafe { syscall6(nr::CLOSE, fd as usize, 0, 0, 0, 0, 0) };
}

/// Sleeps for about `ns` nanoseconds (under a second). Uses ppoll, because tiptoe may have stopped the calling thread
/// inside a nanosleep. A second nanosleep would overwrite the state by which the kernel restarts the first.
pub fn sleep_ns(ns: u64) {
    let time = [0u64, ns];
    // SAFETY: `time` is a timespec that outlives the call.
    unsafe { syscall6(nr::PPOLL, 0, 0, time.as_ptr() as usize, 0, 8, 0) };
}

/// Returns CLOCK_MONOTONIC.
pub fn monotonic_ns() -> u64 {
    const MONOTONIC: usize = 1;
    clock_ns(MONOTONIC)
}

/// Returns the thread's CPU time.
pub fn thread_cpu_ns() -> u64 {
    const THREAD_CPU_TIME: usize = 3;
    clock_ns(THREAD_CPU_TIME)
}

fn clock_ns(clock: usize) -> u64 {
    let mut time = [0u64; 2];
    let into = time.as_mut_ptr() as usize;
    // SAFETY: the kernel writes a timespec, which fits `time`.
    unsafe { syscall6(nr::CLOCK_GETTIME, clock, into, 0, 0, 0, 0) };
    let [seconds, part] = time;
    seconds * 1_000_000_000 + part
}

/// A flag of [`open`]: exec, which any thread may call, closes the descriptor.
pub const O_CLOEXEC: i32 = 0o2_000_000;

/// Opens a path.
pub fn open(path: &core::ffi::CStr, flags: i32) -> Result<i32, Errno> {
    const AT_FDCWD: usize = -100isize as usize;
    let args = [AT_FDCWD, path.as_ptr() as usize, flags as usize, 0, 0, 0];
    // SAFETY: the path ends with a NUL, and openat reads nothing else.
    unsafe { call(nr::OPENAT, args) }.map(|fd| fd as i32)
}

/// Futex operations on a shared 32-bit word.
pub mod futex {
    use super::{Errno, call, nr};
    use core::sync::atomic::{AtomicU32, AtomicU64};

    const WAIT: usize = 0;
    const WAKE: usize = 1;

    /// Waits while `word` is `expected`, at most `timeout_ns` (under a second).
    pub fn wait(word: &AtomicU32, expected: u32, timeout_ns: Option<u64>) -> Result<(), Errno> {
        wait_at(word.as_ptr() as usize, expected, timeout_ns)
    }

    /// Waits as [`wait`] does, while the low half of `word` is `expected`.
    pub fn wait_low(word: &AtomicU64, expected: u32, timeout_ns: Option<u64>) -> Result<(), Errno> {
        // x86-64 is little-endian: the low half comes first.
        wait_at(word.as_ptr() as usize, expected, timeout_ns)
    }

    /// Wakes at most `count` waiters of the low half of `word`.
    pub fn wake_low(word: &AtomicU64, count: u32) {
        wake_at(word.as_ptr() as usize, count);
    }

    /// Wakes at most `count` waiters.
    pub fn wake(word: &AtomicU32, count: u32) {
        wake_at(word.as_ptr() as usize, count);
    }

    fn wait_at(address: usize, expected: u32, timeout_ns: Option<u64>) -> Result<(), Errno> {
        let time = [0u64, timeout_ns.unwrap_or(0)];
        let limit = timeout_ns.map_or(0, |_| time.as_ptr() as usize);
        let args = [address, WAIT, expected as usize, limit, 0, 0];
        // SAFETY: the timespec outlives the call; the kernel only compares the word.
        unsafe { call(nr::FUTEX, args) }.map(|_| ())
    }

    fn wake_at(address: usize, count: u32) {
        let args = [address, WAKE, count as usize, 0, 0, 0];
        // SAFETY: a wake accesses no memory of ours.
        let _ = unsafe { call(nr::FUTEX, args) };
    }
}

/// membarrier(2), so that all CPUs execute changed code.
pub mod membarrier {
    use super::{Errno, call, nr};

    const PRIVATE_EXPEDITED_SYNC_CORE: usize = 1 << 5;
    const REGISTER_PRIVATE_EXPEDITED_SYNC_CORE: usize = 1 << 6;

    /// Registers this process, as [`sync_core`] requires.
    pub fn register() -> Result<(), Errno> {
        let args = [REGISTER_PRIVATE_EXPEDITED_SYNC_CORE, 0, 0, 0, 0, 0];
        // SAFETY: membarrier accesses no memory.
        unsafe { call(nr::MEMBARRIER, args) }.map(|_| ())
    }

    /// Makes every core that runs this process refetch code.
    pub fn sync_core() -> Result<(), Errno> {
        // SAFETY: membarrier accesses no memory.
        unsafe { call(nr::MEMBARRIER, [PRIVATE_EXPEDITED_SYNC_CORE, 0, 0, 0, 0, 0]) }.map(|_| ())
    }
}
