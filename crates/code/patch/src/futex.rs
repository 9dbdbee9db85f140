//! Finds futex system calls by their number.
//!
//! The call must run at its own address, because a thread may sleep in it until after the patch's removal, or be
//! cancelled in it. Two patches surround the call: on the `mov $202,%eax` before it, and on the instructions after it.
//! Neither may touch the call's two bytes, to which the kernel returns to restart it after a signal.
//!
//! ```text
//! before:   the program's code up to the `syscall`
//!           [if a register holds the number: cmp $202,%eax; jne call]
//!           push $notice; call FUTEX
//! call:     jmp  the `syscall`
//! after:    [if it may be a wake: cmp $129,%esi and $1; je end]
//!           push $notice; call FUTEX; end: the displaced instructions
//! ```
//! `FUTEX` is an entry of the agent, our library in the target. The flags are free, because code after the call reads
//! only its result.
//!
//! If a function pushes the number for another function that makes the call (`pushed`), the first patch is on the `push
//! $202`. The second, after the return, is often shared with a plain call.

use iced_x86::{Instruction, Register};
use tiptoe_wire::futex::{AFTER, HOLD, MUTEX, RULE, RWLOCK, UNTIMED};

use crate::argument::constants_before;
use crate::code::{Code, IF_EQUAL, IF_NOT_EQUAL, LinkTarget, STEP_BACK, STEP_OVER_RED_ZONE};
use crate::decode::FunctionCode;
use crate::pushed::{PushedNumber, makes_pushed, pushed};
use crate::shape::{Kind, Shape, shape_in};
use crate::strategy::Strategy;
use crate::survey::Survey;
use crate::syscall::{SyscallSite, any_syscall_site, hoisted_sites, syscall_sites};

const FUTEX: u32 = 202;
/// FUTEX_WAKE, whose return needs no notice.
const WAKE: u32 = 1;
/// FUTEX_PRIVATE_FLAG.
const PRIVATE: u32 = 0x80;
/// [`PRIVATE`], and FUTEX_CLOCK_REALTIME (0x100).
const FLAGS: u32 = 0x100 | PRIVATE;

/// How a patch notifies the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notice {
    argument: i32,
    /// Whether wakes, which `%esi` still shows after the call, are not reported.
    skips_wakes: bool,
}

impl Notice {
    /// Returns the notice before a call. `rule`, a `tiptoe_stack::Rule`, finds the caller's frame. If `timed`, a patch
    /// after the call ends the measurement.
    pub fn before_call(rule: u32, timed: bool) -> Notice {
        let untimed = if timed { 0 } else { UNTIMED };
        Notice::of(rule as i32 & RULE | untimed)
    }

    /// Marks the notice as a rwlock's.
    #[must_use]
    pub fn of_rwlock(self) -> Notice {
        Notice::of(self.argument | RWLOCK)
    }

    /// Marks the notice as a mutex's.
    #[must_use]
    pub fn of_mutex(self) -> Notice {
        Notice::of(self.argument | MUTEX)
    }

    /// Returns the notice after a call.
    pub fn after_call(site: &FutexSite, rule: u32) -> Notice {
        Notice {
            argument: rule as i32 & RULE | AFTER,
            skips_wakes: site.may_wake,
        }
    }

    fn of(argument: i32) -> Notice {
        Notice {
            argument,
            skips_wakes: false,
        }
    }

    /// Returns the notice at the entry of a function that takes or releases a lock. `turn`, one of
    /// [`tiptoe_wire::futex::hold`], says which.
    pub fn hold(turn: i32, rule: u32) -> Notice {
        Notice::of(turn & HOLD | rule as i32 & RULE)
    }

    /// Returns whether the notice is after a call.
    pub fn is_after_call(self) -> bool {
        self.argument & AFTER != 0
    }
}

/// A futex call.
#[derive(Clone, Debug)]
pub struct FutexSite {
    /// Where to patch before the call.
    pub call: SyscallSite,
    /// What can be patched after the call, if a jump fits and the call may wait.
    pub after_call: Option<Shape>,
    /// Whether only `%esi`, after the call, shows if the call is a wake.
    may_wake: bool,
}

