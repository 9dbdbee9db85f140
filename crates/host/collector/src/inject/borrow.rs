//! Borrowing a thread: choose one, stop it, look where it stands, send it to the stub.
//!
//! All of it happens on one thread of ours, made for this, because a tracer is a thread; when
//! that thread ends the kernel lets go of whatever it still holds.

use std::time::{Duration, Instant};

use libc::user_regs_struct;

use super::InjectError;
use super::cave::{self, Cave};
use super::process::{self, Mapping, Process};
use super::restart::{self, Rank};
use super::stub::{self, MAGIC, Mailbox, PAGE, Params};
use super::tracee::{Held, Missed};
use super::unwind::{Place, Stacks};

/// How long one thread may take to stop.
const PATIENCE: Duration = Duration::from_millis(200);
/// Files that one stack may lead through before the thread is passed over for a while.
const MAX_FILES: usize = 64;
/// How long threads in calls with time-outs are spared.
const LONGEST_POLL: Duration = Duration::from_millis(500);
/// Between two looks at a loader's lock that is held.
const LOCKED: Duration = Duration::from_millis(2);
/// A lock that was seen free so recently is held for short times, if it is held again: the borrowed thread may wait for it.
/// Otherwise no thread could be borrowed in a program that opens libraries nearly all the time.
const SHORT_HOLDS: Duration = Duration::from_millis(100);
/// Slices of about 0.06 ms: 0.3 s without a heartbeat, and the stub goes home alone.
const LEASE: u64 = 5000;
/// The stub's stack; the loader's own frames take a few tens of KiB.
const STACK: u64 = 256 << 10;

/// A thread that runs the stub.
pub(super) struct Borrowed {
    pub tid: u32,
    /// When it was asked to stop.
    pub since: Instant,
    /// Where the stub lives (or will, once it has arrived).
    pub home: u64,
    /// The bytes that the stub's image replaced, to be put back if it cannot do so itself.
    pub cave: Option<(u64, Vec<u8>)>,
}

/// Where the stub starts.
pub(super) enum Ground {
    /// In the home that an earlier injection left.
    Home(u64),
    /// In a cave, on its way to a free address.
    Cave { cave: Cave, home: u64 },
}

