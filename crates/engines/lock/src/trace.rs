//! The hook [`Traced`].

use core::time::Duration;

use tracing::{debug, trace};

use crate::acquisition::{Lock, Mode, Outcome};
use crate::hook::Hook;

/// Emits events of target `tiptoe_lock`: at level trace when a wait begins, and debug when the wait ends. The events
/// have the fields `name`, `address`, `mode` and `site`; an end also has `outcome` and `waited_ns`. A subscriber must
/// not take the lock, which the thread may hold.
///
/// ```
/// use tiptoe_lock::{Mutex, Traced};
///
/// tiptoe_lock::class! { Jobs = "jobs" }
/// static JOBS: Mutex<Vec<u32>, Traced, Jobs> = Mutex::new(Vec::new());
///
/// JOBS.lock().push(1); // free: no event
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traced;

impl Hook for Traced {
    const INIT: Self = Traced;
    const WAITS: bool = true;

    fn contention_begin(&self, lock: &Lock, mode: Mode) {
        trace!(
            target: "tiptoe_lock",
            name = lock.name,
            address = lock.address,
            mode = mode.word(),
            site = %lock.site,
            "contention_begin"
        );
    }

    fn contention_end(&self, lock: &Lock, mode: Mode, outcome: Outcome, waited: Duration) {
        debug!(
            target: "tiptoe_lock",
            name = lock.name,
            address = lock.address,
            mode = mode.word(),
            site = %lock.site,
            outcome = outcome.word(),
            waited_ns = u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX),
            "contention_end"
        );
    }
}

#[cfg(all(test, feature = "parking_lot"))]
mod tests {
    use super::*;
    use crate::Mutex;
    use std::format;
    use std::string::String;
    use std::sync::{Arc, Mutex as Std};
    use std::vec::Vec;
    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    /// Keeps events as text, without values that vary between runs.
    #[derive(Default)]
    struct Keep(Arc<Std<Vec<String>>>);

    struct Words(String);

    impl Visit for Words {
        fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
            match field.name() {
                "address" | "waited_ns" | "site" => self.0 += &format!(" {}", field.name()),
                name => self.0 += &format!(" {name}={value:?}"),
            }
        }
    }

    impl Subscriber for Keep {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            metadata.target() == "tiptoe_lock"
        }
        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }
        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn event(&self, event: &Event<'_>) {
            let mut words = Words(format!("{}", event.metadata().level()));
            event.record(&mut words);
            self.0.lock().expect("one thread").push(words.0);
        }
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    #[test]
    fn waits_are_events() {
        crate::class! { Jobs = "jobs" }
        let keep = Keep::default();
        let kept = Arc::clone(&keep.0);
        let jobs: Mutex<u32, Traced, Jobs> = Mutex::new(0);
        tracing::subscriber::with_default(keep, || {
            let held = jobs.lock();
            assert!(jobs.try_lock_for(Duration::from_millis(1)).is_none());
            drop(held);
        });
        let kept = kept.lock().expect("one thread").clone();
        let expected = [
            "TRACE message=contention_begin name=\"jobs\" address mode=\"exclusive\" site",
            "DEBUG message=contention_end name=\"jobs\" address mode=\"exclusive\" site \
             outcome=\"timed out\" waited_ns",
        ];
        assert_eq!(kept, expected);
    }
}
