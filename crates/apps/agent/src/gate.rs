//! Detects calls of `--under`'s function that end without a return. A thread that leaves such a call must count as
//! outside the function at once, not only when a later call returns.
//!
//! Two functions are intercepted. `longjmp` has the new stack pointer in its buffer. `_Unwind_SetIP` is called by the
//! personality routine of the frame that will handle an exception, a panic or a cancellation. The unwinder's
//! `_Unwind_GetCFA` returns that frame's stack pointer. Calls that are left in another way (gcc's `__builtin_longjmp`)
//! are detected when the function is called again, or when a followed call returns further up.

use crate::calls;
use crate::program_call::Frame;
use crate::shared::Shared;
use crate::tls;

/// The index of the stack pointer in a `jmp_buf`, in glibc and musl.
const STACK_POINTER: usize = 6;
/// The longest jump up the stack to accept.
const FARTHEST: u64 = 8 << 20;

pub fn jump(frame: &Frame) {
    if frame.rdi == 0 || !frame.rdi.is_multiple_of(8) {
        return;
    }
    // SAFETY: setjmp filled the buffer that `longjmp` gets.
    let word = unsafe { (frame.rdi as *const u64).add(STACK_POINTER).read() };
    let here = core::ptr::from_ref(frame) as u64;
    let above = |to: &u64| *to > here && to - here < FARTHEST;
    if let Some(to) = [unmangled(word), word].into_iter().find(above) {
        calls::cut(to);
    }
}

/// Undoes glibc's mangling: an exclusive-or with a word of the thread, then a rotation.
fn unmangled(word: u64) -> u64 {
    const ROTATED: u32 = 17;
    const GUARD: u64 = 0x30;
    // SAFETY: in glibc and musl the thread's block begins with a record longer than this offset.
    let guard = unsafe { ((tls::thread_block() + GUARD) as *const u64).read() };
    word.rotate_right(ROTATED) ^ guard
}

type StackOf = unsafe extern "C" fn(u64) -> u64;

pub fn land(shared: &Shared, unwinder: usize, frame: &Frame) {
    let Some(stack_of) = shared.unwinder(unwinder) else {
        return;
    };
    // SAFETY: this is `_Unwind_GetCFA` of the unwinder that made the context.
    let to = unsafe { core::mem::transmute::<usize, StackOf>(stack_of as usize)(frame.rdi) };
    // If the frame returns to a thunk, this address is 8 too low (see `unwind_info`). Adding 8 is safe for any frame,
    // because stacks are aligned to 16 at calls. So the frame's own return address is at the sum or above.
    calls::cut(to + 8);
}