impl Ground {
    /// Chooses a ground in a process whose loader lies at `loader`.
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

/// Borrows a thread of `process` before `deadline`: one that stands outside of everything that
/// the loader needs where it is to load something.
pub(super) fn borrow(
    process: &Process,
    stacks: Stacks<'_>,
    ground: Ground,
    loads: bool,
    deadline: Instant,
) -> Result<Borrowed, InjectError> {
    let mut search = Search {
        process,
        stacks,
        ground,
        loads,
        free_at: None,
        started: Instant::now(),
        deadline,
        why: "no thread was seen".into(),
    };
    while Instant::now() < deadline {
        // A fresh thread for each search: its end lets go of a thread that would not stop.
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

/// One search for a thread.
struct Search<'a> {
    process: &'a Process,
    stacks: Stacks<'a>,
    ground: Ground,
    /// Whether the thread is to call the loader. The agent itself needs nothing of the program.
    loads: bool,
    /// When the loader's locks were seen free last.
    free_at: Option<Instant>,
    started: Instant,
    deadline: Instant,
    /// Why the last candidate was let go.
    why: String,
}

impl Search<'_> {
    /// `None` when a thread would not stop, or time is over.
    fn run(&mut self) -> Result<Option<Borrowed>, InjectError> {
        for round in 1u32.. {
            let is_locked = self.loads && self.is_loader_locked();
            let candidates = match is_locked {
                true => Vec::new(),
                false => self.candidates()?,
            };
            for tid in candidates {
                match self.try_thread(tid) {
                    Ok(borrowed) => return Ok(Some(borrowed)),
                    Err(Missed::Gone) => {}
                    Err(Missed::Refused(why)) => self.why = format!("thread {tid} {why}"),
                    Err(Missed::Late) => {
                        self.why = format!("thread {tid} does not stop");
                        return Ok(None);
                    }
                    Err(Missed::Os(errno)) => return Err(self.ptrace_failed(tid, errno)),
                }
            }
            if !self.process.lives() {
                return Err(InjectError::Died {
                    pid: self.process.pid,
                });
            }
            if Instant::now() > self.deadline {
                return Ok(None);
            }
            if round % 64 == 0 {
                self.stacks.refresh()?;
            }
            if is_locked {
                self.why = "a thread of it holds the loader's lock".into();
                std::thread::sleep(LOCKED);
            }
            std::thread::sleep(random_pause());
        }
        Ok(None)
    }

    /// Whether a borrowed thread would wait long for one of the loader's locks, as far as the looks so far say.
    fn is_loader_locked(&mut self) -> bool {
        if !self.stacks.has_loader_locked() {
            self.free_at = Some(Instant::now());
            return false;
        }
        self.free_at.is_none_or(|at| at.elapsed() > SHORT_HOLDS)
    }

    /// The threads worth a try, best first. Those whose time-outs would start anew are left
    /// alone for a while: a thread that polls leaves its call by itself, and another may do.
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
            if !matches!(status.state, 'R' | 'S') {
                self.why = format!("thread {tid} is in state {}", status.state);
            } else if rank > worst {
                self.why = format!("thread {tid} is in a call that should not be interrupted");
            } else {
                ranked.push((rank, tid));
            }
        }
        ranked.sort_unstable();
        Ok(ranked.into_iter().map(|(_, tid)| tid).collect())
    }

    /// Whether a time-out that starts anew is better than to wait on.
    fn is_late(&self) -> bool {
        let spare = (self.deadline - self.started) / 2;
        self.started.elapsed() > spare.min(LONGEST_POLL)
    }

    /// Stops one thread, and sends it to the stub if it stands well. A thread whose stack leads
    /// into files that were not read yet is let go while they are.
    fn try_thread(&mut self, tid: u32) -> Result<Borrowed, Missed> {
        for _ in 0..MAX_FILES {
            let held = Held::stop(self.process.pid, tid, PATIENCE)?;
            if self.process.is_left_by(tid) {
                return Err(Missed::Gone);
            }
            let regs = held.registers()?;
            self.check_thread(tid, &held, &regs)?;
            if !self.loads {
                return self.send(tid, held, regs);
            }
            match self.stacks.place(&regs) {
                // Not at the first look, which reads a file.
                Place::Free if self.is_loader_locked() => {
                    return Err(Missed::Refused("would wait for the loader's lock"));
                }
                Place::Free => return self.send(tid, held, regs),
                Place::Inside => {
                    return Err(Missed::Refused(
                        "stands in the allocator, the loader or fork",
                    ));
                }
                Place::Unknown => {
                    return Err(Missed::Refused("runs a signal handler over unknown frames"));
                }
                Place::Unread => {
                    drop(held);
                    self.stacks.read_on();
                }
            }
        }
        Err(Missed::Refused("stands on a stack through too many files"))
    }

    /// What has to hold of the thread itself, wherever its stack leads.
    fn check_thread(&self, tid: u32, held: &Held, regs: &user_regs_struct) -> Result<(), Missed> {
        const USER_CS_64: u64 = 0x33;
        if regs.cs != USER_CS_64 {
            return Err(Missed::Refused("runs 32-bit code"));
        }
        if !is_known_to_libc(tid, regs.fs_base) {
            return Err(Missed::Refused("is no thread of the program's libc"));
        }
        if held.in_rseq(|address| self.process.read_u64(address), regs.rip) {
            return Err(Missed::Refused("stands in a restartable sequence"));
        }
        let (to, _) = restart::resume(regs);
        let mut code = [0; 2];
        let mut entered_by_syscall =
            || self.process.read(to.rip, &mut code).is_ok() && code == [0x0f, 0x05];
        if to.rip != regs.rip && !entered_by_syscall() {
            return Err(Missed::Refused("entered the kernel in an unknown way"));
        }
        let late = self.is_late();
        if restart::stands_in_raw_eintr(regs) && restart::is_timed(regs) && !late {
            return Err(Missed::Refused("waits with a time-out"));
        }
        Ok(())
    }

    /// Puts the stub in its place and the thread on it. The thread is the stub's from the
    /// moment its registers change, whether or not anybody is left to watch.
    fn send(&self, tid: u32, held: Held, regs: user_regs_struct) -> Result<Borrowed, Missed> {
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
        let io = |_: std::io::Error| Missed::Gone;
        match &self.ground {
            Ground::Home(home) => {
                params.home = *home;
                self.process
                    .write(home + PAGE, &[0; size_of::<Mailbox>()])
                    .map_err(io)?;
                self.process
                    .write(*home, &stub::image(&params))
                    .map_err(io)?;
                held.send_to(regs, home + stub::from_home())?;
                Ok(Borrowed {
                    tid,
                    since,
                    home: *home,
                    cave: None,
                })
            }
            Ground::Cave { cave, home } => {
                (params.home, params.cave_page) = (*home, cave.page);
                let image = stub::image(&params);
                let mut before = vec![0; image.len()];
                self.process.read(cave.address, &mut before).map_err(io)?;
                self.process.write(cave.address, &image).map_err(io)?;
                held.send_to(regs, cave.address + stub::FROM_CAVE)
                    .inspect_err(|_| {
                        let _ = self.process.write(cave.address, &before);
                    })?;
                Ok(Borrowed {
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
            _ => InjectError::os(pid, "ptrace", errno.into()),
        }
    }
}

/// Puts the cave's bytes back when the stub could not: only if its thread is not in them.
pub(super) fn mend(process: &Process, borrowed: &Borrowed) {
    let Some((address, before)) = &borrowed.cave else {
        return;
    };
    let mut now = vec![0; before.len()];
    if process.read(*address, &mut now).is_err() || now == *before {
        return;
    }
    let inside = *address..*address + before.len() as u64;
    let hand = || -> Result<(), Missed> {
        let held = Held::stop(process.pid, borrowed.tid, PATIENCE)?;
        if !inside.contains(&held.registers()?.rip) {
            process.write(*address, before).map_err(|_| Missed::Gone)?;
        }
        Ok(())
    };
    // A process that is gone, or a thread that will not stop, leaves bytes that nobody runs.
    let _ = std::thread::scope(|scope| scope.spawn(hand).join());
}

/// Where a thread's robust list is: in its block, if its libc made it.
fn robust_list(tid: u32) -> Option<u64> {
    let (mut head, mut length) = (0u64, 0usize);
    // SAFETY: the kernel writes one pointer and one length to the two places, which live on.
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

/// Whether libc made this thread: it registers a robust list inside the thread's control block,
/// which a raw clone that shares its creator's has not.
fn is_known_to_libc(tid: u32, fs_base: u64) -> bool {
    const CONTROL_BLOCK: u64 = 4096;
    robust_list(tid).is_some_and(|head| head.wrapping_sub(fs_base) < CONTROL_BLOCK)
}

/// Bytes that XSAVE writes with all the state that this kernel has enabled.
fn xsave_size() -> u64 {
    const EXTENDED_STATE: u32 = 0xd;
    u64::from(std::arch::x86_64::__cpuid_count(EXTENDED_STATE, 0).ebx)
}

/// Up to 0.5 ms, so as not to run in step with the target.
fn random_pause() -> Duration {
    use std::hash::{BuildHasher as _, Hasher as _};
    let random = std::collections::hash_map::RandomState::new()
        .build_hasher()
        .finish();
    Duration::from_micros(random % 500)
}
