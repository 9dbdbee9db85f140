//! Detects that a call of the *gate* ends without a return. The gate is `--under`'s function: probes count only in
//! threads inside. A thread that leaves the gate must count as outside at once.
//!
//! Two functions are intercepted: `longjmp`, whose buffer contains the new stack pointer, and `_Unwind_SetIP`. A
//! frame's personality routine calls `_Unwind_SetIP` if the frame will handle an exception, a panic or a cancellation;
//! `_Unwind_GetCFA` then returns the frame's stack pointer. Other exits (gcc's `__builtin_longjmp`) are detected late:
//! when the gate is called again, or when a probed call of an outer frame returns.

use crate::calls;
use crate::program_call::Frame;
use crate::shared::Shared;
use crate::tls;

/// The index of the stack pointer in a `jmp_buf`, in glibc and musl.
const STACK_POINTER: usize = 6;
/// The longest accepted jump up the stack, in bytes.
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
    // If a return thunk (a probed call's stub) leads to this frame, `to` is 8 too low (see `unwind_info`). For other
    // frames, adding 8 is harmless. At calls `to` is aligned to 16, so the frame's own call, whose return address is at
    // `to + 8` or above, is not cut.
    calls::cut(to + 8);
}
