//! Detects that the program has confined itself more than the agent's thread is. If the confining call is hooked, the
//! agent's thread ends before the call. Otherwise only the call's effect can be detected.
//!
//! tiptoe checks from outside, and counts its checks in the plan (shared memory). While that count does not grow, the
//! agent's thread itself checks.

use tiptoe_sys::raw::{Errno, call, gettid, nr};
use tiptoe_sys::rights::Rights;
use tiptoe_wire::{LeaveReason, Plan};

use crate::tasks::{self, Task};

/// The interval at which the agent's thread verifies that tiptoe still checks.
const PAUSE_NS: u64 = 250_000_000;
/// The interval of the thread's own checks if tiptoe makes none.
const TICK_NS: u64 = 20_000_000;
pub const TIMED_OUT: Errno = Errno(110);

pub struct ConfinementCheck {
    looks: u64,
    is_alone: bool,
    /// The strictest seccomp mode among the program's threads when the agent's thread started.
    seccomp: u32,
}

impl ConfinementCheck {
    pub fn begin(plan: &Plan) -> ConfinementCheck {
        let mut seccomp = 0;
        tasks::each_task(|task| {
            seccomp = seccomp.max(task.rights().map_or(0, |rights| rights.seccomp))
        });
        ConfinementCheck {
            looks: plan.looks(),
            is_alone: false,
            seccomp,
        }
    }

    pub fn pause(&self, most: Option<u64>) -> u64 {
        let own = if self.is_alone { TICK_NS } else { PAUSE_NS };
        own.min(most.unwrap_or(own))
    }

    /// Checks after a wait that timed out.
    pub fn look(&mut self, plan: &Plan) -> Option<LeaveReason> {
        let looks = plan.looks();
        self.is_alone = looks == self.looks;
        self.looks = looks;
        self.is_alone.then(|| self.reason())?
    }

    fn reason(&self) -> Option<LeaveReason> {
        let own = gettid();
        let mut rights = None;
        tasks::each_task(|task| {
            if task.tid() == own {
                rights = task.rights();
            }
        });
        let rights = rights?;
        let (mut is_filtered, mut others, mut equals) = (false, 0, 0);
        tasks::each_task(|task| {
            let Some(other) = task.rights().filter(|_| task.tid() != own) else {
                return;
            };
            is_filtered |= other.seccomp > self.seccomp;
            others += 1;
            equals += usize::from(rights.are_within(&other));
        });
        match is_filtered {
            true => Some(LeaveReason::Seccomp),
            false => (others > 0 && equals == 0).then_some(LeaveReason::Confined),
        }
    }
}

impl Task<'_> {
    fn rights(&self) -> Option<Rights> {
        let mut text = [0; 4096];
        Rights::of(self.status(&mut text), |name| {
            let mut stat = [0u64; 18];
            self.path(name.to_bytes(), |folder, path| {
                let args = [
                    folder as usize,
                    path.as_ptr() as usize,
                    stat.as_mut_ptr() as usize,
                    0,
                    0,
                    0,
                ];
                // SAFETY: the path ends with NUL; the kernel writes 144 bytes, the size of `stat`.
                unsafe { call(nr::NEWFSTATAT, args) }
            })
            .ok()?;
            let [device, inode, ..] = stat;
            Some([device, inode])
        })
    }
}
