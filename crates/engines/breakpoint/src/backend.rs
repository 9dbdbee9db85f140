//! The trait that a user of this crate implements, for example to open perf events for granted debug registers (slots).

use crate::request::Request;

/// A backend's error number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal(pub i32);

/// Takes and releases slots under the accounting's locks. Methods must not call the accounting, because they would
/// deadlock.
pub trait Backend {
    /// Whether methods may run concurrently; otherwise each runs under a lock.
    const PARALLEL: bool;

    /// Takes all slots; on failure takes none.
    fn reserve(&self, request: &Request) -> Result<(), Refusal>;

    /// Releases taken slots.
    fn release(&self, request: &Request);

    /// Replaces `old` by `new`, or keeps `old`. Must be overridden if another program may take a slot just released,
    /// because the default releases `old` first.
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
