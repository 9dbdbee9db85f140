//! Measures the CPU time that tiptoe uses in a run, and for how long it stops targets' threads.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike};

// Relaxed: these numbers order no other data.
static HELPERS_NS: AtomicU64 = AtomicU64::new(0);
static LONGEST_STOP_NS: AtomicU64 = AtomicU64::new(0);

/// tiptoe's use of CPU time since [`OwnUse::begin`].
#[derive(Debug)]
pub struct OwnUse {
    before: Duration,
}

impl OwnUse {
    /// Begins a run.
    pub fn begin() -> OwnUse {
        LONGEST_STOP_NS.store(0, Relaxed);
        OwnUse { before: process() }
    }

    /// Records the run's CPU time and longest stop in its session.
    pub fn report(&self, session: &mut tiptoe_session::Session) {
        let used = process().saturating_sub(self.before);
        session.own_cpu_ns = Some(used.as_nanos() as u64);
        let stop = LONGEST_STOP_NS.load(Relaxed);
        session.longest_stop_ns = (stop > 0).then_some(stop);
    }
}

fn process() -> Duration {
    used_by(UsageWho::RUSAGE_SELF) + Duration::from_nanos(HELPERS_NS.load(Relaxed))
}

/// Returns the CPU time of the calling thread.
pub fn thread() -> Duration {
    used_by(UsageWho::RUSAGE_THREAD)
}

/// Calls `run`, which reaps a helper process, and adds the helper's CPU time. No other child may be reaped meanwhile,
/// because that child's time would be added.
pub fn with_helper<R>(run: impl FnOnce() -> R) -> R {
    let before = used_by(UsageWho::RUSAGE_CHILDREN);
    let result = run();
    let used = used_by(UsageWho::RUSAGE_CHILDREN).saturating_sub(before);
    HELPERS_NS.fetch_add(used.as_nanos() as u64, Relaxed);
    result
}

/// Records for how long a target's thread was stopped, or ran calls for tiptoe.
pub fn note_stop(lasted: Duration) {
    LONGEST_STOP_NS.fetch_max(lasted.as_nanos() as u64, Relaxed);
}

/// Returns the CPU time of `whom`.
pub fn used_by(whom: UsageWho) -> Duration {
    let used = CpuUse::fetch(whom);
    Duration::from_nanos(used.user_ns + used.sys_ns)
}

/// CPU time and context switches.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuUse {
    /// The time in user mode.
    pub user_ns: u64,
    /// The time in the kernel.
    pub sys_ns: u64,
    /// Voluntary and involuntary switches.
    pub switches: u64,
}

impl CpuUse {
    /// Returns the use so far by `whom`.
    pub fn fetch(whom: UsageWho) -> CpuUse {
        let Ok(usage) = getrusage(whom) else {
            return CpuUse::default();
        };
        let ns = |time: TimeVal| time.num_microseconds().unsigned_abs() * 1_000;
        let switches = usage.voluntary_context_switches() + usage.involuntary_context_switches();
        CpuUse {
            user_ns: ns(usage.user_time()),
            sys_ns: ns(usage.system_time()),
            switches: switches.unsigned_abs(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_uses_the_cpu_time_of_its_threads_and_helpers() {
        let own = OwnUse::begin();
        let spend = || {
            let before = thread();
            while thread() - before < Duration::from_millis(20) {}
        };
        std::thread::spawn(spend).join().expect("it ends");
        let mut session = tiptoe_session::Session::default();
        own.report(&mut session);
        let alone = session.own_cpu_ns.expect("it is reported");
        assert!(alone > 10_000_000, "{alone}");
        let shell = || {
            let script = "i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done";
            std::process::Command::new("sh")
                .args(["-c", script])
                .status()
        };
        let helped = HELPERS_NS.load(Relaxed);
        with_helper(shell).expect("a shell");
        assert!(HELPERS_NS.load(Relaxed) > helped);
    }
}
