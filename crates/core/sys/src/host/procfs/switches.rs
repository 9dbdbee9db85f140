use std::prelude::rust_2024::*;

use super::Process;
use crate::host::error::{Error, Result, read_text};

impl Process {
    /// Returns a thread's context switches; fails if the thread has ended.
    pub fn thread_switches(self, tid: u32) -> Result<u64> {
        let status = self.read(&format!("task/{tid}/status"))?;
        Ok(in_status(&String::from_utf8_lossy(&status)))
    }

    /// Returns the context switches of all living threads.
    pub fn switches(self) -> Result<u64> {
        let of_thread = |tid| self.thread_switches(tid).unwrap_or(0);
        Ok(self.threads()?.into_iter().map(of_thread).sum())
    }
}

/// Returns all CPUs' context switches since boot.
pub fn switches_of_all() -> Result<u64> {
    in_stat("ctxt ")
}

/// Returns how many processes and threads were created since boot.
pub fn births_of_all() -> Result<u64> {
    in_stat("processes ")
}

fn in_stat(key: &str) -> Result<u64> {
    let text = read_text("/proc/stat")?;
    let line = text.lines().find_map(|line| line.strip_prefix(key));
    let number = line.and_then(|number| number.trim().parse().ok());
    number.ok_or_else(|| Error::malformed("/proc/stat"))
}

/// Returns the number of threads of all processes.
pub fn tasks_of_all() -> Result<u64> {
    let text = read_text("/proc/loadavg")?;
    let running_and_all = text.split(' ').nth(3);
    let all = running_and_all.and_then(|both| both.split_once('/')?.1.parse().ok());
    all.ok_or_else(|| Error::malformed("/proc/loadavg"))
}

fn in_status(text: &str) -> u64 {
    let lines = text.lines().filter_map(|line| line.split_once(":\t"));
    lines
        .filter(|(key, _)| key.ends_with("voluntary_ctxt_switches"))
        .filter_map(|(_, number)| number.trim().parse::<u64>().ok())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_count() {
        let text = "Name:\tx\nvoluntary_ctxt_switches:\t12\nnonvoluntary_ctxt_switches:\t3\n";
        assert_eq!(in_status(text), 15);
        assert_eq!(in_status(""), 0);
    }

    #[test]
    fn sleeping_is_a_switch() {
        // A child is measured, because this process loses the switches of other tests' ended threads.
        const WHILE_CHILD: &str = "while read -r pid comm state parent rest < /proc/$$/stat && [ $parent = $PPID ] && \
                                   sleep 0.001; do :; done";
        let child = std::process::Command::new("sh")
            .args(["-c", WHILE_CHILD])
            .spawn()
            .map(KilledOnDrop)
            .unwrap();
        let process = Process::new(child.0.id()).unwrap();
        let before = process.switches().unwrap();
        while process.switches().unwrap() <= before {
            std::thread::yield_now();
        }
    }

    struct KilledOnDrop(std::process::Child);

    impl Drop for KilledOnDrop {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn all_cpus_switch() {
        let before = switches_of_all().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(1));
        assert!(switches_of_all().unwrap() > before);
        assert!(tasks_of_all().unwrap() > 0);
    }
}
