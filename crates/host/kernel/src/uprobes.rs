//! Counts with uprobes: the kernel writes a breakpoint where the target maps the file's offset, and each hit increments
//! a counter.
//!
//! | means | needs | counts |
//! |---|---|---|
//! | BPF, `process` module | Linux 6.6, `CAP_BPF` and `CAP_PERFMON` | the process: all threads, also later ones |
//! | perf events, `threads` module | Linux 4.17, `CAP_SYS_ADMIN` | the threads that exist at the opening |
//!
//! Perf events are used only if the kernel lacks BPF links to uprobes or forbids them, or the main thread has exited.
//! Any other failure of BPF is reported, because perf events miss later threads. Perf events must not be inherited.
//! At the target's clone(2) the kernel would read the probe's path again, from the target's memory, and fail with
//! EFAULT (seen on Linux 6.18).

use std::io;
use std::time::{Duration, Instant};

use tiptoe_event::Reading;
use tiptoe_sys::host::Process;
use tiptoe_sys::host::bpf::UprobeCounters;

use crate::Error;
use crate::closing::Closing;
use crate::execs::Execs;
use crate::kernel_probe::{KernelProbe, RefusedProbe, errno};
use crate::process::ProcessProbes;
use crate::threads::ThreadProbes;

/// The counted threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CountedThreads {
    /// All threads, also later ones.
    Process,
    /// Only these threads.
    Threads(Vec<u32>),
}

/// Probes that count until closed or dropped.
#[derive(Debug)]
pub struct UprobeSet {
    owner: ProbeOwner,
    probes: Vec<KernelProbe>,
    refused: Vec<RefusedProbe>,
    opened: Instant,
    rests: Vec<DisarmedTime>,
    process: Option<Process>,
    execs: Option<Execs>,
    closing: Closing,
}

#[derive(Clone, Copy, Debug, Default)]
struct DisarmedTime {
    /// The sum of a probe's disarmed times before it was last armed.
    before: Duration,
    since: Option<Instant>,
}

impl DisarmedTime {
    fn begin(&mut self, now: Instant) {
        self.since.get_or_insert(now);
    }

    fn end(&mut self, now: Instant) {
        if let Some(since) = self.since.take() {
            self.before += now.saturating_duration_since(since);
        }
    }

    fn so_far(self, now: Instant) -> Duration {
        let current = self.since.map(|since| now.saturating_duration_since(since));
        self.before + current.unwrap_or_default()
    }
}

#[derive(Debug)]
enum ProbeOwner {
    Process(ProcessProbes),
    Threads(ThreadProbes),
}

impl UprobeSet {
    /// Counts in a process: in all its threads, or without BPF only in the existing ones. May be called before the
    /// command's exec, because the kernel arms probes when their file is mapped.
    pub fn open(process: Process, probes: &[KernelProbe]) -> Result<Self, Error> {
        let execs = Execs::of(process);
        let mut set = Self::open_best(process, probes)?;
        (set.execs, set.process) = (execs, Some(process));
        Ok(set)
    }

    fn open_best(process: Process, probes: &[KernelProbe]) -> Result<Self, Error> {
        // For BPF, the kernel finds the process's memory through the main thread, which has none after its exit.
        if process.outlived_main_thread() {
            return Self::open_threads(&process.threads()?, probes);
        }
        let counters = match UprobeCounters::new(probes.len()) {
            Ok(counters) => counters,
            Err(error) if is_unsupported(&error) => {
                return Self::open_threads(&process.threads()?, probes);
            }
            Err(error) => return Err(Error::io("load the program that counts uprobes")(error)),
        };
        let (owner, refused) = ProcessProbes::open(counters, process, probes)?;
        match are_unsupported(&refused, probes.len()) {
            true => Self::open_threads(&process.threads()?, probes),
            false => Ok(Self::new(ProbeOwner::Process(owner), probes, refused)),
        }
    }

    /// Counts in these threads only.
    pub fn open_threads(threads: &[u32], probes: &[KernelProbe]) -> Result<Self, Error> {
        let (owner, refused) = ThreadProbes::open(threads, probes)?;
        Ok(Self::new(ProbeOwner::Threads(owner), probes, refused))
    }

    fn new(owner: ProbeOwner, probes: &[KernelProbe], refused: Vec<RefusedProbe>) -> Self {
        Self {
            owner,
            probes: probes.to_vec(),
            refused,
            opened: Instant::now(),
            rests: vec![DisarmedTime::default(); probes.len()],
            process: None,
            execs: None,
            closing: Closing::default(),
        }
    }

    /// Disarms these probes within 0.2 ms. Other probes of the same link (`process` module) do not count for about 15
    /// ms; their readings say `at_least`.
    pub fn close(&mut self, places: &[usize]) {
        let now = Instant::now();
        let others = match &mut self.owner {
            ProbeOwner::Process(probes) => probes.close(&self.probes, places, &mut self.closing),
            ProbeOwner::Threads(probes) => {
                probes.close(places, &mut self.closing);
                Vec::new()
            }
        };
        let then = Instant::now();
        for place in places.iter().chain(&others) {
            if let Some(rest) = self.rests.get_mut(*place) {
                rest.begin(now);
            }
        }
        for place in others {
            if let ProbeOwner::Process(probes) = &self.owner
                && probes.is_open(place)
            {
                self.rests[place].end(then);
            }
        }
    }

