//! Borrows a thread of the target: stops it, checks its stack, and sends it to the injected code, the [`stub`].
//!
//! The search runs on a new thread of tiptoe. If the target's thread does not stop, only the end of this tracing
//! thread makes the kernel detach.

use std::time::{Duration, Instant};

use libc::user_regs_struct;
use tiptoe_sys::host::attach_progress;
use tiptoe_sys::host::procfs::Mapping;
use tiptoe_sys::host::random;

use super::cave::{self, Cave};
use super::process::{self, Process};
use super::restart::{self, Rank};
use super::stub::{self, MAGIC, Mailbox, PAGE, Params};
use super::traced_thread::{StopFailure, StoppedThread};
use super::unwind::{StackState, Stacks};
use crate::error::inject_error::{BusyReason, InjectCall, InjectError, UnfitThread};

const PATIENCE: Duration = Duration::from_millis(200);
/// The most files of one stack to read before the next thread is tried.
const MAX_FILES: usize = 64;
/// For at most this time, a search skips threads whose interrupted calls would start their time-outs again.
const LONGEST_POLL: Duration = Duration::from_millis(500);
/// The extra pause while the loader's lock is held.
const LOCKED: Duration = Duration::from_millis(2);
/// For this time after the loader's lock was seen free, holds of the lock count as short. Then tiptoe borrows a thread
/// even during a hold, although `dlopen` may have to wait. Otherwise tiptoe could never enter a program that often
/// opens libraries.
const SHORT_HOLDS: Duration = Duration::from_millis(100);
/// Holds also count as short if the loader's state changes more often than this within [`SHORT_HOLDS`]. A loop that
/// opens libraries frees the lock for only some ten nanoseconds, which polls may miss for seconds, but the loop changes
/// the state. A slow constructor holds the lock without a change of the state.
const CHANGES: u32 = 4;
/// [`Params::lease`]: after 0.3 s without a heartbeat the stub returns to the program.
const LEASE: u64 = 5000;
/// Bytes of the stub's stack; the loader needs a few tens of KiB.
const STACK: u64 = 256 << 10;

pub(super) struct BorrowedThread {
    pub tid: u32,
    /// When tiptoe began to stop the thread.
    pub since: Instant,
    pub home: u64,
    /// The address and old bytes of the [`Cave`], which tiptoe must restore if the stub cannot.
    pub cave: Option<(u64, Vec<u8>)>,
}

/// Where the stub starts, and the address of its home (two pages that stay mapped).
pub(super) struct StubStart {
    /// `None` if the stub starts at the home of an earlier injection.
    cave: Option<Cave>,
    home: u64,
}

impl StubStart {
    pub(super) fn find(
        process: &Process,
        mappings: &[Mapping],
        loader: u64,
    ) -> Result<Self, InjectError> {
        if let Some(home) = cave::old_home(process, mappings) {
            return Ok(Self { cave: None, home });
        }
        let cave = Some(cave::find(process, mappings, loader)?);
        let home = cave::free_address(mappings);
        let home = home.ok_or(InjectError::NoCave { pid: process.pid })?;
        Ok(Self { cave, home })
    }
}

/// Borrows a thread. If `needs_loader`, the thread's stack must be outside of code that may hold the loader's locks
/// ([`super::unwind`]).
pub(super) fn borrow(
    process: &Process,
    stacks: Stacks<'_>,
    stub_start: StubStart,
    needs_loader: bool,
    deadline: Instant,
) -> Result<BorrowedThread, InjectError> {
    let mut search = Search {
        process,
        stacks,
        stub_start,
        needs_loader,
        holds: Holds::default(),
        started: Instant::now(),
        deadline,
        why: BusyReason::NoThread,
    };
    while Instant::now() < deadline && !attach_progress::is_broken_off() {
        let hand = std::thread::scope(|scope| scope.spawn(|| search.run()).join());
        if let Some(borrowed) = hand.unwrap_or(Ok(None))? {
            return Ok(borrowed);
        }
    }
    Err(InjectError::Busy {
        pid: process.pid,
        why: search.why,
    })
}

