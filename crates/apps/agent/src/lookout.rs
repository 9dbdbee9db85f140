//! Whether the program has confined itself further than the agent's thread is: by a call of libc's the thread leaves
//! first, but an inline system call is seen only afterwards.
//!
//! tiptoe looks from outside and says so in the plan. Where it does not, because it is stopped, the agent's thread
//! looks itself.

use tiptoe_sys::raw::{Errno, call, gettid, nr};
use tiptoe_sys::rights::Rights;
use tiptoe_wire::{Left, Plan};

use crate::tasks::{self, Task};

/// How often the thread looks whether tiptoe has looked.
const PAUSE_NS: u64 = 250_000_000;
/// How often it looks itself where tiptoe has not.
const TICK_NS: u64 = 20_000_000;
/// A wait that nobody ended.
pub const TIMED_OUT: Errno = Errno(110);

/// What was seen last.
pub struct Lookout {
    looks: u64,
    is_alone: bool,
    /// How much seccomp confines a thread of the program from the start.
    seccomp: u32,
}

impl Lookout {
    /// The program is as it is.
    pub fn begin(plan: &Plan) -> Lookout {
        let mut seccomp = 0;
        tasks::each_task(|task| {
            seccomp = seccomp.max(task.rights().map_or(0, |rights| rights.seccomp))
        });
        Lookout {
            looks: plan.looks(),
            is_alone: false,
            seccomp,
        }
    }

    /// How long the thread may wait, given how long it may wait otherwise.
    pub fn pause(&self, most: Option<u64>) -> u64 {
        let own = if self.is_alone { TICK_NS } else { PAUSE_NS };
        own.min(most.unwrap_or(own))
    }

    /// After a wait that nobody ended: why the thread must leave, if it must.
    pub fn look(&mut self, plan: &Plan) -> Option<Left> {
        let looks = plan.looks();
        self.is_alone = looks == self.looks;
        self.looks = looks;
        self.is_alone.then(|| self.reason())?
    }

    fn reason(&self) -> Option<Left> {
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
            true => Some(Left::Seccomp),
            false => (others > 0 && equals == 0).then_some(Left::Confined),
        }
    }
}

impl Task<'_> {
    fn rights(&self) -> Option<Rights> {
        let mut text = [0; 4096];
        Rights::of(self.status(&mut text), |name| {
            // struct stat: the device and the inode come first.
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
                // SAFETY: the path ends with NUL; the kernel writes 144 bytes, which `stat` has.
                unsafe { call(nr::NEWFSTATAT, args) }
            })
            .ok()?;
            let [device, inode, ..] = stat;
            Some([device, inode])
        })
    }
}
