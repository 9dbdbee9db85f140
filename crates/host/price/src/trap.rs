//! Measures the cost of a breakpoint with a signal handler.

use std::arch::naked_asm;
use std::io;

use super::child::{Child, now_ns};
use super::median;
use super::price::{self, Price};

const HITS: u32 = 222;
const REPEATS: usize = 9;

#[derive(Debug)]
pub(super) struct Trap(pub(super) f64);

impl Price for Trap {
    const KIND: &'static str = "trap";

    fn numbers(&self) -> Vec<f64> {
        vec![self.0]
    }

    fn of_numbers(numbers: &[f64]) -> Option<Trap> {
        price::bounded(numbers).map(|[ns]| Trap(ns))
    }
}

pub(super) fn measure() -> io::Result<Trap> {
    // SAFETY: `hits` calls only sigaction, sigprocmask, clock_gettime and functions of this module; all
    // async-signal-safe.
    let mut child = unsafe { Child::start(hits) }?;
    let all: io::Result<Vec<f64>> = (0..REPEATS).map(|_| child.ask(0)).collect();
    Ok(Trap(median(all?)))
}

fn hits(_: u8) -> f64 {
    // SAFETY: the set and the action are initialised before use. The handler writes only its context. `breakpoint` is a
    // C function.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = move_on as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigaction(libc::SIGTRAP, &action, std::ptr::null_mut());
        let mut trap: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&mut trap, libc::SIGTRAP);
        libc::sigprocmask(libc::SIG_UNBLOCK, &trap, std::ptr::null_mut());
        let start = now_ns();
        for _ in 0..HITS {
            breakpoint();
        }
        (now_ns() - start) / f64::from(HITS)
    }
}

/// `ud2` never runs, because the handler moves the thread to [`displaced`].
#[unsafe(naked)]
extern "C" fn breakpoint() {
    naked_asm!("int3", "ud2");
}

#[unsafe(naked)]
extern "C" fn displaced() {
    naked_asm!("ret");
}

/// Moves the thread to [`displaced`]. tiptoe's handler likewise moves it to copies of the overwritten instructions.
extern "C" fn move_on(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: with SA_SIGINFO the kernel gives a valid context.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    let rip = &mut context.uc_mcontext.gregs[libc::REG_RIP as usize];
    if *rip == breakpoint as *const () as i64 + 1 {
        *rip = displaced as *const () as i64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trap_is_measured_and_leaves_no_handler() {
        let handler = || {
            // SAFETY: the call only reads the action, whose fields may all be zero.
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                libc::sigaction(libc::SIGTRAP, std::ptr::null(), &mut action);
                action.sa_sigaction
            }
        };
        let before = handler();
        let Trap(ns) = measure().expect("a child that traps");
        assert!(ns.is_finite() && ns > 0.0);
        assert_eq!(handler(), before);
    }
}
