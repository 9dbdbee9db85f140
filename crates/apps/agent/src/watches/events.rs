//! Opens breakpoints by perf_event_open(2), with perf_event_attr as an array of words.

use tiptoe_sys::raw::{Errno, call, nr};
use tiptoe_wire::WatchTarget;

const PERF_TYPE_BREAKPOINT: u64 = 5;
/// The used bytes of perf_event_attr, up to `sig_data`.
const ATTR_BYTES: u64 = 128;
pub const DISABLED: u64 = 1;
const INHERIT: u64 = 1 << 1;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HV: u64 = 1 << 6;
const INHERIT_THREAD: u64 = 1 << 35;
const REMOVE_ON_EXEC: u64 = 1 << 36;
const SIGTRAP: u64 = 1 << 37;
pub const FLAGS: u64 = INHERIT | INHERIT_THREAD | REMOVE_ON_EXEC | SIGTRAP;
const CLOEXEC: usize = 8;
pub const EXECUTE: u8 = 4;

pub fn attr(watched: &WatchTarget, flags: u64, data: u64) -> [u64; ATTR_BYTES as usize / 8] {
    let mut attr = [0; ATTR_BYTES as usize / 8];
    let words = [
        (0, PERF_TYPE_BREAKPOINT | ATTR_BYTES << 32),
        (2, 1), // sample_period
        (5, flags | EXCLUDE_KERNEL | EXCLUDE_HV),
        (6, u64::from(watched.access) << 32), // bp_type
        (7, watched.address),
        (
            8,
            if watched.access == EXECUTE {
                8
            } else {
                watched.len.into()
            },
        ),
        (15, data), // sig_data
    ];
    for (at, word) in words {
        if let Some(place) = attr.get_mut(at) {
            *place = word;
        }
    }
    attr
}

pub fn perf_event_open(attr: &[u64], tid: u32) -> Result<i32, Errno> {
    let at = attr.as_ptr() as usize;
    let anywhere = -1isize as usize;
    // SAFETY: the attributes state their size, and live through the call.
    let fd = unsafe {
        call(
            nr::PERF_EVENT_OPEN,
            [at, tid as usize, anywhere, anywhere, CLOEXEC, 0],
        )
    };
    fd.map(|fd| fd as i32)
}