/// Estimates, from the loader's state at each poll, how long threads hold its locks.
#[derive(Default)]
struct Holds {
    short_at: Option<Instant>,
    state: Vec<u8>,
    changes: u32,
    counted_from: Option<Instant>,
}

impl Holds {
    /// Records the loader's state, `None` if no lock is held. Returns whether a lock is held and the hold is
    /// probably long.
    fn is_long(&mut self, state: Option<Vec<u8>>, now: Instant) -> bool {
        let is_recent = |at: &Instant| now.duration_since(*at) <= SHORT_HOLDS;
        let Some(state) = state else {
            self.short_at = Some(now);
            return false;
        };
        if !self.counted_from.as_ref().is_some_and(is_recent) {
            self.counted_from = Some(now);
            self.changes = 0;
        }
        if self.state != state {
            self.state = state;
            self.changes += 1;
            if self.changes > CHANGES {
                self.short_at = Some(now);
            }
        }
        !self.short_at.as_ref().is_some_and(is_recent)
    }
}

struct Search<'a> {
    process: &'a Process,
    stacks: Stacks<'a>,
    stub_start: StubStart,
    needs_loader: bool,
    holds: Holds,
    started: Instant,
    deadline: Instant,
    why: BusyReason,
}

impl Search<'_> {
    /// Tries threads until one is borrowed; `None` at the deadline, if a thread did not stop, or if the user ends the
    /// attach.
    fn run(&mut self) -> Result<Option<BorrowedThread>, InjectError> {
        for round in 1u32.. {
            let is_locked = self.needs_loader && self.is_loader_locked();
            let candidates = match is_locked {
                true => Vec::new(),
                false => self.candidates()?,
            };
            for tid in candidates {
                match self.try_thread(tid) {
                    Ok(borrowed) => return Ok(Some(borrowed)),
                    Err(StopFailure::Ended) => {}
                    Err(StopFailure::Refused(why)) => self.why = BusyReason::Unfit { tid, why },
                    Err(StopFailure::Late) => {
                        let why = UnfitThread::Late;
                        self.why = BusyReason::Unfit { tid, why };
                        return Ok(None);
                    }
                    Err(StopFailure::Os(errno)) => return Err(self.ptrace_failed(tid, errno)),
                }
            }
            if !self.process.lives() {
                return Err(InjectError::Died {
                    pid: self.process.pid,
                });
            }
            if Instant::now() > self.deadline || attach_progress::is_broken_off() {
                return Ok(None);
            }
            if round % 64 == 0 {
                self.stacks.refresh()?;
            }
            if is_locked {
                self.why = BusyReason::LoaderLocked;
                std::thread::sleep(LOCKED);
            }
            std::thread::sleep(random_pause());
        }
        Ok(None)
    }

    fn is_loader_locked(&mut self) -> bool {
        let state = self.stacks.locked_loader();
        self.holds.is_long(state, Instant::now())
    }

    /// Returns the threads to try, best first. Before [`Search::is_late`], omits a thread whose call would start its
    /// time-out again, because such a call soon ends by itself.
    fn candidates(&mut self) -> Result<Vec<u32>, InjectError> {
        let pid = self.process.pid;
        let late = self.is_late();
        let worst = if late { Rank::Timed } else { Rank::Running };
        let mut ranked = Vec::new();
        for tid in process::threads(pid)? {
            let Ok(status) = process::status(pid, tid) else {
                continue;
            };
            if status.tracer_pid != 0 {
                return Err(InjectError::AlreadyTraced {
                    pid,
                    by: status.tracer_pid,
                });
            }
            let rank = restart::rank(&process::syscall(pid, tid));
            let why = if !matches!(status.state, 'R' | 'S') {
                UnfitThread::State(status.state)
            } else if rank > worst {
                UnfitThread::Uninterruptible
            } else {
                ranked.push((rank, tid));
                continue;
            };
            self.why = BusyReason::Unfit { tid, why };
        }
        ranked.sort_unstable();
        Ok(ranked.into_iter().map(|(_, tid)| tid).collect())
    }

    fn is_late(&self) -> bool {
        let spare = (self.deadline - self.started) / 2;
        self.started.elapsed() > spare.min(LONGEST_POLL)
    }

    /// Stops one thread, and sends it to the stub if its stack is safe. If the stack leads into an unread file, lets
    /// the thread run while tiptoe reads the file, which takes milliseconds.
    fn try_thread(&mut self, tid: u32) -> Result<BorrowedThread, StopFailure> {
        for _ in 0..MAX_FILES {
            let held = StoppedThread::stop(self.process.pid, tid, PATIENCE)?;
            if self.process.is_left_by(tid) {
                return Err(StopFailure::Ended);
            }
            let regs = held.registers()?;
            self.check_thread(tid, &held, &regs)?;
            if !self.needs_loader {
                return self.send(tid, held, regs);
            }
            let why = match self.stacks.judge(&regs) {
                // `is_loader_locked` reads no file here, because `run` has already called it.
                StackState::Free if self.is_loader_locked() => UnfitThread::LoaderLocked,
                StackState::Free => return self.send(tid, held, regs),
                StackState::Unfit(why) => why,
                StackState::Unread => {
                    drop(held);
                    self.stacks.read_on();
                    continue;
                }
            };
            return Err(StopFailure::Refused(why));
        }
        Err(StopFailure::Refused(UnfitThread::TooManyFiles))
    }

    fn check_thread(
        &self,
        tid: u32,
        held: &StoppedThread,
        regs: &user_regs_struct,
    ) -> Result<(), StopFailure> {
        const USER_CS_64: u64 = 0x33;
        let (to, _) = restart::resume(regs);
        let mut code = [0; 2];
        let mut entered_by_syscall =
            || self.process.read(to.rip, &mut code).is_ok() && code == [0x0f, 0x05];
        let why = if regs.cs != USER_CS_64 {
            UnfitThread::Code32
        } else if !is_known_to_libc(tid, regs.fs_base) {
            UnfitThread::UnknownToLibc
        } else if held.in_rseq(|address| self.process.read_u64(address), regs.rip) {
            UnfitThread::InRseq
        } else if to.rip != regs.rip && !entered_by_syscall() {
            UnfitThread::UnknownEntry
        } else if restart::is_after_raw_eintr(regs) && restart::is_timed(regs) && !self.is_late() {
            UnfitThread::Timed
        } else {
            return Ok(());
        };
        Err(StopFailure::Refused(why))
    }

    /// Sends the thread to the stub. From then on the thread must not depend on tiptoe, which may die at any instant.
    fn send(
        &self,
        tid: u32,
        held: StoppedThread,
        regs: user_regs_struct,
    ) -> Result<BorrowedThread, StopFailure> {
        let since = held.since();
        let (registers, restart) = restart::resume(&regs);
        let StubStart { cave, home } = &self.stub_start;
        let image = stub::image(&Params {
            magic: MAGIC,
            home: *home,
            cave_page: cave.as_ref().map_or(0, |cave| cave.page),
            scratch: STACK + xsave_size().next_multiple_of(PAGE),
            all_signals: u64::MAX,
            mask: held.signal_mask()?,
            lease: LEASE,
            restart: restart as u64,
            registers,
            interrupted_rip: regs.rip,
        });
        let io = |_: std::io::Error| StopFailure::Ended;
        let write = |at, bytes: &[u8]| self.process.write(at, bytes).map_err(io);
        let (at, entry, before) = match cave {
            None => {
                write(home + PAGE, &[0; size_of::<Mailbox>()])?;
                (*home, stub::from_home(), None)
            }
            Some(cave) => {
                let mut before = vec![0; image.len()];
                self.process.read(cave.address, &mut before).map_err(io)?;
                (cave.address, stub::FROM_CAVE, Some(before))
            }
        };
        write(at, &image)?;
        held.send_to(regs, at + entry).inspect_err(|_| {
            let _ = before.as_ref().map(|before| write(at, before));
        })?;
        Ok(BorrowedThread {
            tid,
            since,
            home: *home,
            cave: before.map(|before| (at, before)),
        })
    }

    fn ptrace_failed(&self, tid: u32, errno: nix::errno::Errno) -> InjectError {
        let pid = self.process.pid;
        match process::status(pid, tid) {
            Ok(status) if status.tracer_pid != 0 => InjectError::AlreadyTraced {
                pid,
                by: status.tracer_pid,
            },
            _ => InjectError::os(pid, InjectCall::Ptrace, errno.into()),
        }
    }
}

