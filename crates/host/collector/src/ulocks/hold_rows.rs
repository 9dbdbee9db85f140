//! The rows for the lock of `--hold`.

use tiptoe_session::{Histogram, Hold};

use super::{LockKind, Names, WaitRecords, longest_first};

impl WaitRecords {
    pub(super) fn lock_holds(&self, names: &Names) -> Vec<Hold> {
        let name = |lock| names.lock(lock, &LockKind::of("", 0, false), &self.stacks);
        let each = self.holds.iter();
        let mut holds: Vec<Hold> = each
            .map(|((lock, site), held)| Hold {
                lock: name(*lock),
                callsite: names.code(*site),
                count: held.calls,
                total_ns: held.slept_ns,
                histogram: (held.calls > 0).then(|| Histogram::new(&held.times, held.longest)),
                is_at_least: false,
            })
            .collect();
        if let Some((lock, thread, ns)) = &self.early_hold {
            // If there were other holds, this hold ended before them at an unknown time.
            let total_ns = if holds.is_empty() { *ns } else { 0 };
            holds.push(Hold {
                lock: name(*lock),
                callsite: format!("thread {thread}, since before the trace"),
                total_ns,
                is_at_least: true,
                ..Hold::default()
            });
        }
        longest_first(&mut holds);
        holds
    }
}
