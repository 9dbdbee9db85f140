//! Holds one thread by ptrace while tiptoe inspects it.
//!
//! Only PTRACE_INTERRUPT may stop a thread, because this stop ends without a signal if the tracer dies. Single steps
//! and system call stops would leave a SIGTRAP that kills the target. The thread of tiptoe that seizes must also
//! detach. If that thread ends, the kernel detaches.

use std::io;
use std::time::{Duration, Instant};

use libc::user_regs_struct;
use nix::errno::Errno;
use nix::sys::ptrace;
use nix::unistd::Pid;

use super::poll_backoff::PollBackoff;
use super::{process, restart};
use crate::error::inject_error::UnfitThread;
use crate::stops::{self, Stop};
use tiptoe_price::own;

#[derive(Debug)]
pub(super) enum StopFailure {
    Ended,
    Late,
    Refused(UnfitThread),
    Os(Errno),
}

impl From<Errno> for StopFailure {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::ESRCH | Errno::ECHILD => Self::Ended,
            errno => Self::Os(errno),
        }
    }
}

pub(super) struct Stopping {
    pid: u32,
    tid: Pid,
    since: Instant,
}

impl Stopping {
    /// Waits for the stop. Fails with `Late` after `until`. Fails with `Ended` also if the id now belongs to a thread
    /// of another process, which then continues.
    pub(super) fn wait(self, until: Instant) -> Result<StoppedThread, StopFailure> {
        let tid = self.tid;
        let thread = tid.as_raw() as u32;
        let mut looks = PollBackoff::new();
        loop {
            match stops::look(thread, false)? {
                // waitid reports the end of a process's first thread only when its last thread ends.
                Stop::None if Instant::now() > until => match has_ended(thread) {
                    true => return Err(StopFailure::Ended),
                    false => return Err(StopFailure::Late),
                },
                Stop::None => looks.pause(),
                Stop::Event(_) => {
                    let held = StoppedThread {
                        tid,
                        is_attached: true,
                        since: self.since,
                    };
                    // A stopped thread does not end, so its id cannot be reused.
                    let folder = format!("/proc/{}/task/{tid}", self.pid);
                    let is_ours = std::path::Path::new(&folder).exists();
                    return is_ours.then_some(held).ok_or(StopFailure::Ended);
                }
                Stop::Signal(signal) => stops::go_on(thread, signal)?,
                Stop::Ended => return Err(StopFailure::Ended),
            }
        }
    }
}

/// A stopped thread. Dropping a `StoppedThread` restarts the thread's interrupted system call and detaches.
pub(super) struct StoppedThread {
    tid: Pid,
    is_attached: bool,
    since: Instant,
}

/// Stops a thread for a moment and returns its thread pointer; `None` if it cannot be stopped.
pub fn thread_pointer(pid: u32, tid: u32) -> Option<u64> {
    const PATIENCE: Duration = Duration::from_secs(1);
    let held = StoppedThread::stop(pid, tid, PATIENCE).ok()?;
    Some(held.registers().ok()?.fs_base)
}

fn has_ended(tid: u32) -> bool {
    !process::status(tid, tid).is_ok_and(|status| !status.has_ended())
}

impl StoppedThread {
    /// Seizes and stops a thread. Fails as [`Stopping::wait`].
    pub(super) fn stop(pid: u32, thread: u32, patience: Duration) -> Result<Self, StopFailure> {
        StoppedThread::begin(pid, thread)?.wait(Instant::now() + patience)
    }

    pub(super) fn begin(pid: u32, thread: u32) -> Result<Stopping, StopFailure> {
        let tid = Pid::from_raw(thread as i32);
        ptrace::seize(tid, ptrace::Options::empty()).map_err(|errno| match errno {
            // The kernel also returns EPERM for a thread that has just ended.
            Errno::EPERM if has_ended(thread) => StopFailure::Ended,
            errno => errno.into(),
        })?;
        let since = Instant::now();
        ptrace::interrupt(tid)?;
        Ok(Stopping { pid, tid, since })
    }

    pub(super) fn since(&self) -> Instant {
        self.since
    }

    pub(super) fn registers(&self) -> Result<user_regs_struct, StopFailure> {
        Ok(ptrace::getregs(self.tid)?)
    }

    /// Returns the signal mask that the program set, even inside a call with a temporary mask.
    pub(super) fn signal_mask(&self) -> Result<u64, StopFailure> {
        let mut mask = [0];
        self.transfer(libc::PTRACE_GETSIGMASK, &mut mask)?;
        Ok(mask[0])
    }