/// Restores the cave's bytes, unless the borrowed thread is still inside the cave.
pub(super) fn mend(process: &Process, borrowed: &BorrowedThread) {
    let Some((address, before)) = &borrowed.cave else {
        return;
    };
    let mut now = vec![0; before.len()];
    if process.read(*address, &mut now).is_err() || now == *before {
        return;
    }
    let inside = *address..*address + before.len() as u64;
    let hand = || -> Result<(), StopFailure> {
        let held = StoppedThread::stop(process.pid, borrowed.tid, PATIENCE)?;
        if !inside.contains(&held.registers()?.rip) {
            process
                .write(*address, before)
                .map_err(|_| StopFailure::Ended)?;
        }
        Ok(())
    };
    // If this stop fails, the stub's bytes stay in the cave, where no other thread runs them.
    let _ = std::thread::scope(|scope| scope.spawn(hand).join());
}

fn robust_list(tid: u32) -> Option<u64> {
    let (mut head, mut length) = (0u64, 0usize);
    // SAFETY: the kernel writes to two variables, which outlive the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_get_robust_list,
            tid,
            &raw mut head,
            &raw mut length,
        )
    };
    (result == 0 && head != 0).then_some(head)
}

/// libc puts a thread's robust list inside the thread's control block.
fn is_known_to_libc(tid: u32, fs_base: u64) -> bool {
    const CONTROL_BLOCK: u64 = 4096;
    robust_list(tid).is_some_and(|head| head.wrapping_sub(fs_base) < CONTROL_BLOCK)
}

