//! The forms of accounting for debug registers (slots) that are compared.

use std::hint::black_box;
use std::sync::atomic::AtomicU64;

use tiptoe_breakpoint::{Accounting, Geometry, Registers, Request, Side};
use tiptoe_kernel::watchpoints::Futex;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Form {
    Ideal,
    Tiptoe,
    GlobalMutex,
}

impl Form {
    pub(super) const ALL: [Form; 3] = [Form::Ideal, Form::Tiptoe, Form::GlobalMutex];

    pub(super) fn name(self) -> &'static str {
        match self {
            Form::Ideal => "ideal",
            Form::Tiptoe => "tiptoe",
            Form::GlobalMutex => "global_mutex",
        }
    }
}

pub(super) trait Slots: Sync {
    fn reserve(&self, request: &Request) -> bool;
    fn release(&self, request: &Request);
    fn waited_ns(&self) -> u64;
}

pub(super) struct NoAccounting;

impl Slots for NoAccounting {
    #[inline(never)]
    fn reserve(&self, request: &Request) -> bool {
        black_box(request);
        true
    }

    #[inline(never)]
    fn release(&self, request: &Request) {
        black_box(request);
    }

    fn waited_ns(&self) -> u64 {
        0
    }
}

impl Slots for Accounting<'_, Futex> {
    fn reserve(&self, request: &Request) -> bool {
        Accounting::reserve(self, request).is_ok()
    }

    fn release(&self, request: &Request) {
        // The slot is reserved, so this cannot fail.
        let _ = Accounting::release(self, request);
    }

    fn waited_ns(&self) -> u64 {
        let sides = [Side::Reader, Side::Writer];
        sides.map(|side| self.stats(side).waited_ns).iter().sum()
    }
}

/// The alignment of [`Geometry::words`], in bytes.
const ALIGNMENT: usize = 128;

pub(super) struct Storage {
    geometry: Geometry,
    words: [Vec<AtomicU64>; 2],
}

impl Storage {
    /// Returns memory for each form; `None` if the numbers are invalid. With few `reservations`, shards (parts with a
    /// mutex each) would share cache lines.
    pub(super) fn new(cpus: u32, slots: u32, reservations: u32) -> Option<Storage> {
        let geometry = Geometry::new(cpus, Registers::Mixed(slots), reservations)?;
        let words = [geometry, geometry.with_shards(1)].map(|geometry| {
            let zero = || AtomicU64::new(0);
            std::iter::repeat_with(zero)
                .take(geometry.words() + ALIGNMENT / size_of::<AtomicU64>())
                .collect()
        });
        Some(Storage { geometry, words })
    }

    pub(super) fn with<'s, T>(&'s self, form: Form, act: impl Act<T>) -> T {
        let [sharded, single] = &self.words;
        let ours = |geometry: Geometry, words: &'s [AtomicU64]| {
            let words = &words[words.as_ptr().align_offset(ALIGNMENT)..];
            Accounting::new(geometry, words, &Futex).expect("as many words as it takes")
        };
        match form {
            Form::Ideal => act.on(&NoAccounting),
            Form::Tiptoe => act.on(&ours(self.geometry, sharded)),
            Form::GlobalMutex => act.on(&ours(self.geometry.with_shards(1), single)),
        }
    }
}

/// What a bench does with each form. `on` is generic, so that calls need no vtable.
pub(super) trait Act<T> {
    fn on(self, slots: &impl Slots) -> T;
}
