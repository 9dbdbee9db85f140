//! Talks with the stub (code in the borrowed thread) through words in the target's memory.

use std::mem::offset_of;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::borrow::BorrowedThread;
use super::process::{self, Process};
use super::stub::{MAGIC, Mailbox, PAGE, departure, state};
use crate::error::inject_error::{Delay, InjectError};

const GLANCE: Duration = Duration::from_micros(50);
/// For this time polls do not pause, because the borrowed thread waits for tiptoe.
const STARE: Duration = Duration::from_micros(200);
const BEAT: Duration = Duration::from_millis(20);

pub(super) struct MailboxClient<'a> {
    pub(super) process: &'a Process,
    home: u64,
    tid: u32,
    deadline: Instant,
}

impl<'a> MailboxClient<'a> {
    pub(super) fn new(process: &'a Process, borrowed: &BorrowedThread, deadline: Instant) -> Self {
        Self {
            process,
            home: borrowed.home,
            tid: borrowed.tid,
            deadline,
        }
    }

    /// Waits until the stub is on its own pages (home), and records the thread's id there.
    pub(super) fn arrival(&self) -> Result<(), InjectError> {
        let mut magic = [0; MAGIC.len()];
        let since = Instant::now();
        while self.process.read(self.home, &mut magic).is_err() || magic != MAGIC {
            self.glance(since, Delay::Arrival)?;
        }
        self.wait(state::ARRIVED)?;
        self.put(offset_of!(Mailbox, tid), &u64::from(self.tid).to_le_bytes())
    }

    pub(super) fn wait(&self, wanted: u32) -> Result<(), InjectError> {
        let pid = self.process.pid;
        let since = Instant::now();
        loop {
            match self.u32(offset_of!(Mailbox, state))? {
                state::ABANDONED => {
                    let why = Delay::Tiptoe;
                    return Err(InjectError::Abandoned { pid, why });
                }
                state::REFUSED => return Err(InjectError::Refused { pid }),
                state::FAILED => return Err(self.failure()?),
                now if now >= wanted => return Ok(()),
                _ => self.glance(since, Delay::Deadline)?,
            }
        }
    }

    pub(super) fn departure(&self) -> Result<(), InjectError> {
        let since = Instant::now();
        loop {
            match self.u32(offset_of!(Mailbox, left))? {
                departure::RETURNED => return Ok(()),
                departure::RETURNING if self.is_elsewhere() => return Ok(()),
                _ => self.glance(since, Delay::Departure)?,
            }
        }
    }

    /// Returns whether the thread has ended or has left the stub. In the stub a thread blocks all signals.
    fn is_elsewhere(&self) -> bool {
        const UNBLOCKABLE: u64 = 1 << (libc::SIGKILL - 1) | 1 << (libc::SIGSTOP - 1);
        let status = process::status(self.process.pid, self.tid);
        status.map_or(true, |status| status.sig_blk.0 != !UNBLOCKABLE)
    }

    pub(super) fn go(&self, step: u32) -> Result<(), InjectError> {
        self.put(offset_of!(Mailbox, go), &step.to_le_bytes())
    }

    pub(super) fn abandon(&self) {
        // The write fails only if the process has ended.
        let _ = self.put(offset_of!(Mailbox, abandon), &1u32.to_le_bytes());
    }

    /// Writes a heartbeat until `stop` is signalled. Before the stub's arrival the writes fail harmlessly.
    pub(super) fn beat(&self, stop: &Receiver<()>) {
        let mut beat = 0u32;
        while stop.recv_timeout(BEAT) == Err(RecvTimeoutError::Timeout) {
            beat = beat.wrapping_add(1);
            let _ = self.put(offset_of!(Mailbox, heartbeat), &beat.to_le_bytes());
        }
    }

    pub(super) fn put(&self, field: usize, bytes: &[u8]) -> Result<(), InjectError> {
        self.unless_died(self.process.write(self.at(field), bytes))
    }

    pub(super) fn u32(&self, field: usize) -> Result<u32, InjectError> {
        self.unless_died(self.process.read_u32(self.at(field)))
    }

    pub(super) fn u64(&self, field: usize) -> Result<u64, InjectError> {
        self.unless_died(self.process.read_u64(self.at(field)))
    }

    fn unless_died<T>(&self, result: std::io::Result<T>) -> Result<T, InjectError> {
        result.map_err(|_| self.died())
    }

    fn at(&self, field: usize) -> u64 {
        self.home + PAGE + field as u64
    }

    fn died(&self) -> InjectError {
        InjectError::Died {
            pid: self.process.pid,
        }
    }

    fn failure(&self) -> Result<InjectError, InjectError> {
        let fds = offset_of!(Mailbox, fds);
        let errno = (0..4).map(|fd| self.u32(fds + 4 * fd).map(|value| value as i32));
        let errno = errno
            .collect::<Result<Vec<_>, _>>()?
            .into_iter()
            .find(|fd| *fd < -1);
        let error = std::io::Error::from_raw_os_error(-errno.unwrap_or(-libc::EPERM));
        Ok(InjectError::InTarget {
            pid: self.process.pid,
            error,
        })
    }

    /// Waits before the next poll. Fails at the deadline, or if the process has ended.
    fn glance(&self, since: Instant, why: Delay) -> Result<(), InjectError> {
        let pid = self.process.pid;
        if since.elapsed() < STARE {
            return Ok(());
        }
        if Instant::now() > self.deadline {
            return Err(InjectError::Abandoned { pid, why });
        }
        if !self.process.lives() {
            return Err(self.died());
        }
        std::thread::sleep(GLANCE);
        Ok(())
    }
}