fn xsave_size() -> u64 {
    const EXTENDED_STATE: u32 = 0xd;
    u64::from(std::arch::x86_64::__cpuid_count(EXTENDED_STATE, 0).ebx)
}

/// Returns up to 0.5 ms, at random, so that polls do not run in step with the target.
fn random_pause() -> Duration {
    let [random] = random::words();
    Duration::from_micros(random % 500)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last(states: &[Option<u8>]) -> bool {
        let (mut holds, start) = (Holds::default(), Instant::now());
        let looks = states.iter().zip(0..).map(|(state, at)| {
            let now = start + Duration::from_millis(3) * at;
            holds.is_long(state.map(|byte| vec![byte]), now)
        });
        looks.last().expect("a look")
    }

    /// Regression: a program that opened libraries in a loop could not be entered on a busy machine.
    #[test]
    fn holds_are_short_if_the_loaders_state_changes() {
        let same = [Some(1); 40];
        assert!(last(&same));
        let changing: Vec<Option<u8>> = (0..20).map(Some).collect();
        assert!(!last(&changing));
        // One library with a slow constructor.
        assert!(last(&[&changing[..3], &same].concat()));
        // A lock that was free, then held at one poll (short) or at forty (long).
        assert!(!last(&[None, Some(1)]));
        assert!(last(&[&[None], &same[..]].concat()));
        assert!(last(&[&changing, &same[..]].concat()));
    }
}
