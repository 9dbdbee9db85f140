//! Intercepts system calls of the program that would have another effect with the agent present. A *hook* is a patch
//! that replaces the `mov $NUMBER,%eax` before the call, or is in libc's function `syscall`.
//!
//! If a hook performs the call, its generated code, a *trampoline*, continues after the call. Otherwise the program
//! makes the call at the original address, so that a thread waiting there can be cancelled or unwound as usual.

use tiptoe_sys::raw::{nr, syscall6};
use tiptoe_wire::LeaveReason;
use tiptoe_wire::calls::{NOT_LIBCS, intercepted};

use crate::calls;
use crate::children;
use crate::forbidden;
use crate::locked;
use crate::mask::{OURS, set_mask};
use crate::own_thread::take_slab_away;
use crate::program_call::{Frame, perform};
use crate::shared;
use crate::signals::{self, Action};
use crate::space;
use crate::stubs::{tiptoe_clone_born, tiptoe_clone_cleared};
use crate::thread;
use crate::tls;
use crate::unwind;
use crate::watches;

mod waits;

/// The distance from a hook's return address to the code that skips the `syscall` (`tiptoe-patch`, `build`).
const PERFORMED: u64 = 25;

const SIG_BLOCK: u64 = 0;
const SIG_UNBLOCK: u64 = 1;
const EINVAL: i64 = -22;
const PR_SET_TSC: u32 = 26;

pub extern "C" fn hook(frame: &mut Frame) {
    let what = frame.what as u32;
    if what as i32 >= 0 && what & intercepted::FUNCTION != 0 {
        return intercept(what & !intercepted::FUNCTION, frame);
    }
    let number = frame.rax as u32 as usize;
    let is_libcs = what == u32::MAX || what & NOT_LIBCS == 0;
    if !is_libcs && !tls::is_on_libcs_block() {
        return before_without_words(number, frame);
    }
    if is_libcs {
        tls::recall(false);
    }
    if number == nr::CLONE3 && signals::owned() && clears_handlers(frame) {
        before(number, frame);
        tls::set_cloned(frame.back + PERFORMED);
        frame.back = tiptoe_clone_cleared as *const () as u64;
        return;
    }
    if let Some(result) = perform_if_hooked(number, frame) {
        frame.rax = result as u64;
        frame.back += PERFORMED;
    }
}

/// Returns `None` if the program must make the call.
fn perform_if_hooked(number: usize, frame: &mut Frame) -> Option<i64> {
    match number {
        nr::RT_SIGACTION => Some(sigaction(frame)),
        nr::RT_SIGPROCMASK => Some(sigprocmask(frame)),
        nr::RT_SIGPENDING => Some(sigpending(frame)),
        nr::SIGNALFD | nr::SIGNALFD4 => signalfd(number, frame),
        nr::MREMAP if space::moves_inherited_patches(number, frame) => {
            children::restore();
            None
        }
        nr::MMAP | nr::MPROTECT | nr::MUNMAP | nr::MREMAP | nr::PKEY_MPROTECT => {
            space::change(number, frame)
        }
        nr::MLOCKALL => locked::lock_all(frame.rdi as u32),
        nr::PRCTL if frame.rdi as u32 == PR_SET_TSC => Some(forbidden::change(frame)),
        nr::EXECVE | nr::EXECVEAT => Some(exec(number, frame)),
        nr::UNSHARE | nr::SETNS => Some(perform_without_agents_thread(number, frame)),
        _ => match signals::MaskLocation::of(number) {
            Some(location) => waits::prepare(number, location, frame),
            None => {
                before(number, frame);
                follow_birth(number, frame);
                None
            }
        },
    }
}

