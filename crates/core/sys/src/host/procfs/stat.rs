//! Times, from `/proc/PID/stat` and the CPU clocks.

use std::prelude::rust_2024::*;

use std::io;
use std::time::Duration;

use super::Process;
use crate::host::error::{Error, Result};

/// Fields, counted from 1 as in proc(5).
const FLAGS: usize = 9;
const CHILDREN_USER: usize = 16;
const CHILDREN_SYSTEM: usize = 17;
const START_TIME: usize = 22;
const EXIT_CODE: usize = 52;

/// The kind of clock: the low three bits of its number. Above them is the inverted process id.
const CPUCLOCK_SCHED: i32 = 2;

/// Process ids are below this, whatever `kernel.pid_max` is.
const PID_MAX_LIMIT: u32 = 1 << 22;

impl Process {
    /// Returns the CPU time of all threads, ended ones included.
    pub fn cpu_time(self) -> Result<Duration> {
        let gone = || Error::NoSuchProcess { pid: self.pid };
        if self.pid >= PID_MAX_LIMIT {
            return Err(gone());
        }
        let clock = (!self.pid << 3).cast_signed() | CPUCLOCK_SCHED;
        let mut now = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: the call fills `now`, or refuses the clock.
        if unsafe { libc::clock_gettime(clock, &raw mut now) } != 0 {
            let error = io::Error::last_os_error();
            return Err(match error.raw_os_error() {
                Some(libc::EINVAL) => gone(),
                _ => Error::of_process(self.pid, "read the CPU clock", error),
            });
        }
        Ok(Duration::new(now.tv_sec as u64, now.tv_nsec as u32))
    }

    /// Returns how long after boot a thread started. Id and start time together identify a thread.
    pub fn thread_start_time(self, tid: u32) -> Result<Duration> {
        Ok(of_ticks(
            self.field_in(&format!("task/{tid}/stat"), START_TIME)?,
        ))
    }

    /// Returns the CPU time of the process's ended children and of their ended children.
    pub fn children_cpu_time(self) -> Result<Duration> {
        let ticks = self.stat_field(CHILDREN_USER)? + self.stat_field(CHILDREN_SYSTEM)?;
        Ok(of_ticks(ticks))
    }

    /// Returns the exit status of a zombie, as waitpid(2) does.
    pub fn exit_status(self) -> Result<i32> {
        Ok(self.stat_field(EXIT_CODE)? as i32)
    }

    /// Returns whether the process is a kernel thread.
    pub fn is_kernel_thread(self) -> Result<bool> {
        const PF_KTHREAD: u64 = 0x0020_0000;
        Ok(self.stat_field(FLAGS)? & PF_KTHREAD != 0)
    }

    fn stat_field(self, field: usize) -> Result<u64> {
        self.field_in("stat", field)
    }

    fn field_in(self, file: &str, field: usize) -> Result<u64> {
        let bytes = self.read(file)?;
        field_of(&bytes, field)
            .ok_or_else(|| Error::malformed(format!("field {field} of a stat file")))
    }
}

/// Counts from the last parenthesis, because the name, field 2, may contain parentheses.
pub(super) fn field_of(stat: &[u8], field: usize) -> Option<u64> {
    let start = stat.iter().rposition(|b| *b == b')')? + 1;
    let text = std::str::from_utf8(stat.get(start..)?).ok()?;
    text.split_whitespace().nth(field - 3)?.parse().ok()
}

fn of_ticks(ticks: u64) -> Duration {
    // rustix would panic if /proc/self/auxv is unreadable, as it is for a program with file capabilities.
    // SAFETY: sysconf only reads a constant.
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as u64;
    Duration::from_nanos(ticks.saturating_mul(1_000_000_000 / per_second))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_counted_after_the_name() {
        let stat = b"7 (a) b) (c) S 1 2 3";
        assert_eq!(field_of(stat, 4), Some(1));
        assert_eq!(field_of(stat, 6), Some(3));
        assert_eq!(field_of(stat, 7), None);
        assert_eq!(field_of(b"7 no name", 4), None);
    }

    #[test]
    fn own_times() {
        let me = Process::current();
        assert!(!me.is_kernel_thread().unwrap());
        assert!(me.thread_start_time(me.pid()).unwrap() > Duration::ZERO);
        assert!(me.thread_start_time(u32::MAX).is_err());
        assert!(me.cpu_time().unwrap() > Duration::ZERO);
    }
}
