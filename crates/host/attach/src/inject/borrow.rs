//! Borrows a thread: chooses one, stops it, checks its stack, and sends it to the stub.
//!
//! All of this must run on a new thread of tiptoe, because only at its end does the kernel detach from a thread
//! that does not stop.

use std::time::{Duration, Instant};

use libc::user_regs_struct;
use tiptoe_sys::host::attach_progress;

use super::cave::{self, Cave};
use super::process::{self, Mapping, Process};
use super::restart::{self, Rank};
use super::stub::{self, MAGIC, Mailbox, PAGE, Params};
use super::traced_thread::{StopFailure, StoppedThread};
use super::unwind::{StackState, Stacks};
use crate::error::inject_error::{BusyReason, InjectCall, InjectError, UnfitThread};

const PATIENCE: Duration = Duration::from_millis(200);
/// The most files of one stack to read before the next thread is tried.
const MAX_FILES: usize = 64;
/// For this time a search leaves out threads whose calls have time-outs.
const LONGEST_POLL: Duration = Duration::from_millis(500);
/// The extra pause while the loader's lock is held.
const LOCKED: Duration = Duration::from_millis(2);
/// If the loader's lock was free within this time, holds are short, so the borrowed thread may wait for the
/// lock. Otherwise tiptoe could never enter a program that often opens libraries.
const SHORT_HOLDS: Duration = Duration::from_millis(100);
/// More changes of the loader's state than this within [`SHORT_HOLDS`] also show short holds. A thread that
/// opens libraries in a loop frees the lock for some ten nanoseconds, which polls may miss for seconds. While a
/// slow constructor holds the lock, the state does not change.
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
    /// The cave's address and old bytes, which tiptoe must restore if the stub cannot.
    pub cave: Option<(u64, Vec<u8>)>,
}

pub(super) enum StubStart {
    /// An earlier injection's home.
    Home(u64),
    /// The stub copies itself to `home`, a free address.
    Cave { cave: Cave, home: u64 },
}

impl StubStart {
    pub(super) fn find(
        process: &Process,
        mappings: &[Mapping],
        loader: u64,
    ) -> Result<Self, InjectError> {
        if let Some(home) = cave::old_home(process, mappings) {
            return Ok(Self::Home(home));
        }
        let cave = cave::find(process, mappings, loader)?;
        let home = cave::free_address(mappings);
        Ok(Self::Cave {
            cave,
            home: home.ok_or(InjectError::NoCave { pid: process.pid })?,
        })
    }
}

/// Borrows a thread. If `needs_loader`, no frame on its stack may be in code whose locks the loader needs,
/// because that would be a deadlock.
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
    /// When a lock was last seen free, or changes last showed that holds are short.
    short_at: Option<Instant>,
    state: Vec<u8>,
    changes: u32,
    counted_from: Option<Instant>,
}

impl Holds {
    /// Records the loader's state, `None` if no lock is held. Returns whether a lock is held, probably for
    /// long.
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
    /// Tries threads until one is borrowed; `None` at the deadline, or if a thread did not stop.
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

