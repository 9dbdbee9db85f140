//! Notifies programs that wait until counting has begun.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::phase::Phase;

/// A process's id and name.
pub type CountedProcess = (u32, String);
type Notify = dyn FnOnce(&[CountedProcess]) + Send;

/// A callback that runs once, when counting has begun. A command begins after the callback has returned. If counting
/// is delayed, the command may begin earlier.
#[derive(Clone, Default)]
pub struct Ready(Option<Arc<Mutex<Option<Box<Notify>>>>>);

impl Ready {
    /// Wraps a callback, which gets the counted processes; an empty slice if the whole system is counted.
    pub fn new(notify: impl FnOnce(&[CountedProcess]) + Send + 'static) -> Ready {
        Ready(Some(Arc::new(Mutex::new(Some(Box::new(notify))))))
    }

    /// Begins [`Phase::Counting`]. The first call also runs the callback.
    pub fn notify(&self, counted: &[CountedProcess]) {
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
