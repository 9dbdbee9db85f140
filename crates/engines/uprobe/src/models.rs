//! loom models, and mutants without one ordering (`tiptoe_sync::mutant`). Storage is leaked, because a model's threads
//! need `'static`.

extern crate std;
use std::boxed::Box;
use std::vec::Vec;

mod bury;
mod claim;
mod feed;
mod frames;
mod lookup;
mod table;
mod thunks;

fn leak<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

fn leak_many<T>(count: usize, make: impl Fn() -> T) -> &'static [T] {
    Box::leak(
        (0..count)
            .map(|_| make())
            .collect::<Vec<T>>()
            .into_boxed_slice(),
    )
}