/// If threads inherit breakpoints, makes the new thread call [`born`] before its own code.
fn follow_birth(number: usize, frame: &mut Frame) {
    if !matches!(number, nr::CLONE | nr::CLONE3) || !watches::are_inherited() {
        return;
    }
    if let Some(block) = block_of_thread(number, frame).filter(|block| tls::is_laid_out(*block)) {
        // SAFETY: libc made this block, and its thread does not run yet.
        unsafe { tls::set_cloned_of(block, frame.back + PERFORMED) };
        tls::set_cloned(frame.back + PERFORMED);
        frame.back = tiptoe_clone_born as *const () as u64;
    }
}

/// Handles an intercepted function's entry. With the zero flag set, the trampoline returns to the function's caller.
fn intercept(what: u32, frame: &mut Frame) {
    const ZERO: u64 = 1 << 6;
    frame.flags &= !ZERO;
    if let Some(result) = unwind::intercept(what, frame) {
        frame.rax = result;
        frame.flags |= ZERO;
    }
}

/// Prepares a system call of a thread whose thread-local block may lack our words. This function must not access them,
/// because the program's own memory may be there.
fn before_without_words(number: usize, frame: &Frame) {
    let Some(shared) = shared::at_home() else {
        return;
    };
    let storage = storage(number, frame).filter(|block| !tls::is_laid_out(*block));
    let why = storage.map(|_| LeaveReason::Storage);
    if let Some(why) = why.or_else(|| rules(number, frame)) {
        thread::leave(shared, why);
    }
}

fn before(number: usize, frame: &Frame) {
    const PTRACE_TRACEME: u64 = 0;
    const PTRACE_ATTACH: u64 = 16;
    const PTRACE_SEIZE: u64 = 0x4206;
    match number {
        nr::PTRACE if frame.rdi == PTRACE_TRACEME => children::restore(),
        nr::PTRACE if [PTRACE_ATTACH, PTRACE_SEIZE].contains(&frame.rdi) => {
            children::restore_in(frame.rsi as u32);
        }
        _ => {}
    }
    if let Some(block) = storage(number, frame) {
        before_storage(block);
    }
    match rules(number, frame) {
        Some(why) => before_rules(why),
        None => before_child(number, frame),
    }
}

/// Returns the thread-local block to which a call switches the calling thread.
fn storage(number: usize, frame: &Frame) -> Option<u64> {
    const ARCH_SET_FS: u64 = 0x1002;
    (number == nr::ARCH_PRCTL && frame.rdi == ARCH_SET_FS).then_some(frame.rsi)
}

/// Returns why the session must end before a call that restricts system calls.
fn rules(number: usize, frame: &Frame) -> Option<LeaveReason> {
    const PR_SET_SECCOMP: u64 = 22;
    const PR_SET_SYSCALL_USER_DISPATCH: u64 = 59;
    // The modes are those of seccomp(2): 0 is strict; 1 is a filter, whose address is in rdx.
    let mode = match number {
        nr::PRCTL if frame.rdi == PR_SET_SYSCALL_USER_DISPATCH && frame.rsi != 0 => {
            return Some(LeaveReason::Dispatch);
        }
        nr::PRCTL if frame.rdi == PR_SET_SECCOMP => frame.rsi.wrapping_sub(1),
        nr::SECCOMP => u64::from(frame.rdi as u32),
        _ => return None,
    };
    // Without a filter's address the program only asks which features the kernel has.
    (mode == 0 || (mode == 1 && frame.rdx != 0)).then_some(LeaveReason::Seccomp)
}

/// Ends the session before the program installs a filter or dispatcher of system calls, which may refuse the agent's
/// calls.
fn before_rules(why: LeaveReason) {
    match shared::at_home() {
        Some(shared) => thread::leave(shared, why),
        None => children::restore(),
    }
}

/// Prepares a thread's switch to another thread-local block. If libc did not lay that block out, the session must end,
/// because trampolines would take an arbitrary word of it for the descriptor's address.
fn before_storage(block: u64) {
    if tls::is_laid_out(block) {
        // SAFETY: libc made this block, and its thread does not run on it yet.
        unsafe { tls::give_words(block) };
        return;
    }
    if let Some(shared) = shared::get() {
        calls::leave_all(shared);
    }
    if let Some(shared) = shared::at_home() {
        thread::leave(shared, LeaveReason::Storage);
    }
}

