//! The moment from which on everything is counted, for programs that wait for it.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use tiptoe_sys::host::Process;

use crate::phase::Phase;

/// A process that is counted: its number and its name.
pub type Counted = (u32, String);
type Notify = dyn FnOnce(&[Counted]) + Send;

/// What is called once, when counting has begun. A command begins only after the call, unless `delay` is set.
#[derive(Clone, Default)]
pub struct Ready(Option<Arc<Mutex<Option<Box<Notify>>>>>);

impl Ready {
    /// Calls `notify` with the processes that are counted; with none where that is the whole system.
    pub fn new(notify: impl FnOnce(&[Counted]) + Send + 'static) -> Ready {
        Ready(Some(Arc::new(Mutex::new(Some(Box::new(notify))))))
    }

    /// Counting has begun. Later calls do nothing.
    pub(crate) fn notify(&self, counted: &[Counted]) {
        Phase::Counting.begin();
        let Some(notify) = &self.0 else { return };
        let notify = notify.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(notify) = notify {
            notify(counted);
        }
    }
}

impl fmt::Debug for Ready {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ready")
    }
}

/// Running processes by their names.
pub(crate) fn named(pids: &[u32]) -> Vec<Counted> {
    let name = |pid: u32| {
        Process::new(pid)
            .and_then(Process::comm)
            .unwrap_or_default()
    };
    pids.iter().map(|pid| (*pid, name(*pid))).collect()
}