    /// Arms a closed probe of a set from [`UprobeSet::open`]. Returns whether the probe is armed.
    pub fn open_again(&mut self, place: usize) -> bool {
        let done = match (&mut self.owner, self.process) {
            (ProbeOwner::Process(probes), _) => probes.open_again(&self.probes, &[place as u64]),
            (ProbeOwner::Threads(probes), Some(process)) => {
                let alive = process.threads().unwrap_or_default();
                probes.open_again(&self.probes, place, &alive)
            }
            _ => false,
        };
        if let Some(rest) = self.rests.get_mut(place).filter(|_| done) {
            rest.end(Instant::now());
        }
        done
    }

    /// Disarms all probes, in the background.
    pub fn close_all(&mut self) {
        match &mut self.owner {
            ProbeOwner::Process(probes) => probes.close_all(&mut self.closing),
            ProbeOwner::Threads(probes) => probes.close_all(&mut self.closing),
        }
    }

    /// Returns the counts, in the order of the probes.
    pub fn counts(&self) -> Result<Vec<u64>, Error> {
        let counts = match &self.owner {
            ProbeOwner::Process(probes) => probes.read(),
            ProbeOwner::Threads(probes) => probes.read(),
        };
        counts.map_err(Error::io("read the counts of kernel uprobes"))
    }

    /// Returns the readings, in the order of the probes; those of refused probes are 0.
    pub fn read(&self) -> Result<Vec<Reading>, Error> {
        let counts = self.counts()?;
        let now = Instant::now();
        let elapsed = now.saturating_duration_since(self.opened);
        let reading = |(count, rest): (u64, &DisarmedTime)| Reading {
            count,
            time_enabled_ns: elapsed.as_nanos() as u64,
            time_running_ns: elapsed.saturating_sub(rest.so_far(now)).as_nanos() as u64,
            at_least: !rest.so_far(now).is_zero(),
            ..Reading::default()
        };
        Ok(counts.into_iter().zip(&self.rests).map(reading).collect())
    }

    /// Returns the refused probes.
    pub fn refused(&self) -> &[RefusedProbe] {
        &self.refused
    }

    /// Moves the refused probes out of the set.
    pub fn take_refused(&mut self) -> Vec<RefusedProbe> {
        std::mem::take(&mut self.refused)
    }

    /// Returns the counted threads.
    pub fn who(&self) -> CountedThreads {
        match &self.owner {
            ProbeOwner::Process(_) => CountedThreads::Process,
            ProbeOwner::Threads(probes) => CountedThreads::Threads(probes.threads.clone()),
        }
    }

    /// Returns whether the main thread has called exec; `false` if that cannot be observed. The probes still count in a
    /// program that maps the same files.
    pub fn has_execed(&self) -> bool {
        self.execs.as_ref().is_some_and(Execs::any)
    }
}

impl Drop for UprobeSet {
    fn drop(&mut self) {
        self.close_all();
    }
}

/// Returns whether this user may load the BPF program that counts in processes. Linux 6.1 loads the program, but cannot
/// link it to uprobes.
pub fn may_count_processes() -> bool {
    UprobeCounters::new(1).is_ok()
}

fn is_unsupported(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(errno::EPERM | errno::EACCES | errno::EINVAL | errno::ENOSYS | errno::EOPNOTSUPP)
    )
}

/// Returns whether the kernel refused all probes with EINVAL, as Linux 6.1 does ([`may_count_processes`]).
fn are_unsupported(refused: &[RefusedProbe], all: usize) -> bool {
    let is_unknown = |refused: &RefusedProbe| matches!(refused.error, Error::BadOffset { .. });
    all > 0 && refused.len() == all && refused.iter().all(is_unknown)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::kernel_probe::refusal;

    #[test]
    fn a_failure_was_taken_for_an_old_kernel() {
        for number in [1, 13, 22, 38, 95] {
            assert!(is_unsupported(&io::Error::from_raw_os_error(number)));
        }
        for number in [4, 7, 11, 12, 23, 24, 28] {
            assert!(!is_unsupported(&io::Error::from_raw_os_error(number)));
        }
        let refused = |numbers: &[i32]| -> Vec<RefusedProbe> {
            let path = PathBuf::from("/bin/true");
            let probe = KernelProbe { path, offset: 0 };
            let error = |number| refusal(io::Error::from_raw_os_error(number), &probe);
            let each = numbers.iter().enumerate();
            each.map(|(probe, number)| RefusedProbe {
                probe,
                error: error(*number),
            })
            .collect()
        };
        assert!(are_unsupported(&refused(&[22, 22]), 2));
        assert!(!are_unsupported(&refused(&[22]), 2), "one was armed");
        assert!(!are_unsupported(&refused(&[22, 12]), 2), "no memory");
        assert!(!are_unsupported(&refused(&[2, 2]), 2), "no such file");
        assert!(!are_unsupported(&[], 0));
    }
}
