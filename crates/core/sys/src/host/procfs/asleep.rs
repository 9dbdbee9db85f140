//! How long a thread has slept, and at which instruction: `/proc/PID/task/TID/sched` and `syscall`.
//!
//! The scheduler records when it last charged CPU time to a thread, by the clock of that thread's CPU. The CPUs' clocks
//! drift from each other, so the recorded time must be compared with the clock of the same CPU.

use std::prelude::rust_2024::*;

use std::fs;
use std::time::Duration;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity, sched_yield};

use super::stat::field_of;
use super::{Error, Process, Result};

const PROCESSOR: usize = 39;
/// The sched file's time of the last charge, in milliseconds.
const CHARGED: &str = "se.exec_start";

impl Process {
    /// Returns a thread's stack pointer, unless the thread runs.
    pub fn thread_stack_pointer(self, tid: u32) -> Result<Option<u64>> {
        Ok(self.thread_pointers(tid)?.map(|[stack, _]| stack))
    }

    /// Returns a thread's instruction pointer, unless the thread runs.
    pub fn thread_instruction_pointer(self, tid: u32) -> Result<Option<u64>> {
        Ok(self
            .thread_pointers(tid)?
            .map(|[_, instruction]| instruction))
    }

    fn thread_pointers(self, tid: u32) -> Result<Option<[u64; 2]>> {
        let text = self.read(&format!("task/{tid}/syscall"))?;
        Ok(str::from_utf8(&text).ok().and_then(pointers))
    }

    /// Returns how long ago a thread ran, if known. The calling thread moves to that thread's CPU for a moment.
    pub fn thread_asleep(self, tid: u32) -> Result<Option<Duration>> {
        let stat = self.read(&format!("task/{tid}/stat"))?;
        let cpu = field_of(&stat, PROCESSOR).ok_or_else(|| Error::malformed("a stat file"))?;
        let Ok(sched) = self.read(&format!("task/{tid}/sched")) else {
            return Ok(None);
        };
        let then = charged(&sched);
        let now = clock_of(cpu as usize);
        Ok(then.zip(now).map(|(then, now)| now.saturating_sub(then)))
    }
}

fn clock_of(cpu: usize) -> Option<Duration> {
    let allowed = sched_getaffinity(None).ok()?;
    if cpu >= CpuSet::MAX_CPU || !allowed.is_set(cpu) {
        return None;
    }
    let mut there = CpuSet::new();
    there.set(cpu);
    sched_setaffinity(None, &there).ok()?;
    sched_yield(); // makes the scheduler charge the caller now
    let own = fs::read("/proc/thread-self/sched");
    // The result is valid even without the move back.
    let _ = sched_setaffinity(None, &allowed);
    charged(&own.ok()?)
}

/// The stack and instruction pointers are the last words of a `syscall` file.
fn pointers(syscall: &str) -> Option<[u64; 2]> {
    let mut words = syscall.split_whitespace().rev().map(number);
    let (instruction, stack) = (words.next()??, words.next()??);
    Some([stack, instruction])
}

fn number(word: &str) -> Option<u64> {
    u64::from_str_radix(word.strip_prefix("0x")?, 16).ok()
}

fn charged(sched: &[u8]) -> Option<Duration> {
    // The thread's name may contain any bytes.
    let text = String::from_utf8_lossy(sched);
    let mut lines = text.lines();
    let (_, value) = lines
        .find(|line| line.starts_with(CHARGED))?
        .split_once(':')?;
    let milliseconds: f64 = value.trim().parse().ok()?;
    Duration::try_from_secs_f64(milliseconds / 1e3).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pointers_are_the_last_words() {
        let asleep = "202 0x5580 0x80 0x2 0x0 0x0 0x0 0x7ffd10 0x7f0012\n";
        assert_eq!(pointers(asleep), Some([0x7f_fd10, 0x7f_0012]));
        assert_eq!(pointers("-1 0x7ffd 0x7f\n"), Some([0x7ffd, 0x7f]));
        assert_eq!(pointers("running\n"), None);
    }

    #[test]
    fn a_thread_that_sleeps_has_slept_ever_longer() {
        let text =
            b"x (1, #threads: 2)\n---\nse.exec_start     :      70649384.219859\nse.vruntime : 7\n";
        assert_eq!(
            charged(text),
            Some(Duration::from_nanos(70_649_384_219_859))
        );
        assert_eq!(charged(b"se.exec_start : much"), None);
        let (sender, receiver) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let sleeper = std::thread::spawn(move || {
            sender
                .send(rustix::thread::gettid())
                .expect("the test receives");
            let _ = ended.recv();
        });
        let tid = receiver.recv().expect("a number").as_raw_nonzero().get() as u32;
        let asleep = || Process::current().thread_asleep(tid).expect("it is there");
        std::thread::sleep(Duration::from_millis(20));
        let first = asleep();
        std::thread::sleep(Duration::from_millis(20));
        assert!(first < asleep() || first.is_none());
        drop(end);
        sleeper.join().expect("it ended");
    }
}
