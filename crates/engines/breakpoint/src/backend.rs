//! What takes the granted slots, for example by opening events.

use crate::request::Request;

/// A backend's error number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal(pub i32);

/// Takes and releases granted slots, while the locks are held. Its hooks must not reserve or
/// release themselves; that would deadlock.
pub trait Backend {
    /// Whether its hooks may run concurrently. Otherwise they are called under a lock of their own.
    const PARALLEL: bool;

    /// Takes the granted slots, or none.
    fn reserve(&self, request: &Request) -> Result<(), Refusal>;

    /// Releases slots that were taken.
    fn release(&self, request: &Request);

    /// Replaces `old` by `new`, or leaves `old` as it was. A backend for which the default may lose
    /// `old` must override this.
    fn replace(&self, old: &Request, new: &Request) -> Result<(), Refusal> {
        self.release(old);
        let done = self.reserve(new);
        if done.is_err() {
            self.reserve(old)?;
        }
        done
    }
}

/// A backend that takes nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoBackend;

impl Backend for NoBackend {
    const PARALLEL: bool = true;

    fn reserve(&self, _: &Request) -> Result<(), Refusal> {
        Ok(())
    }

    fn release(&self, _: &Request) {}
}
