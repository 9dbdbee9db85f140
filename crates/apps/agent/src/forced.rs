//! Forced unwinding (`_Unwind_ForcedUnwind`, by which `pthread_exit` and `pthread_cancel` end a thread).
//!
//! The unwinder passes each frame to the *stop function* of the code that called it, and leaves the frame. That
//! function must not see return thunks, which are frames to the unwinder. So it is replaced by one of ours, which skips
//! them.
//!
//! The unwinder keeps the function and its argument in the program's exception object, because it continues after
//! each cleanup (`_Unwind_Resume`), when its own frames and ours have been left. So the program's two words must be
//! kept elsewhere: in a record of the thread, in the last page of its frames. A thread without frames returns to no
//! thunk.
//!
//! A record belongs to one exception object. It is free again when the stop function has ended the unwinding, at the
//! end of the stack, or when the thread is dead. A stop function that jumps away leaves its record in use, and the
//! same exception object uses it again; glibc has one such object per thread. If no record is free, the program's
//! function sees thunks.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::calls;
use crate::program_call::Frame;
use crate::shared::{self, Shared};
use crate::unwind::{self, AddressOf};

const WORDS: usize = 4;
/// `_URC_NO_REASON`: continue with the next frame.
const GO_ON: i32 = 0;
/// `_UA_END_OF_STACK`: there is no frame.
const END: i32 = 16;

/// One forced unwinding. Relaxed throughout: only its thread uses it, in program order.
#[repr(transparent)]
struct ForcedRecord([AtomicU64; WORDS]);

impl ForcedRecord {
    /// Returns the record's words: the exception object, or 0 if the record is free; the program's function and
    /// argument; the unwinder's function for a frame's address.
    fn words(&self) -> [u64; WORDS] {
        self.0.each_ref().map(|word| word.load(Relaxed))
    }

    /// Takes the record for an exception object. Returns `false` if a signal handler took it first, for another object.
    fn take(&self, exception: u64) -> bool {
        let [owner, ..] = &self.0;
        let taken = owner.compare_exchange(0, exception, Relaxed, Relaxed);
        taken.is_ok() || taken == Err(exception)
    }

    fn write(&self, words: [u64; WORDS]) {
        for (word, value) in self.0.iter().zip(words) {
            word.store(value, Relaxed);
        }
    }

    fn free(&self) {
        let [owner, ..] = &self.0;
        owner.store(0, Relaxed);
    }
}

pub struct Records<'a>(&'a [AtomicU64]);

impl<'a> Records<'a> {
    /// Returns the records in zeroed words.
    pub fn new(words: &'a [AtomicU64]) -> Self {
        Records(words)
    }

    fn all(&self) -> impl Iterator<Item = &'a ForcedRecord> {
        let words = self.0.as_chunks::<WORDS>().0.iter();
        words.map(|words| {
            // SAFETY: a record has the layout of its words.
            unsafe { &*core::ptr::from_ref(words).cast::<ForcedRecord>() }
        })
    }

    fn take(&self, exception: u64) -> Option<&'a ForcedRecord> {
        let known = self.all().find(|record| record.words()[0] == exception);
        known.or_else(|| self.all().find(|record| record.take(exception)))
    }

    /// Frees all records, because their thread is dead.
    pub fn clear(&self) {
        let used = self.all().filter(|record| record.words()[0] != 0);
        used.for_each(ForcedRecord::free);
    }
}

/// Handles the entry of `_Unwind_ForcedUnwind(exception, stop, argument)`.
pub fn begin(shared: &Shared, unwinder: usize, frame: &mut Frame) {
    let own = stop as *const () as u64;
    let (exception, stops) = (frame.rdi, frame.rsi);
    if exception == 0 || stops == own {
        return;
    }
    if let Some(address_of) = shared.unwinder(unwinder)
        && let Some(record) = calls::forced().and_then(|records| records.take(exception))
    {
        record.write([exception, stops, frame.rdx, address_of]);
        frame.rsi = own;
        frame.rdx = core::ptr::from_ref(record) as u64;
    }
}

type Stop = unsafe extern "C" fn(i32, i32, u64, u64, *mut u8, u64) -> i32;

/// Shows a frame of the program to its stop function, and skips one of ours.
extern "C" fn stop(
    version: i32,
    actions: i32,
    class: u64,
    exception: u64,
    context: *mut u8,
    record: &ForcedRecord,
) -> i32 {
    let [_, stops, argument, address_of] = record.words();
    let is_end = actions & END != 0;
    // SAFETY: this is `_Unwind_GetIP` of the unwinder that made the context.
    let address =
        || unsafe { core::mem::transmute::<usize, AddressOf>(address_of as usize)(context) };
    if !is_end && shared::get().is_some_and(|shared| unwind::is_ours(shared, address())) {
        return GO_ON;
    }
    if is_end {
        record.free();
    }
    // SAFETY: this is the program's function, with the argument that the program passed.
    let answer = unsafe {
        core::mem::transmute::<usize, Stop>(stops as usize)(
            version, actions, class, exception, context, argument,
        )
    };
    if answer != GO_ON {
        record.free();
    }
    answer
}
