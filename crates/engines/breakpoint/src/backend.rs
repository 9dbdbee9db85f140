//! What takes the slots that were accounted for.

use crate::request::Request;

/// Why a backend refused, in its own numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal(pub i32);

/// Takes and gives back slots that were accounted for, within the same hold of the locks.
/// Its hooks must not reserve or release themselves.
pub trait Backend {
    /// Whether its hooks may run in parallel. Where they may not they are called under a
    /// lock of their own.
    const PARALLEL: bool;

    /// Takes what the accounting has granted, or nothing.
    fn reserve(&self, request: &Request) -> Result<(), Refusal>;

    /// Gives back what was taken.
    fn release(&self, request: &Request);

    /// Takes `new` for `old`, or leaves `old` as it was. A backend that may be unable to take
    /// again what it has just given back does this its own way.
    fn replace(&self, old: &Request, new: &Request) -> Result<(), Refusal> {
        self.release(old);
        let done = self.reserve(new);
        if done.is_err() {
            self.reserve(old)?;
        }
        done
    }
}

/// Accounting alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoBackend;

impl Backend for NoBackend {
    const PARALLEL: bool = true;

    fn reserve(&self, _: &Request) -> Result<(), Refusal> {
        Ok(())
    }

    fn release(&self, _: &Request) {}
}