/// Finds the futex calls that a function makes or others make for it. `other` returns the function at an address.
pub fn futex_sites<'a>(
    function: &FunctionCode,
    other: impl Fn(u64) -> Option<FunctionCode<'a>>,
) -> Vec<FutexSite> {
    let found = syscall_sites(function, &[FUTEX]).into_iter();
    let found = found.chain(hoisted_sites(function, FUTEX));
    let mut sites: Vec<_> = found.map(|call| site(function, call)).collect();
    let mut pushed = pushed(function, FUTEX);
    pushed.retain(|pushed| other(pushed.maker).is_some_and(|maker| makes_pushed(&maker)));
    let pushed: Vec<_> = pushed
        .into_iter()
        .map(|pushed| pushed_site(function, pushed, &sites))
        .collect();
    sites.extend(pushed);
    sites
}

/// Returns the system call of a function like `syscall(3)`.
pub fn any_futex_site(function: &FunctionCode) -> Option<FutexSite> {
    any_syscall_site(function).map(|call| site(function, call))
}

fn site(function: &FunctionCode, call: SyscallSite) -> FutexSite {
    let survey = Survey::new(function);
    let next = call.syscall + 2;
    let after_call = || shape_after_call(function, &survey, (next - function.address) as usize);
    let at_call = |instruction: &Instruction| instruction.ip() == call.syscall;
    let known = constants_before(function, &survey, at_call);
    let operation = known.and_then(|(_, known)| Some(*known.get(&Register::RSI)? as u32));
    let wakes = operation.is_some_and(|op| op & !FLAGS == WAKE);
    FutexSite {
        after_call: if wakes { None } else { after_call() },
        may_wake: operation.is_none() && !survey.is_target(next),
        call,
    }
}

/// Reuses a shape of `plain` if the code after the return leads to it, because patches must not overlap.
fn pushed_site(function: &FunctionCode, pushed: PushedNumber, plain: &[FutexSite]) -> FutexSite {
    let way = pushed.way_back.iter();
    let joins = |at: &usize| {
        let mut after_call = plain.iter().filter_map(|site| site.after_call.as_ref());
        after_call.find(|shape| shape.site() == function.address + *at as u64)
    };
    let joined = way.clone().find_map(joins).cloned();
    let survey = Survey::new(function);
    let own = || {
        way.clone()
            .find_map(|at| shape_after_call(function, &survey, *at))
    };
    let after_call = joined.or_else(own);
    FutexSite {
        call: pushed.site,
        after_call,
        may_wake: false,
    }
}

fn shape_after_call(function: &FunctionCode, survey: &Survey, offset: usize) -> Option<Shape> {
    let mut shape = shape_in(function, survey, offset, Kind::Inside).ok()?;
    // A trap would cost more than most waits.
    shape.windows.retain(|w| w.strategy == Strategy::Jump);
    (!shape.windows.is_empty()).then_some(shape)
}

pub(crate) fn notify(code: &mut Code, notice: Notice) {
    let wakes = notice.skips_wakes.then(|| {
        [WAKE | PRIVATE, WAKE].map(|operation| {
            code.put(&[0x81, 0xfe]).put32(operation as i32); // cmp $operation,%esi
            code.jump_ahead(IF_EQUAL, true)
        })
    });
    code.put(&STEP_OVER_RED_ZONE)
        .put(&[0x68])
        .put32(notice.argument);
    code.relative(&[0xe8], LinkTarget::Futex, &[])
        .put(&STEP_BACK);
    for wake in wakes.into_iter().flatten() {
        code.bind(wake);
    }
}