    pub(super) fn set_registers(&self, regs: user_regs_struct) -> Result<(), StopFailure> {
        Ok(ptrace::setregs(self.tid, regs)?)
    }

    pub(super) fn set_signal_mask(&self, mask: u64) -> Result<(), StopFailure> {
        self.transfer(libc::PTRACE_SETSIGMASK, &mut [mask])?;
        Ok(())
    }

    fn transfer(&self, request: libc::c_uint, words: &mut [u64]) -> Result<i64, Errno> {
        let (tid, size) = (self.tid.as_raw(), size_of_val(words));
        // SAFETY: the kernel accesses at most `size` bytes of `words`, which outlive the call.
        Errno::result(unsafe { libc::ptrace(request, tid, size, words.as_mut_ptr()) })
    }

    /// Sends the thread to `rip` outside of any system call, with all signals blocked, and detaches. The code there
    /// must restore the thread's registers and mask. One call must set all registers, because tiptoe may die after
    /// any call.
    pub(super) fn send_to(
        mut self,
        mut regs: user_regs_struct,
        rip: u64,
    ) -> Result<(), StopFailure> {
        regs.rip = rip;
        regs.orig_rax = u64::MAX;
        ptrace::setregs(self.tid, regs)?;
        self.is_attached = false;
        // No signal handler may run before the code at `rip` blocks all signals itself.
        let _ = self.set_signal_mask(u64::MAX);
        ptrace::detach(self.tid, None)?;
        Ok(())
    }

    /// Returns whether the thread is inside a restartable sequence. tiptoe must not send such a thread to other code,
    /// because afterwards the thread would finish the sequence without a restart, although it was interrupted.
    pub(super) fn in_rseq(&self, read: impl Fn(u64) -> io::Result<u64>, rip: u64) -> bool {
        let descriptor = self.rseq_area().and_then(|area| read(area + 8).ok());
        let Some(descriptor) = descriptor.filter(|descriptor| *descriptor != 0) else {
            return false;
        };
        match (
            read(descriptor.wrapping_add(8)),
            read(descriptor.wrapping_add(16)),
        ) {
            (Ok(start), Ok(length)) => rip.wrapping_sub(start) < length,
            _ => true,
        }
    }

    fn rseq_area(&self) -> Option<u64> {
        const PTRACE_GET_RSEQ_CONFIGURATION: libc::c_uint = 0x420f;
        let mut configuration = [0; 3];
        let size = self.transfer(PTRACE_GET_RSEQ_CONFIGURATION, &mut configuration);
        size.ok().filter(|size| *size > 0)?;
        Some(configuration[0]).filter(|area| *area != 0)
    }
}

impl Drop for StoppedThread {
    fn drop(&mut self) {
        if !self.is_attached {
            return;
        }
        if let Ok(mut regs) = ptrace::getregs(self.tid)
            && restart::is_after_raw_eintr(&regs)
        {
            restart::heal_raw_eintr(&mut regs);
            let _ = ptrace::setregs(self.tid, regs);
        }
        let _ = ptrace::detach(self.tid, None);
        own::note_stop(self.since.elapsed());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_has_just_ended_is_reported_as_ended() {
        let mut child = std::process::Command::new("true").spawn().expect("true");
        let deadline = Instant::now() + Duration::from_secs(20);
        while !has_ended(child.id()) {
            assert!(Instant::now() < deadline, "`true` does not end");
            std::thread::yield_now();
        }
        let stopped = StoppedThread::stop(child.id(), child.id(), Duration::ZERO).err();
        child.wait().expect("its end");
        assert!(matches!(stopped, Some(StopFailure::Ended)), "{stopped:?}");
    }

    #[test]
    fn a_thread_of_another_process_is_not_held() {
        let mut sleep = std::process::Command::new("sleep");
        let mut child = sleep.arg("1000").spawn().expect("sleep");
        let tid = child.id();
        let hand =
            move || StoppedThread::stop(std::process::id(), tid, Duration::from_secs(60)).err();
        let stopped = std::thread::spawn(hand).join().expect("it ends");
        assert!(matches!(stopped, Some(StopFailure::Ended)), "{stopped:?}");
        let status = process::status(tid, tid).expect("it lives");
        assert!(!status.has_ended() && status.tracer_pid == 0);
        child.kill().expect("it lives");
        child.wait().expect("our child");
    }
}
