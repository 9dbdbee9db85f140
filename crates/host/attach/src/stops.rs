//! Reads why a ptraced thread has stopped, and continues it.
//!
//! A signal stops a traced thread, and reaches the thread only if the tracer passes the signal on. Reading a stop
//! must not consume the stop, because the signal would be lost if the tracer then dies. Signals are numbers, because
//! nix has no names for real-time signals, by which glibc cancels threads.

use std::mem::MaybeUninit;

use nix::errno::Errno;
use nix::sys::ptrace;
use nix::unistd::Pid;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    None,
    /// An event, such as `PTRACE_EVENT_STOP`.
    Event(i32),
    /// The thread is about to get this signal.
    Signal(i32),
    Ended,
}

/// With PTRACE_O_TRACESYSGOOD, what a thread at the beginning or end of a system call is stopped by. If the tracer dies,
/// the thread gets no signal, because there is none with this number.
pub(crate) const SYSCALL: i32 = libc::SIGTRAP | 0x80;

/// Returns the state of a thread that the calling thread traces; waits for a stop if `may_wait`. Fails with `ECHILD` if
/// the thread is not traced, or was reaped.
pub fn look(tid: u32, may_wait: bool) -> Result<Stop, Errno> {
    let way = if may_wait { 0 } else { libc::WNOHANG };
    let stop = peek(tid, way)?;
    if stop == Stop::Ended {
        // A thread that ended must be reaped; otherwise its process still lists it.
        wait(tid, libc::WEXITED | libc::WNOHANG)?;
    }
    Ok(stop)
}

/// Reads a thread's state without consuming it: a child's end is left for the parent's `wait`. Waits for a stop if
/// `way` is 0. Fails as [`look`].
pub(crate) fn peek(tid: u32, way: i32) -> Result<Stop, Errno> {
    let seen = wait(tid, libc::WEXITED | libc::WSTOPPED | libc::WNOWAIT | way)?;
    Ok(stop_of(&seen))
}

fn stop_of(seen: &libc::siginfo_t) -> Stop {
    // SAFETY: both fields are set for a child's end or stop; otherwise they are zero.
    let (pid, status) = unsafe { (seen.si_pid(), seen.si_status()) };
    match (pid, seen.si_code) {
        (0, _) => Stop::None,
        (_, libc::CLD_EXITED | libc::CLD_KILLED | libc::CLD_DUMPED) => Stop::Ended,
        _ => match status >> 8 {
            0 => Stop::Signal(status),
            event => Stop::Event(event),
        },
    }
}

/// Reads the state of any thread that the calling thread traces. Otherwise as [`peek`]; the result is meaningless if the
/// state is [`Stop::None`].
pub(crate) fn peek_any(way: i32) -> Result<(u32, Stop), Errno> {
    let way = libc::WEXITED | libc::WSTOPPED | libc::WNOWAIT | libc::__WNOTHREAD | way;
    let seen = wait_for(libc::P_ALL, 0, way)?;
    // SAFETY: the field is set for a child's end or stop; otherwise it is zero.
    let tid = unsafe { seen.si_pid() };
    Ok((tid.cast_unsigned(), stop_of(&seen)))
}

/// Returns whether a thread in [`Stop::Event`] was stopped by a signal such as SIGSTOP, with its process.
pub(crate) fn is_of_group(tid: u32) -> bool {
    let found = ptrace::getsiginfo(Pid::from_raw(tid.cast_signed()));
    found.is_ok_and(|found| found.si_signo != libc::SIGTRAP)
}

/// Leaves a thread stopped with its process until SIGCONT.
pub(crate) fn listen(tid: u32) -> Result<(), Errno> {
    resume(libc::PTRACE_LISTEN, tid, 0)
}

/// Consumes an exec stop. Since Linux 5.13 no request works on a thread that got its process's id by exec before that.
/// Nothing is lost if the tracer then dies, because the stop is by no signal.
pub(crate) fn take_exec(tid: u32) -> Result<(), Errno> {
    wait(tid, libc::WSTOPPED | libc::WNOHANG).map(drop)
}

fn wait(tid: u32, way: i32) -> Result<libc::siginfo_t, Errno> {
    wait_for(libc::P_PID, tid, way)
}

fn wait_for(kind: libc::idtype_t, id: u32, way: i32) -> Result<libc::siginfo_t, Errno> {
    let mut found = MaybeUninit::<libc::siginfo_t>::zeroed();
    let way = way | libc::__WALL;
    // SAFETY: the kernel fills at most the one structure, which outlives the call.
    Errno::result(unsafe { libc::waitid(kind, id, found.as_mut_ptr(), way) })?;
    // SAFETY: zeroes are valid, and so is what the kernel wrote.
    Ok(unsafe { found.assume_init() })
}

/// Continues a stopped thread with this signal, or with none if 0. Fails with `ESRCH` if the thread is not stopped, or
/// was killed.
pub fn go_on(tid: u32, signal: i32) -> Result<(), Errno> {
    resume(libc::PTRACE_CONT, tid, signal)
}

/// Continues a stopped thread up to the beginning or end of a system call, where it stops as for the signal
/// [`SYSCALL`]. Fails as [`go_on`].
pub(crate) fn to_syscall(tid: u32, signal: i32) -> Result<(), Errno> {
    resume(libc::PTRACE_SYSCALL, tid, signal)
}

fn resume(request: libc::c_uint, tid: u32, signal: i32) -> Result<(), Errno> {
    let signal = signal as libc::c_long;
    // SAFETY: reads and writes no memory of ours.
    let done = unsafe { libc::ptrace(request, tid as libc::pid_t, 0usize, signal) };
    Errno::result(done).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt as _;

    fn ends_by(signal: i32, tracer: impl FnOnce(u32) + Send) {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn();
        let child = child.as_mut().expect("sleep");
        let pid = child.id();
        std::thread::scope(|scope| {
            let traced = scope.spawn(move || {
                let of = Pid::from_raw(pid as i32);
                ptrace::seize(of, ptrace::Options::empty()).expect("it is ours");
                // SAFETY: signals a child that is not yet waited for.
                assert_eq!(unsafe { libc::kill(pid as i32, signal) }, 0);
                tracer(pid);
            });
            traced.join().expect("it ends");
        });
        // `join` returns before the kernel has ended the thread's tracing. Until then `Child::wait` would consume
        // the stop, so the loop peeks.
        while peek(pid, 0) != Ok(Stop::Ended) {
            std::thread::yield_now();
        }
        let status = child.wait().expect("its end");
        assert_eq!(status.signal(), Some(signal));
    }

    #[test]
    fn a_signal_outlives_the_tracer_that_saw_it() {
        for signal in [libc::SIGUSR1, libc::SIGRTMIN()] {
            ends_by(signal, |pid| {
                assert_eq!(look(pid, true), Ok(Stop::Signal(signal)))
            });
        }
    }

    #[test]
    fn a_thread_continues_with_its_signal() {
        for signal in [libc::SIGUSR1, libc::SIGRTMAX()] {
            ends_by(signal, |pid| {
                assert_eq!(look(pid, true), Ok(Stop::Signal(signal)));
                go_on(pid, signal).expect("it has stopped");
            });
        }
    }
}