/// Prepares the creation of a child. A child that shares this memory must not count in its parent's slab (block of
/// counters). So the slab is taken from this thread until its next hit of a probe.
fn before_child(number: usize, frame: &Frame) {
    if copies_memory(number, frame) {
        space::count_fork();
    }
    if matches!(number, nr::CLONE | nr::CLONE3) {
        if let Some(block) = block_of_child(number, frame) {
            before_storage(block);
        }
        watches::births::before();
    }
    if matches!(number, nr::VFORK | nr::CLONE | nr::CLONE3) {
        take_slab_away();
    }
}

fn copies_memory(number: usize, frame: &Frame) -> bool {
    const CLONE_VM: u64 = 0x100;
    let flags = match number {
        nr::FORK => 0,
        nr::CLONE => frame.rdi,
        nr::CLONE3 => clone_record(frame).map_or(CLONE_VM, |[flags, ..]| *flags),
        _ => return false,
    };
    flags & CLONE_VM == 0
}

/// Returns whether a child must call [`cleared`], because the kernel will drop our handlers. A child that shares this
/// memory while its parent runs must not call it, because the parent may change clone3's record, which the stub (`asm`)
/// reads.
fn clears_handlers(frame: &Frame) -> bool {
    const CLONE_VM: u64 = 0x100;
    const CLONE_VFORK: u64 = 0x4000;
    const CLONE_CLEAR_SIGHAND: u64 = 1 << 32;
    let flags = clone_record(frame).map_or(0, |[flags, ..]| *flags);
    flags & CLONE_CLEAR_SIGHAND != 0 && flags & (CLONE_VM | CLONE_VFORK) != CLONE_VM
}

/// Runs before a child's own code, if its creation dropped our handlers (posix_spawn since glibc 2.38).
pub extern "C" fn cleared() {
    signals::after_clear();
}

pub extern "C" fn born() {
    watches::born();
}

/// Returns clone3's record, from `flags` to `tls`.
fn clone_record(frame: &Frame) -> Option<&[u64; 8]> {
    let whole = frame.rsi >= 8 * 8;
    // SAFETY: libc passes a valid record of the size in rsi.
    let record = unsafe { (frame.rdi as *const [u64; 8]).as_ref() };
    record.filter(|_| whole)
}

fn clone_flags(number: usize, frame: &Frame) -> Option<(u64, u64)> {
    match number {
        nr::CLONE => Some((frame.rdi, frame.r8)),
        _ => clone_record(frame).map(|&[flags, .., block]| (flags, block)),
    }
}

/// Returns `None` if the block is the parent's.
fn block_of_child(number: usize, frame: &Frame) -> Option<u64> {
    const CLONE_SETTLS: u64 = 0x8_0000;
    let (flags, block) = clone_flags(number, frame)?;
    (flags & CLONE_SETTLS != 0).then_some(block)
}

/// Returns `None` if the call creates a process.
fn block_of_thread(number: usize, frame: &Frame) -> Option<u64> {
    const CLONE_THREAD: u64 = 0x1_0000;
    let (flags, _) = clone_flags(number, frame)?;
    (flags & CLONE_THREAD != 0).then(|| block_of_child(number, frame))?
}

/// Performs unshare or setns. These calls fail while the agent's thread exists, or leave that thread in the old
/// namespace. So that thread ends before the call (if it does in time), and starts again afterwards. After a change of
/// the PID namespace no thread can start, so the caller ends the session.
fn perform_without_agents_thread(number: usize, frame: &Frame) -> i64 {
    // Signals are blocked, because a handler that jumps away would keep the session's lock, and a handler that forks
    // would make its child run the code below.
    let mask = set_mask(!OURS);
    let session = shared::at_home().and_then(thread::retire);
    if session.is_some() {
        watches::after_retreat();
    }
    let result = perform(number, frame);
    let started = session.map(thread::start);
    let is_back = matches!(started, Some(Ok(())));
    if let Some(Err((session, _))) = started {
        thread::end_session_here(session);
    }
    set_mask(mask);
    if is_back {
        watches::wait_until_back();
    }
    result
}

