//! The handler of SIGTRAP and SIGILL. [`super`] lists its checks.

use core::sync::atomic::Ordering;

use tiptoe_sys::raw;
use tiptoe_sys::raw::gettid;

use super::pending::{send_to_thread, take_pending};
use super::step;
use super::trap_data::TrapData;
use super::wait::Wait;
use super::{
    ARGUMENTS, Action, Context, Info, OURS, ProgramSignal, RIP, SA_NODEFER, SA_RESETHAND, SIG_DFL,
    SIG_IGN, believed, bit, kernel_action,
};
use crate::mask::set_mask;
use crate::shared;
use crate::space;
use crate::tls;
use crate::watches;

/// Returns whether an `int3` or an invalid instruction raised the signal. The kernel uses these codes for no other
/// signal. A trap byte before the instruction pointer would prove nothing, because a single step or a breakpoint may
/// stop there, too.
fn is_of_trap_byte(info: &Info) -> bool {
    const SI_KERNEL: i32 = 0x80;
    const ILL_ILLOPN: i32 = 2;
    [(5, SI_KERNEL), (4, ILL_ILLOPN)].contains(&(info.signal, info.code))
}

/// Returns whether a debug trap has no reason, neither a breakpoint nor a single step. The kernel reports such a trap
/// as TRAP_BRKPT.
fn has_no_reason(info: &Info) -> bool {
    const TRAP_BRKPT: i32 = 1;
    (info.signal, info.code) == (5, TRAP_BRKPT)
}

pub(super) extern "C" fn on_trap(signal: i32, info: *mut Info, context: *mut Context) {
    // SAFETY: the kernel passes both, valid until the handler returns.
    let (info, context) = unsafe { (&mut *info, &mut *context) };
    if TrapData::of(info, context).is_some_and(|trapped| watches::hit(&trapped)) {
        return;
    }
    if has_no_reason(info) && watches::take_stray(context.register(RIP)) {
        return;
    }
    info.restore();
    if is_of_trap_byte(info) && redirect(signal, context) {
        return;
    }
    let Some(believed) = believed(signal as usize) else {
        return;
    };
    if info.is_fault() {
        let mask = context.mask | tls::blocked();
        step::shown(info, context, |context| {
            chain(believed, signal, info, context, mask);
        });
    } else {
        sent(believed, info, context);
    }
    deliver_more(context);
}

fn deliver_more(context: &mut Context) {
    while super::owned()
        && let Some((signal, info)) = take_pending(OURS & !tls::blocked())
        && let Some(believed) = believed(signal)
    {
        let mask = context.mask | tls::blocked();
        chain(believed, signal as i32, &info, context, mask);
    }
}

fn sent(believed: &ProgramSignal, info: &Info, context: &mut Context) {
    let signal = info.signal;
    let bit = bit(signal as usize);
    let blocked = tls::blocked();
    let wait = Wait::of(context);
    if wait
        .as_ref()
        .is_some_and(|wait| wait.take(bit, info, context))
    {
        return;
    }
    let mask = wait.as_ref().and_then(|wait| wait.mask(context));
    let open = mask.filter(|mask| mask & bit == 0);
    let ignored = believed.action().handler == SIG_IGN;
    if open.is_none() && blocked & bit != 0 {
        believed.hold_back(info);
    } else if !ignored {
        let outer = open.unwrap_or(context.mask | blocked);
        chain(believed, signal, info, context, outer);
        if open.is_some()
            && let Some(wait) = wait
        {
            wait.interrupt(context);
        }
        return;
    }
    if let Some(wait) = wait {
        wait.go_on(context);
    }
}

fn redirect(signal: i32, context: &mut Context) -> bool {
    let Some(shared) = shared::get() else {
        return false;
    };
    let Some(rip) = context.registers.get_mut(RIP) else {
        return false;
    };
    let address = if signal == 5 {
        rip.wrapping_sub(1)
    } else {
        *rip
    };
    let Some(found) = space::find_own_trap(shared, address) else {
        return false;
    };
    *rip = found.resume;
    // SAFETY: the page can be read, because the thread has just executed an instruction of it.
    let first = unsafe { core::ptr::read_volatile(found.site.address as *const u8) };
    if !shared.is_armed(found.index) {
        return true;
    }
    // A trap at an inner byte of a site (a patch) is usually no hit of the probe, because the thread was preempted
    // there before the patch. But if the first byte is not ours, another tracer has put a trap byte there, and has
    // executed the original instruction for the thread. Then the trap is a hit.
    let ours = found.site.patched.first() == Some(&first);
    if found.offset != 0 && !ours && found.site.width() > 0 {
        let [arg0, arg1] = ARGUMENTS.map(|register| context.register(register));
        crate::hit::trapped(&found.site, arg1, arg0);
    }
    if !ours && found.site.original.first() == Some(&first) {
        ask_rearm(shared);
    }
    true
}

fn ask_rearm(shared: &shared::Shared) {
    // A forked child has no tiptoe to wake.
    if shared.is_home()
        && !shared.must_rearm.swap(true, Ordering::AcqRel)
        && let Some(owner) = shared.data().and_then(|data| data.owner())
    {
        raw::futex::wake(owner, u32::MAX);
    }
}

/// Does what the program requested for a signal that arrives under `mask`. As in the kernel, a fault kills the program
/// if the fault's signal is blocked or being handled.
fn chain(believed: &ProgramSignal, signal: i32, info: &Info, context: &mut Context, mask: u64) {
    let action = believed.action();
    let fault = info.is_fault();
    match action.handler {
        SIG_IGN if !fault => {}
        _ if fault && mask & bit(signal as usize) != 0 => die(signal, info, fault),
        SIG_DFL | SIG_IGN => die(signal, info, fault),
        _ => {
            if action.flags & SA_RESETHAND != 0 {
                believed.set_action(Action {
                    handler: SIG_DFL,
                    ..action
                });
            }
            call_handler(&action, signal, info, context, mask);
        }
    }
}

/// Calls the program's handler with its requested mask and `mask` blocked. Does not return if the handler jumps away by
/// siglongjmp, whose change of the mask we intercept.
fn call_handler(action: &Action, signal: i32, info: &Info, context: &mut Context, mask: u64) {
    let own = match action.flags & SA_NODEFER {
        0 => bit(signal as usize),
        _ => 0,
    };
    let inner = mask | action.mask | own;
    context.mask |= tls::blocked(); // a handler finds the interrupted code's mask in its ucontext
    tls::set_blocked(inner & OURS);
    set_mask(inner & !OURS);
    // SAFETY: the program installed this function for this signal.
    let handler: extern "C" fn(i32, *const Info, *mut Context) =
        unsafe { core::mem::transmute(action.handler as usize) };
    handler(signal, info, context);
    // The handler may have changed `context.mask`, which becomes the thread's mask when our handler returns. If the
    // session has ended, the kernel must get the program's whole mask.
    if super::owned() {
        tls::set_blocked(context.mask & OURS);
        context.mask &= !OURS;
    }
}

/// Ends the process by this signal. A SIGILL fault recurs when our handler returns, so only other signals must be sent
/// again.
fn die(signal: i32, info: &Info, fault: bool) {
    let _ = kernel_action(signal as usize, Some(&Action::default()));
    if !fault || signal == 5 {
        send_to_thread(gettid(), signal as usize, info);
    }
}
