//! Places where threads wait for a lock in the kernel, or wake one that waits: the futex
//! system calls of a library, found by their number.
//!
//! A call is made at its own address: a thread that sleeps in it can be cancelled, and may
//! sleep on when the patch goes. So there are two patches, one on the `mov $202,%eax` in
//! front and one on what stands behind the `syscall`, and neither touches the two bytes
//! of the call itself, to which the kernel returns to make it again after a signal.
//!
//! ```text
//! in front: what the program does between the `mov` and the `syscall`
//!           cmp  $202,%eax; jne call where a register holds the number, it may be another
//!           lea  -128(%rsp),%rsp     the red zone
//!           push $what is known of the place
//!           call FUTEX               returns by `ret $8`
//!           lea  128(%rsp),%rsp
//! call:     jmp  the `syscall`
//! behind:   the same, then the displaced instructions
//! ```
//! The flags are nobody's in either place: the call's result is all that is looked at.

use tiptoe_wire::futex::{AFTER, DEPTH, UNTIMED};

use crate::Refusal;
use crate::code::{Code, IF_NOT_EQUAL, To};
use crate::decode::{FunctionCode, Survey};
use crate::shape::{Kind, Shape, Strategy, shape_in};
use crate::syscall::{SyscallSite, any_syscall_site, hoisted_sites, syscall_sites};
use crate::trampoline::{STEP_BACK, STEP_OVER_RED_ZONE};

/// The number of the system call.
const FUTEX: u32 = 202;

/// What the agent is told of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notice(i32);

impl Notice {
    /// In front of a call, where the caller's frame begins so many bytes above the stack
    /// pointer; 0 where nobody knows. `timed` says that something stands behind it.
    pub fn before(depth: u16, timed: bool) -> Notice {
        let untimed = if timed { 0 } else { UNTIMED };
        Notice(i32::from(depth) & DEPTH | untimed)
    }

    /// Behind a call.
    pub const BEHIND: Notice = Notice(AFTER);

    pub(crate) fn is_behind(self) -> bool {
        self == Notice::BEHIND
    }
}

/// A futex call. Where a register holds its number only a short jump or a trap fits in front.
#[derive(Clone, Debug)]
pub struct FutexSite {
    /// The way to it.
    pub call: SyscallSite,
    /// What can stand behind it, where a jump fits.
    pub behind: Option<Shape>,
}

/// Finds the futex calls of a function.
pub fn futex_sites(function: &FunctionCode) -> Vec<FutexSite> {
    let found = syscall_sites(function, &[FUTEX]).into_iter();
    let found = found.chain(hoisted_sites(function, FUTEX));
    found.map(|call| site(function, call)).collect()
}

/// The call of a function that makes any, which may be one.
pub fn any_futex_site(function: &FunctionCode) -> Option<FutexSite> {
    any_syscall_site(function).map(|call| site(function, call))
}

fn site(function: &FunctionCode, call: SyscallSite) -> FutexSite {
    let behind = behind(function, call.syscall).ok();
    FutexSite { call, behind }
}

fn behind(function: &FunctionCode, syscall: u64) -> Result<Shape, Refusal> {
    let offset = (syscall + 2 - function.address) as usize;
    let mut shape = shape_in(function, &Survey::new(function), offset, Kind::Inside)?;
    // A trap would cost more than most waits.
    shape.windows.retain(|w| w.strategy == Strategy::Jump);
    match shape.windows.is_empty() {
        true => Err(Refusal::NoRoom),
        false => Ok(shape),
    }
}

/// Tells the agent.
pub(crate) fn tell(code: &mut Code, Notice(known): Notice) {
    code.put(&STEP_OVER_RED_ZONE).put(&[0x68]).put32(known);
    code.relative(&[0xe8], To::Futex, &[]).put(&STEP_BACK);
}

/// Tells it of the call in front of `behind`, where its number is that of futex calls.
pub(crate) fn if_any(code: &mut Code, notice: Option<Notice>, behind: u64) {
    let Some(notice) = notice else { return };
    code.put(&[0x3d]).put32(FUTEX as i32); // cmp $202,%eax
    let other = code.jump_ahead(IF_NOT_EQUAL, true);
    tell(code, notice);
    code.relative(&[0xe9], To::Address(behind - 2), &[]);
    code.bind(other);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// mov $202,%eax; xor $0x80,%sil; syscall; and what stands behind.
    fn sites(behind: &[u8]) -> Vec<(u64, u64, Option<u64>)> {
        let call = [0xb8, 0xca, 0, 0, 0, 0x40, 0x80, 0xf6, 0x80, 0x0f, 0x05];
        let bytes = [&call, behind].concat();
        let function = FunctionCode {
            address: 0x1000,
            bytes: &bytes,
            size: bytes.len(),
        };
        let site = |site: &FutexSite| {
            let behind = site.behind.as_ref().map(Shape::site);
            (site.call.address, site.call.syscall, behind)
        };
        futex_sites(&function).iter().map(site).collect()
    }

    #[test]
    fn a_call_has_a_front_and_where_a_jump_fits_a_back() {
        // cmp $-4096,%rax; ret
        let compare = [0x48, 0x3d, 0, 0xf0, 0xff, 0xff, 0xc3];
        assert_eq!(sites(&compare), [(0x1000, 0x1009, Some(0x100b))]);
        // ret, and nothing that may be written over.
        assert_eq!(sites(&[0xc3, 0x55]), [(0x1000, 0x1009, None)]);
        // test %eax,%eax; jg; cmp: two heads, and one is jumped to.
        let run = [0x85, 0xc0, 0x7f, 0x05, 0x83, 0xf8, 0xea, 0x74, 0xfb, 0xc3];
        assert_eq!(sites(&run), [(0x1000, 0x1009, None)]);
        let run = [0x85, 0xc0, 0x7f, 0x05, 0x83, 0xf8, 0xea, 0x74, 0x01, 0xc3];
        assert_eq!(sites(&run), [(0x1000, 0x1009, Some(0x100b))]);
    }
}