fn kept() -> u64 {
    if signals::owned() { OURS } else { 0 }
}

fn exec(number: usize, frame: &Frame) -> i64 {
    if !signals::owned() {
        return perform(number, frame);
    }
    let blocked = signals::before_exec();
    watches::note_exec(true);
    let result = perform(number, frame);
    watches::note_exec(false);
    signals::after_failed_exec(blocked);
    result
}

fn signalfd(number: usize, frame: &Frame) -> Option<i64> {
    let flags = match number {
        nr::SIGNALFD4 => frame.r10,
        _ => 0,
    };
    // SAFETY: libc passes a valid set of the size in rdx.
    let set = unsafe { (frame.rsi as *const u64).as_ref() }.copied()?;
    (frame.rdx == 8).then(|| signals::signalfd(frame.rdi as i32, set, flags))?
}

fn sigaction(frame: &Frame) -> i64 {
    if frame.r10 != 8 {
        return EINVAL;
    }
    // SAFETY: libc passes NULL or its own, valid record.
    let new = unsafe { (frame.rsi as *const Action).as_ref() }.copied();
    match signals::program_action(frame.rdi as usize, new) {
        Ok(old) => {
            // SAFETY: libc passes NULL or room for a record of its own.
            if let Some(out) = unsafe { (frame.rdx as *mut Action).as_mut() } {
                *out = old;
            }
            0
        }
        Err(errno) => -(errno.0 as i64),
    }
}

fn sigprocmask(frame: &Frame) -> i64 {
    // SAFETY: libc passes NULL or a valid set of the size in r10.
    let set = unsafe { (frame.rsi as *const u64).as_ref() }.copied();
    let kept = kept();
    let kernel_set = set.map(|set| set & !kept);
    let kernel_set_at = kernel_set
        .as_ref()
        .map_or(0, |set| core::ptr::from_ref(set) as usize);
    let [how, old, size] = [frame.rdi, frame.rdx, frame.r10].map(|word| word as usize);
    // SAFETY: this is the program's own call, on a copy of its set.
    let result =
        unsafe { syscall6(nr::RT_SIGPROCMASK, how, kernel_set_at, old, size, 0, 0) } as i64;
    if result != 0 {
        return result;
    }
    if kept == 0 {
        if signals::owned() {
            believe_as_blocked();
        }
        return 0;
    }
    let blocked = tls::blocked();
    // SAFETY: the kernel just wrote there, unless it is NULL.
    if let Some(out) = unsafe { (frame.rdx as *mut u64).as_mut() } {
        *out |= blocked;
    }
    if let Some(set) = set {
        tls::set_blocked(match frame.rdi as u32 as u64 {
            SIG_BLOCK => blocked | (set & OURS),
            SIG_UNBLOCK => blocked & !set,
            _ => set & OURS,
        });
        match signals::owned() {
            true => signals::deliver_pending(),
            false => signals::block_as_believed(),
        }
    }
    0
}

/// Moves SIGTRAP and SIGILL from the kernel's mask to our record, because the agent took them over during this hook.
fn believe_as_blocked() {
    let mask = set_mask(u64::MAX);
    tls::set_blocked(mask & OURS);
    set_mask(mask & !OURS);
}

fn sigpending(frame: &Frame) -> i64 {
    let result = perform(nr::RT_SIGPENDING, frame);
    if result == 0 {
        // SAFETY: the kernel just wrote there.
        if let Some(out) = unsafe { (frame.rdi as *mut u64).as_mut() } {
            *out |= signals::pending_set();
        }
    }
    result
}
