use std::prelude::rust_2024::*;

use crate::host::error::{Error, Result};

/// A set of signals; bit `n - 1` is signal `n`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SignalSet(pub u64);

impl SignalSet {
    /// Returns whether the set contains a signal.
    pub fn contains(self, signal: i32) -> bool {
        (1..=64).contains(&signal) && self.0 >> (signal - 1) & 1 == 1
    }
}

/// What the kernel reports about a process or thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// `R` running, `S` sleeping, `D` uninterruptible, `T` stopped, `t` traced, `Z` zombie, `X` dead.
    pub state: char,
    /// The thread's process.
    pub tgid: u32,
    /// The tracer, or 0.
    pub tracer_pid: u32,
    /// The id in each pid namespace, ours first.
    pub ns_pids: Vec<u32>,
    /// Real, effective, saved and file system user.
    pub uids: [u32; 4],
    /// Number of threads.
    pub threads: u32,
    /// The seccomp mode: 0 off, 1 strict, 2 filters.
    pub seccomp: u32,
    /// The number of seccomp filters (Linux 5.9).
    pub seccomp_filters: u32,
    /// Whether exec gives no new rights.
    pub no_new_privs: bool,
    /// Effective capabilities, bit by number.
    pub cap_eff: u64,
    /// Blocked signals.
    pub sig_blk: SignalSet,
    /// Ignored signals.
    pub sig_ign: SignalSet,
    /// Signals with a handler.
    pub sig_cgt: SignalSet,
    /// Whether the thread still has its memory.
    pub has_memory: bool,
}

impl Status {
    /// Fields that this kernel lacks stay 0.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self> {
        let text = String::from_utf8_lossy(bytes);
        let mut status = Self::default();
        for (key, value) in text.lines().filter_map(|line| line.split_once(":\t")) {
            status
                .set(key, value.trim())
                .ok_or_else(|| Error::malformed(format!("`{key}: {value}` in a status file")))?;
        }
        if status.tgid == 0 {
            return Err(Error::malformed("a status file without Tgid"));
        }
        Ok(status)
    }

    fn set(&mut self, key: &str, value: &str) -> Option<()> {
        match key {
            "State" => self.state = value.chars().next()?,
            "Tgid" => self.tgid = value.parse().ok()?,
            "TracerPid" => self.tracer_pid = value.parse().ok()?,
            "NSpid" => self.ns_pids = words(value)?,
            "Uid" => self.uids = words(value)?.try_into().ok()?,
            "Threads" => self.threads = value.parse().ok()?,
            "Seccomp" => self.seccomp = value.parse().ok()?,
            "Seccomp_filters" => self.seccomp_filters = value.parse().ok()?,
            "NoNewPrivs" => self.no_new_privs = value == "1",
            "CapEff" => self.cap_eff = mask(value)?,
            "SigBlk" => self.sig_blk = SignalSet(mask(value)?),
            "SigIgn" => self.sig_ign = SignalSet(mask(value)?),
            "SigCgt" => self.sig_cgt = SignalSet(mask(value)?),
            "VmSize" => self.has_memory = true,
            _ => {}
        }
        Some(())
    }

    /// Returns whether the thread has ended.
    pub fn has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }

    /// Returns the id in the innermost pid namespace.
    pub fn own_pid(&self) -> Option<u32> {
        self.ns_pids.last().copied()
    }
}

fn words(value: &str) -> Option<Vec<u32>> {
    value.split_whitespace().map(|w| w.parse().ok()).collect()
}

fn mask(value: &str) -> Option<u64> {
    u64::from_str_radix(value, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "Name:\tred\nState:\tS (sleeping)\nTgid:\t42\nTracerPid:\t0\n\
        Uid:\t1\t2\t3\t4\nNSpid:\t42\t7\nThreads:\t5\n\
        SigBlk:\t0000000000000010\nSigCgt:\t00000000000004c8\nCapEff:\t000001ffffffffff\nSeccomp:\t2\n";

    #[test]
    fn fields() {
        let s = Status::parse(TEXT.as_bytes()).unwrap();
        assert_eq!((s.state, s.tgid, s.threads, s.seccomp), ('S', 42, 5, 2));
        assert_eq!((s.uids, s.own_pid()), ([1, 2, 3, 4], Some(7)));
        assert!(s.sig_blk.contains(5) && !s.sig_blk.contains(4));
        assert!(s.sig_cgt.contains(11) && !s.sig_cgt.contains(0) && !s.sig_cgt.contains(65));
        assert_eq!(s.cap_eff, 0x1ff_ffff_ffff);
    }

    #[test]
    fn nonsense_is_refused() {
        assert!(Status::parse(b"").is_err());
        assert!(Status::parse(b"Tgid:\t42\nCapEff:\tg\n").is_err());
    }
}
