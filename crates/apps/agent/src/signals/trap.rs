//! The handler of both signals: ours first, then the program's.

use core::sync::atomic::Ordering;

use tiptoe_sys::raw;
use tiptoe_sys::raw::gettid;

use super::pending::send_to_thread;
use super::{
    Action, Believed, Context, Info, OURS, RIP, SA_NODEFER, SA_RESETHAND, SIG_DFL, SIG_IGN,
    believed, kernel_action,
};
use crate::shared;
use crate::thread::set_mask;
use crate::tls;

/// The handler of both signals.
pub(super) extern "C" fn on_trap(signal: i32, info: *mut Info, context: *mut Context) {
    // SAFETY: the kernel passes both, valid until the handler returns.
    let (info, context) = unsafe { (&*info, &mut *context) };
    if info.code > 0 && redirect(signal, context) {
        return;
    }
    let Some(believed) = believed(signal as usize) else {
        return;
    };
    let bit = 1u64 << (signal - 1);
    if info.code <= 0 && tls::blocked() & bit != 0 {
        return believed.hold_back(info);
    }
    chain(believed, signal, info, context);
}

/// Moves a thread that met one of our trap bytes to where it goes on.
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
    let Some(found) = shared.table.find(address) else {
        return false;
    };
    *rip = found.resume;
    // SAFETY: the thread just executed an instruction on this page.
    let first = unsafe { core::ptr::read_volatile(found.site.address as *const u8) };
    let armed = shared.armed.get(found.index);
    // Relaxed: whether it counts is a matter of when, not of order.
    if armed.is_none_or(|armed| armed.load(Ordering::Relaxed) == 0) {
        return true;
    }
    // A thread inside the window was preempted there before the patch, and is
    // none of our hits, or somebody else's trap ran our first instruction for us.
    let ours = found.site.patched.first() == Some(&first);
    if found.offset != 0 && !ours && !found.site.flags.has(tiptoe_wire::SiteFlags::HOOK) {
        crate::hit::cold(found.site.slot as u64);
    }
    if !ours && found.site.original.first() == Some(&first) {
        ask_rearm(shared);
    }
    true
}

fn ask_rearm(shared: &shared::Shared) {
    if !shared.rearm.swap(true, Ordering::AcqRel)
        && let Some(owner) = shared.data().and_then(|data| data.owner())
    {
        raw::futex::wake(owner, u32::MAX);
    }
}

/// Does with a signal what the program asked for.
fn chain(believed: &Believed, signal: i32, info: &Info, context: &mut Context) {
    let action = believed.action();
    let fault = info.code > 0;
    match action.handler {
        SIG_IGN if !fault => {}
        SIG_DFL | SIG_IGN => die(signal, info, fault),
        handler => {
            if action.flags & SA_RESETHAND != 0 {
                believed.set_action(Action {
                    handler: SIG_DFL,
                    ..action
                });
            }
            call_handler(handler, &action, signal, info, context);
        }
    }
}

/// Calls the program's handler under the mask it asked for.
fn call_handler(handler: u64, action: &Action, signal: i32, info: &Info, context: &mut Context) {
    let bit = 1u64 << (signal - 1);
    let own = if action.flags & SA_NODEFER == 0 {
        bit
    } else {
        0
    };
    let believed_before = tls::blocked();
    context.mask |= believed_before; // what a handler finds in its ucontext
    tls::set_blocked(believed_before | (action.mask & OURS) | own);
    set_mask((context.mask | action.mask) & !OURS);
    // SAFETY: the program installed this function for this signal.
    let handler: extern "C" fn(i32, *const Info, *mut Context) =
        unsafe { core::mem::transmute(handler as usize) };
    handler(signal, info, context);
    // The handler may have changed the mask that is restored on return.
    tls::set_blocked(context.mask & OURS);
    context.mask &= !OURS;
}

/// The default action: end the process by this very signal. A fault happens
/// again when the handler returns; anything else is sent again.
fn die(signal: i32, info: &Info, fault: bool) {
    let _ = kernel_action(signal as usize, Some(&Action::default()));
    if !fault || signal == 5 {
        send_to_thread(gettid(), signal as usize, info);
    }
}
