//! Where calls of `--under`'s function end without a return: a thread that leaves one is
//! no longer below it from that moment on, not only from the next return on.
//!
//! While there is such a function, two are intercepted. `longjmp` is told in its buffer
//! where the stack pointer goes. `_Unwind_SetIP` is called, by the routine of a frame that
//! wants an exception, a panic or a cancellation, once the unwinder has come to that frame
//! and will go on there; the unwinder's own `_Unwind_GetCFA` tells where its stack ends.
//! Who leaves in another way (gcc's `__builtin_longjmp`) is found out when the function
//! is called again, or a followed call returns further up.

use crate::calls;
use crate::hooks::Frame;
use crate::shared::Shared;
use crate::tls;

/// The stack pointer's word of a `jmp_buf`: in glibc and musl the same.
const STACK_POINTER: usize = 6;
/// Jumps lead no further up than this.
const FARTHEST: u64 = 8 << 20;

/// At the entry of `longjmp`.
pub fn jump(frame: &Frame) {
    if frame.rdi == 0 || !frame.rdi.is_multiple_of(8) {
        return;
    }
    // SAFETY: the function's contract: its first argument is a buffer that setjmp filled.
    let word = unsafe { (frame.rdi as *const u64).add(STACK_POINTER).read() };
    let here = core::ptr::from_ref(frame) as u64;
    let above = |to: &u64| *to > here && to - here < FARTHEST;
    if let Some(to) = [unmangled(word), word].into_iter().find(above) {
        calls::cut(to);
    }
}

/// What glibc mangled: exclusive-or with a word of the thread's, rotated.
fn unmangled(word: u64) -> u64 {
    const ROTATED: u32 = 17;
    const GUARD: u64 = 0x30;
    // SAFETY: in glibc and in musl the thread's block begins with a record longer than this.
    let guard = unsafe { ((tls::thread_block() + GUARD) as *const u64).read() };
    word.rotate_right(ROTATED) ^ guard
}

type StackOf = unsafe extern "C" fn(u64) -> u64;

/// At the entry of an unwinder's `_Unwind_SetIP`.
pub fn land(shared: &Shared, unwinder: usize, frame: &Frame) {
    let Some(stack_of) = shared.unwinder(unwinder) else {
        return;
    };
    // SAFETY: `_Unwind_GetCFA` of the same unwinder, whose context this is.
    let to = unsafe { core::mem::transmute::<usize, StackOf>(stack_of as usize)(frame.rdi) };
    // Behind a thunk the address is told 8 lower (`unwind`). The frame's own return
    // address is above in any case: stacks are aligned to 16 where functions call.
    calls::cut(to + 8);
}
