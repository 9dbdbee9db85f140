//! Accounts for the debug registers of the program's threads, in memory shared with tiptoe. The agent's thread does so
//! when it opens a thread's events (breakpoints). A thread that inherits events does so before its own code ([`born`])
//! or, if libc did not create it, at its first hit.
//!
//! A new thread must not wait. A signal handler must not wait either, because it would deadlock if it interrupted a
//! reservation of its thread. So the agent's thread is woken to reserve the registers that cannot be reserved at once.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use tiptoe_breakpoint::{Accounting, Error, Geometry, Kind, Request, Target, Wait};
use tiptoe_sys::raw::{self, gettid};
use tiptoe_wire::Data;
use tiptoe_wire::hits::{AsyncRequest, Hits, Meeting};

use super::events::EXECUTE;
use super::{REGISTERS, WATCHES, hits, watched};
use crate::shared::{self, Shared};

struct Futex;

impl Wait for Futex {
    const LOOKS: u32 = 100;

    fn park(&self, word: &AtomicU64, seen: u64) {
        let _ = raw::futex::wait_low(word, seen as u32, None);
    }

    fn unpark(&self, word: &AtomicU64) {
        raw::futex::wake_low(word, 1);
    }

    fn now_ns(&self) -> u64 {
        raw::monotonic_ns()
    }
}

/// Releases ended threads' registers. Reserves for other threads the registers that could not be reserved without
/// waiting.
pub fn look(shared: &Shared, hits: &Hits) {
    let pid = shared.pid.load(Relaxed); // constant within a session
    let all = registers();
    hits.part(all, |tid, reserved| {
        let is_gone = !raw::thread_alive(pid, tid);
        if is_gone {
            account(hits, tid, reserved, |accounts, request| {
                accounts.release(request)
            });
        }
        is_gone
    });
    hits.make_up(all, |tid, reserved| {
        reserved
            | account(hits, tid, all & !reserved, |accounts, request| {
                accounts.reserve(request)
            })
    });
}

pub fn born() {
    if let Some(shared) = shared::at_home()
        && let Some(data) = shared.data()
        && let Some(hits) = hits(&data)
        && let Meeting::Full = meet_self(&data, &hits, gettid())
    {
        hits.refuse();
    }
}

pub fn is_new(hits: &Hits, tid: u32) -> bool {
    matches!(meet(hits, tid), Meeting::New(_))
}

/// As [`meet`], for the calling thread. Wakes the agent's thread if some registers cannot be reserved at once.
pub fn meet_self(data: &Data, hits: &Hits, tid: u32) -> Meeting<bool> {
    let met = meet(hits, tid);
    if let Meeting::New(false) = met
        && let Some(owner) = data.owner()
    {
        raw::futex::wake(owner, u32::MAX);
    }
    met
}

/// Accounts for a thread's registers once, without waiting. For a new thread, returns whether all are reserved. A
/// refused reservation closes no event, because the kernel has already given the thread its registers.
fn meet(hits: &Hits, tid: u32) -> Meeting<bool> {
    let all = registers();
    hits.meet(tid).map(|thread| {
        let reserved = account(hits, tid, all, |accounts, request| {
            accounts.try_reserve(request)
        });
        thread.set_reserved(reserved);
        if reserved != all {
            hits.ask(AsyncRequest::Look);
        }
        reserved == all
    })
}

fn registers() -> u8 {
    (0..WATCHES.count.load(Relaxed)).fold(0, |bits, number| bits | 1 << number)
}

type Accounts<'a> = Accounting<'a, Futex>;

/// Reserves or releases a thread's registers by `act`. Returns the registers for which `act` succeeded.
fn account(
    hits: &Hits,
    tid: u32,
    registers: u8,
    act: impl Fn(&Accounts, &Request) -> Result<(), Error>,
) -> u8 {
    let words = hits.accounting();
    let accounts = words.and_then(|words| {
        let geometry = Geometry::of_process(WATCHES.cpus.load(Relaxed))?;
        Accounting::new(geometry, words.atomics(), &Futex)
    });
    let Some(accounts) = accounts else { return 0 };
    let target = Target::Task {
        task: tid.into(),
        cpu: None,
    };
    let numbers = (0..REGISTERS).filter(|number| registers >> number & 1 != 0);
    numbers.fold(0, |done, number| {
        let is_code = watched(number).is_some_and(|watched| watched.access == EXECUTE);
        let kind = if is_code {
            Kind::Instruction
        } else {
            Kind::Data
        };
        let outcome = act(&accounts, &Request::new(target, kind, number as u64));
        done | u8::from(outcome.is_ok()) << number
    })
}