    /// Returns the threads to try, best first. Until [`Search::is_late`], omits threads in calls whose time-outs
    /// would restart, because a polling thread soon leaves its call.
    fn candidates(&mut self) -> Result<Vec<u32>, InjectError> {
        let pid = self.process.pid;
        let late = self.is_late();
        let worst = if late { Rank::Timed } else { Rank::Running };
        let mut ranked = Vec::new();
        for tid in process::threads(pid)? {
            let Ok(status) = process::status(pid, tid) else {
                continue;
            };
            if status.tracer != 0 {
                return Err(InjectError::AlreadyTraced {
                    pid,
                    by: status.tracer,
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

    /// Returns whether the search has lasted so long that time-outs may restart.
    fn is_late(&self) -> bool {
        let spare = (self.deadline - self.started) / 2;
        self.started.elapsed() > spare.min(LONGEST_POLL)
    }

    /// Stops one thread, and sends it to the stub if its stack is safe. The thread runs while tiptoe reads a
    /// file of its stack, because that takes milliseconds.
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
            match self.stacks.judge(&regs) {
                // This reads no file, because the first call, in `run`, did.
                StackState::Free if self.is_loader_locked() => {
                    return Err(StopFailure::Refused(UnfitThread::LoaderLocked));
                }
                StackState::Free => return self.send(tid, held, regs),
                StackState::Inside => {
                    return Err(StopFailure::Refused(UnfitThread::Inside));
                }
                StackState::Unknown => {
                    return Err(StopFailure::Refused(UnfitThread::UnknownFrames));
                }
                StackState::Unread => {
                    drop(held);
                    self.stacks.read_on();
                }
            }
        }
        Err(StopFailure::Refused(UnfitThread::TooManyFiles))
    }

    /// Checks everything about a stopped thread except its stack.
    fn check_thread(
        &self,
        tid: u32,
        held: &StoppedThread,
        regs: &user_regs_struct,
    ) -> Result<(), StopFailure> {
        const USER_CS_64: u64 = 0x33;
        if regs.cs != USER_CS_64 {
            return Err(StopFailure::Refused(UnfitThread::Code32));
        }
        if !is_known_to_libc(tid, regs.fs_base) {
            return Err(StopFailure::Refused(UnfitThread::UnknownToLibc));
        }
        if held.in_rseq(|address| self.process.read_u64(address), regs.rip) {
            return Err(StopFailure::Refused(UnfitThread::InRseq));
        }
        let (to, _) = restart::resume(regs);
        let mut code = [0; 2];
        let mut entered_by_syscall =
            || self.process.read(to.rip, &mut code).is_ok() && code == [0x0f, 0x05];
        if to.rip != regs.rip && !entered_by_syscall() {
            return Err(StopFailure::Refused(UnfitThread::UnknownEntry));
        }
        let late = self.is_late();
        if restart::is_after_raw_eintr(regs) && restart::is_timed(regs) && !late {
            return Err(StopFailure::Refused(UnfitThread::Timed));
        }
        Ok(())
    }

    /// Sends the thread to the stub. From then on the thread must not need tiptoe, which may die at any instant.
    fn send(
        &self,
        tid: u32,
        held: StoppedThread,
        regs: user_regs_struct,
    ) -> Result<BorrowedThread, StopFailure> {
        let since = held.since();
        let (registers, restart) = restart::resume(&regs);
        let mut params = Params {
            magic: MAGIC,
            home: 0,
            cave_page: 0,
            scratch: STACK + xsave_size().next_multiple_of(PAGE),
            all_signals: u64::MAX,
            mask: held.signal_mask()?,
            lease: LEASE,
            restart: restart as u64,
            registers,
            interrupted_rip: regs.rip,
        };
        let io = |_: std::io::Error| StopFailure::Ended;
        match &self.stub_start {
            StubStart::Home(home) => {
                params.home = *home;
                self.process
                    .write(home + PAGE, &[0; size_of::<Mailbox>()])
                    .map_err(io)?;
                self.process
                    .write(*home, &stub::image(&params))
                    .map_err(io)?;
                held.send_to(regs, home + stub::from_home())?;
                Ok(BorrowedThread {
                    tid,
                    since,
                    home: *home,
                    cave: None,
                })
            }
            StubStart::Cave { cave, home } => {
                (params.home, params.cave_page) = (*home, cave.page);
                let image = stub::image(&params);
                let mut before = vec![0; image.len()];
                self.process.read(cave.address, &mut before).map_err(io)?;
                self.process.write(cave.address, &image).map_err(io)?;
                held.send_to(regs, cave.address + stub::FROM_CAVE)
                    .inspect_err(|_| {
                        let _ = self.process.write(cave.address, &before);
                    })?;
                Ok(BorrowedThread {
                    tid,
                    since,
                    home: *home,
                    cave: Some((cave.address, before)),
                })
            }
        }
    }

    fn ptrace_failed(&self, tid: u32, errno: nix::errno::Errno) -> InjectError {
        let pid = self.process.pid;
        match process::status(pid, tid) {
            Ok(status) if status.tracer != 0 => InjectError::AlreadyTraced {
                pid,
                by: status.tracer,
            },
            _ => InjectError::os(pid, InjectCall::Ptrace, errno.into()),
        }
    }
}

/// Restores the cave's bytes, unless the borrowed thread is still inside.
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
    // If this fails, the stub's bytes stay in the cave, where no other thread runs them.
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

/// Returns whether libc made this thread: then its control block contains its robust list.
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
    use std::hash::{BuildHasher as _, Hasher as _};
    let random = std::collections::hash_map::RandomState::new()
        .build_hasher()
        .finish();
    Duration::from_micros(random % 500)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records these states, one every 3 ms, and returns the last result.
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
        // Freed, then held at one poll (not long) or at forty (long).
        assert!(!last(&[None, Some(1)]));
        assert!(last(&[&[None], &same[..]].concat()));
        assert!(last(&[&changing, &same[..]].concat()));
    }
}
