//! Adds the lock-order validator to any hook, with the feature `validate`.

use core::time::Duration;

use super::Order;
use crate::acquisition::{Lock, Mode, Outcome, Way};
use crate::hook::{Hook, call};

pub(crate) struct Always<H> {
    hook: H,
    order: Order,
}

impl<H: Hook> Always<H> {
    pub(crate) const fn inner(&self) -> &H {
        &self.hook
    }

    fn both(&self, hook: impl FnOnce(&H), order: impl FnOnce(&Order)) {
        if H::HOLDS {
            call(|| hook(&self.hook));
        }
        if !H::CHECKS_ORDER {
            call(|| order(&self.order));
        }
    }
}

impl<H: Hook> Hook for Always<H> {
    const INIT: Self = Always {
        hook: H::INIT,
        order: Order::INIT,
    };
    const WAITS: bool = H::WAITS;
    const HOLDS: bool = true;
    const CHECKS_ORDER: bool = true;

    fn now() -> u64 {
        H::now()
    }

    fn ns(ticks: u64) -> u64 {
        H::ns(ticks)
    }

    fn contention_begin(&self, lock: &Lock, mode: Mode) {
        self.hook.contention_begin(lock, mode);
    }

    fn contention_end(&self, lock: &Lock, mode: Mode, outcome: Outcome, waited: Duration) {
        self.hook.contention_end(lock, mode, outcome, waited);
    }

    fn acquiring(&self, lock: &Lock, mode: Mode) {
        self.both(
            |hook| hook.acquiring(lock, mode),
            |order| order.acquiring(lock, mode),
        );
    }

    fn acquired(&self, lock: &Lock, mode: Mode, way: Way) {
        self.both(
            |hook| hook.acquired(lock, mode, way),
            |order| order.acquired(lock, mode, way),
        );
    }

    fn downgraded(&self, lock: &Lock, from: Mode, to: Mode) {
        self.both(
            |hook| hook.downgraded(lock, from, to),
            |order| order.downgraded(lock, from, to),
        );
    }

    fn released(&self, lock: &Lock, mode: Mode) {
        self.both(
            |hook| hook.released(lock, mode),
            |order| order.released(lock, mode),
        );
    }
}
