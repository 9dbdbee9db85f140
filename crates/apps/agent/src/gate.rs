//! Finds calls of `--under`'s function that end without a return. A thread that leaves one must
//! count as outside at once, not only at the next return.
//!
//! While there is such a function, two functions are intercepted. `longjmp` finds in its buffer the
//! stack pointer to set. `_Unwind_SetIP` is called by the personality routine of a frame that will
//! handle an exception, a panic or a cancellation. The unwinder has reached that frame and will go
//! on there, and its own `_Unwind_GetCFA` returns where its stack ends. Calls that are left in
//! another way (gcc's `__builtin_longjmp`) are detected when the function is called again, or when
//! a followed call returns further up.

use crate::calls;
use crate::hooks::Frame;
use crate::shared::Shared;
use crate::tls;

/// The index of the stack pointer in a `jmp_buf`, the same in glibc and musl.
const STACK_POINTER: usize = 6;
/// The farthest that a jump is expected to go up.
const FARTHEST: u64 = 8 << 20;

/// Handles the entry of `longjmp`.
pub fn jump(frame: &Frame) {
    if frame.rdi == 0 || !frame.rdi.is_multiple_of(8) {
        return;
    }
    // SAFETY: by the function's contract its first argument is a buffer that setjmp filled.
    let word = unsafe { (frame.rdi as *const u64).add(STACK_POINTER).read() };
    let here = core::ptr::from_ref(frame) as u64;
    let above = |to: &u64| *to > here && to - here < FARTHEST;
    if let Some(to) = [unmangled(word), word].into_iter().find(above) {
        calls::cut(to);
    }
}

/// Undoes glibc's mangling: an exclusive-or with a word of the thread's, then a rotation.
fn unmangled(word: u64) -> u64 {
    const ROTATED: u32 = 17;
    const GUARD: u64 = 0x30;
    // SAFETY: in glibc and in musl the thread's block begins with a longer record than this.
    let guard = unsafe { ((tls::thread_block() + GUARD) as *const u64).read() };
    word.rotate_right(ROTATED) ^ guard
}

type StackOf = unsafe extern "C" fn(u64) -> u64;

/// Handles the entry of an unwinder's `_Unwind_SetIP`.
pub fn land(shared: &Shared, unwinder: usize, frame: &Frame) {
    let Some(stack_of) = shared.unwinder(unwinder) else {
        return;
    };
    // SAFETY: this is `_Unwind_GetCFA` of the same unwinder, whose context is passed.
    let to = unsafe { core::mem::transmute::<usize, StackOf>(stack_of as usize)(frame.rdi) };
    // For a frame that returns to a thunk the reported address is 8 too low (see `unwind`). The
    // frame's own return address is above in any case, because stacks are aligned to 16 at calls.
    calls::cut(to + 8);
}