pub(crate) fn if_any(code: &mut Code, notice: Option<Notice>, after_call: u64) {
    let Some(notice) = notice else { return };
    code.put(&[0x3d]).put32(FUTEX as i32); // cmp $202,%eax
    let other = code.jump_ahead(IF_NOT_EQUAL, true);
    notify(code, notice);
    code.relative(&[0xe9], LinkTarget::Address(after_call - 2), &[]);
    code.bind(other);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// mov $202,%eax; xor $0x80,%sil; syscall; and then `after_call`.
    fn sites(after_call: &[u8]) -> Vec<(u64, u64, Option<u64>)> {
        let call = [0xb8, 0xca, 0, 0, 0, 0x40, 0x80, 0xf6, 0x80, 0x0f, 0x05];
        let bytes = [&call, after_call].concat();
        let function = FunctionCode {
            address: 0x1000,
            bytes: &bytes,
            size: bytes.len(),
        };
        let site = |site: &FutexSite| {
            let after_call = site.after_call.as_ref().map(Shape::site);
            (site.call.address, site.call.syscall, after_call)
        };
        futex_sites(&function, |_| None).iter().map(site).collect()
    }

    #[test]
    fn a_call_is_patched_before_and_if_a_jump_fits_after() {
        // cmp $-4096,%rax; ret
        let compare = [0x48, 0x3d, 0, 0xf0, 0xff, 0xff, 0xc3];
        assert_eq!(sites(&compare), [(0x1000, 0x1009, Some(0x100b))]);
        // ret, and no bytes that may be overwritten.
        assert_eq!(sites(&[0xc3, 0x55]), [(0x1000, 0x1009, None)]);
        // test %eax,%eax; jg; cmp: two heads, and a branch leads to one.
        let run = [0x85, 0xc0, 0x7f, 0x05, 0x83, 0xf8, 0xea, 0x74, 0xfb, 0xc3];
        assert_eq!(sites(&run), [(0x1000, 0x1009, None)]);
        let run = [0x85, 0xc0, 0x7f, 0x05, 0x83, 0xf8, 0xea, 0x74, 0x01, 0xc3];
        assert_eq!(sites(&run), [(0x1000, 0x1009, Some(0x100b))]);
    }
    /// mov $op,%esi; mov $202,%eax; syscall; cmp $-4096,%rax; ret
    #[test]
    fn no_patch_follows_a_wake() {
        let call = [
            0xb8, 0xca, 0, 0, 0, 0x0f, 0x05, 0x48, 0x3d, 0, 0xf0, 0xff, 0xff, 0xc3,
        ];
        let check = |first: &[u8], is: bool, may_wake: bool| {
            let bytes = [first, &call].concat();
            let function = FunctionCode {
                address: 0x1000,
                bytes: &bytes,
                size: bytes.len(),
            };
            let sites = futex_sites(&function, |_| None);
            assert_eq!(sites[0].after_call.is_some(), is, "{first:x?}");
            let found = Notice::after_call(&sites[0], 8).skips_wakes;
            assert_eq!(found, is && may_wake, "{first:x?}");
        };
        check(&[0xbe, 0x81, 0, 0, 0], false, false);
        check(&[0xbe, 0x80, 0, 0, 0], true, false);
        // xor $128,%sil after the mov; a je past the mov, with another operation in %esi.
        check(&[0xbe, 1, 0, 0, 0, 0x40, 0x80, 0xf6, 0x80], true, true);
        check(&[0x74, 0x05, 0xbe, 1, 0, 0, 0], true, true);
        // je past the call, so that %esi may hold any value there.
        check(&[0x74, 0x07], true, false);
    }

    /// Two calls that continue at the same test: mov $202,%eax; syscall; test %eax,%eax; jg; cmp; je; ret; push $202;
    /// call; pop %rdx; pop %rcx; jmp to the test.
    #[test]
    fn a_pushed_call_shares_the_patch_after_the_plain_one() {
        let bytes = [
            0xb8, 0xca, 0, 0, 0, 0x0f, 0x05, 0x85, 0xc0, 0x7f, 0x05, 0x83, 0xf8, 0xea, 0x74, 0x01,
            0xc3, 0x68, 0xca, 0, 0, 0, 0xe8, 0, 0, 0, 0, 0x5a, 0x59, 0xeb, 0xe8, 0xc3,
        ];
        let function = FunctionCode {
            address: 0x1000,
            bytes: &bytes,
            size: bytes.len(),
        };
        // mov 16(%rsp),%rax; syscall; ret
        let maker = [0x48, 0x8b, 0x44, 0x24, 0x10, 0x0f, 0x05, 0xc3];
        let maker = FunctionCode {
            address: 0x101b,
            bytes: &maker,
            size: maker.len(),
        };
        let look = |other: Option<FunctionCode>| {
            let sites = futex_sites(&function, |at| other.filter(|other| other.address == at));
            let places = sites.iter().map(|site| {
                let after_call = site.after_call.as_ref().map(Shape::site);
                (site.call.address, after_call)
            });
            places.collect::<Vec<_>>()
        };
        let plain = (0x1000, Some(0x1007));
        assert_eq!(look(Some(maker)), [plain, (0x1011, Some(0x1007))]);
        assert_eq!(look(None), [plain]);
    }
}
