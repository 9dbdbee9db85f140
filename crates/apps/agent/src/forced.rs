//! Hides return thunks (stubs to which probed calls return) from forced unwinding (`_Unwind_ForcedUnwind`, by which
//! `pthread_exit` and `pthread_cancel` end a thread).
//!
//! For each frame, the unwinder calls its caller's *stop function*, and then removes the frame. Return thunks are
//! frames to the unwinder, but the program must not see them. So we replace the stop function by [`stop`], which skips
//! thunks.
//!
//! To run a cleanup, the unwinder jumps into the program, which later continues the unwinding (`_Unwind_Resume`). By
//! then the unwinder's earlier frames and ours no longer exist. So the unwinder keeps [`stop`] and its argument in the
//! program's exception object. That argument is our record of the program's function and argument, in the thread's
//! region of memory ([`crate::calls`]). A thread without a region needs no record, because it returns to no thunk.
//!
//! A record belongs to one exception object until the unwinding ends or the thread is dead. If the program's function
//! jumps away, the record stays in use. The thread's next unwinding uses the record again, because glibc has one
//! exception object per thread. If no record is free, the program's function sees thunks.

use crate::calls;
use crate::forced_records::ForcedRecord;
use crate::program_call::Frame;
use crate::shared::{self, Shared};
use crate::unwind_info::AddressOf;

/// `_URC_NO_REASON`: continue with the next frame.
const GO_ON: i32 = 0;
/// `_UA_END_OF_STACK`: there is no frame.
const END: i32 = 16;

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
    if !is_end && shared::get().is_some_and(|shared| shared.is_ours(address())) {
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
