//! The agent's thread, a raw clone. It closes all descriptors in its own table, because it must not keep a file of the
//! program open. The thread sleeps on the word that tiptoe holds as a robust futex. tiptoe wakes the thread for
//! requests. When tiptoe dies, the kernel marks the word and wakes the thread.

use core::sync::atomic::{AtomicU32, Ordering};

use tiptoe_sync::ThreadLockState;
use tiptoe_sys::raw::{Errno, call, check, futex, gettid, membarrier, nr, sleep_ns, thread_alive};
use tiptoe_uprobe::patcher::OtherThreads;
use tiptoe_wire::{LeaveReason, State};

use crate::confinement::{ConfinementCheck, TIMED_OUT};
use crate::credentials;
use crate::files;
use crate::forbidden;
use crate::mask::{OURS, set_mask};
use crate::memory::{self, STACK};
use crate::owner::is_owned;
use crate::serve;
use crate::shared::{self, Shared};
use crate::space;
use crate::stubs::tiptoe_spawn;
use crate::watches;

const CLONE_VM: usize = 0x100;
const CLONE_FS: usize = 0x200;
const CLONE_SIGHAND: usize = 0x800;
const CLONE_THREAD: usize = 0x1_0000;
const CLONE_SYSVSEM: usize = 0x4_0000;
const CLONE_PARENT_SETTID: usize = 0x10_0000;
const CLONE_CHILD_CLEARTID: usize = 0x20_0000;
const FLAGS: usize = CLONE_VM
    | CLONE_FS
    | CLONE_SIGHAND
    | CLONE_THREAD
    | CLONE_SYSVSEM
    | CLONE_PARENT_SETTID
    | CLONE_CHILD_CLEARTID;

const PR_SET_NAME: usize = 15;
/// The interval and number of checks whether the agent's thread has ended: about 5 s in all.
const LOOK_NS: u64 = 100_000;
const LOOKS: u32 = 50_000;

/// The session's lock, held until the guard is dropped.
pub struct SessionGuard(&'static Shared);

impl SessionGuard {
    pub fn take(shared: &'static Shared) -> Option<SessionGuard> {
        let is_taken = shared.lock.try_lock(gettid());
        is_taken.then(|| SessionGuard(shared))
    }
}

impl Drop for SessionGuard {
    fn drop(&mut self) {
        self.0.lock.unlock();
    }
}

/// Starts the agent's thread for a session, and gives that thread the lock.
pub fn start(session: SessionGuard) -> Result<(), (SessionGuard, Errno)> {
    match spawn(session.0.lock.word()) {
        Ok(()) => {
            // The kernel has stored the thread's id in the lock, and releases the lock when the thread has ended.
            core::mem::forget(session);
            Ok(())
        }
        Err(errno) => Err((session, errno)),
    }
}

fn spawn(id: &AtomicU32) -> Result<(), Errno> {
    let stack = memory::not_forked(STACK)?;
    let mask = set_mask(u64::MAX);
    // SAFETY: the stack is new; the stub calls `run` on it, unmaps it and ends the thread.
    let tid = unsafe { tiptoe_spawn(FLAGS, stack + STACK, id.as_ptr(), 0) };
    set_mask(mask);
    check(tid)
        .map(|_| ())
        .inspect_err(|_| memory::unmap(stack, STACK))
}

/// Makes the agent's thread end the session, and waits for that, at most about 5 s.
pub fn leave(shared: &Shared, why: LeaveReason) {
    if let Some(data) = shared.data() {
        data.set_left(why);
    }
    for _ in 0..LOOKS {
        // The flag is stored each time, because a session that begins meanwhile must end, too. Relaxed: the flag orders
        // nothing.
        shared.must_leave.store(true, Ordering::Relaxed);
        shared.wake_agents_thread();
        sleep_ns(LOOK_NS);
        if shared.data().is_none() && shared.lock.is_free() {
            return;
        }
    }
}

/// Ends the agent's thread, but not the session, and locks the session. Returns `None` without a session, if the
/// calling thread holds the lock already, or if the agent's thread has not begun to end after about 5 s. On `None` the
/// caller must start no agent's thread.
pub fn retire(shared: &'static Shared) -> Option<SessionGuard> {
    let own = gettid();
    let mut former = 0;
    let mut looks = 0..LOOKS;
    loop {
        let is_late = looks.next().is_none();
        match shared.lock.request(own) {
            ThreadLockState::Taken => break,
            ThreadLockState::Own => return None,
            ThreadLockState::Borrowed if is_late => return None,
            ThreadLockState::Requested(tid) if is_late && shared.lock.withdraw(tid) => return None,
            // The wait for a thread that is ending has no bound, because that thread has nothing left to do.
            ThreadLockState::Requested(tid) | ThreadLockState::Ending(tid) => former = tid,
            ThreadLockState::Borrowed => {}
        }
        shared.wake_agents_thread();
        sleep_ns(LOOK_NS);
    }
    let session = SessionGuard(shared);
    // The kernel releases the lock a moment before it removes the agent's thread from the process.
    let pid = shared.pid.load(Ordering::Relaxed); // constant within a session
    while former != 0 && thread_alive(pid, former) && looks.next().is_some() {
        sleep_ns(LOOK_NS);
    }
    shared.data().map(|_| session)
}

/// Ends the session on a thread of the program, because the agent's thread cannot start again.
pub fn end_session_here(session: SessionGuard) {
    // Signals are blocked, because a handler could change what is being restored.
    let mask = set_mask(!OURS);
    end(session.0, LeaveReason::Confined);
    drop(session);
    set_mask(mask);
}

fn end(shared: &Shared, why: LeaveReason) {
    if let Some(data) = shared.data() {
        data.set_left(why);
    }
    serve::detach(shared);
    serve::settle(shared, || OtherThreads::Running, || ());
}

pub extern "C" fn run() {
    let Some(shared) = shared::get() else { return };
    run_soon();
    leave_no_trace();
    forbidden::begin();
    let Some(data) = shared.data() else { return };
    let own = gettid();
    data.set_thread(own);
    if data.state() == State::Absent {
        // The process must be registered for membarrier(2) before the first patch. `entry` registers only programs with
        // one thread. A second registration does nothing.
        if let Err(Errno(code)) = membarrier::register() {
            serve::answer(&data, 0, code as u64);
            return serve::end(shared);
        }
        serve::greet(shared, &data);
    }
    let Some(owner) = data.owner() else { return };
    let mut done = data.acknowledged();
    let Some(mut confinement) = shared.plan().map(|plan| ConfinementCheck::begin(&plan)) else {
        return;
    };
    watches::go_on(shared, &data);
    loop {
        let Some(plan) = shared.plan() else { return };
        if plan.is_silent() {
            sleep_for_good();
        }
        // Acquire: the kernel writes this word when tiptoe dies.
        let word = owner.load(Ordering::Acquire);
        // Relaxed: the flag orders nothing.
        if shared.must_leave.swap(false, Ordering::Relaxed) || !is_owned(word) {
            serve::detach(shared);
            return serve::settle(shared, || OtherThreads::Running, || ());
        }
        if shared.libraries.has_tasks() {
            serve::library_patches::patch(shared, &data);
        } else if plan.sequence() != done {
            done = plan.sequence();
            if serve::request(shared, &plan, &data, done) {
                let reblock = || serve::reblock(&plan, &data, done);
                return serve::settle(shared, reblock, || serve::answer(&data, plan.sequence(), 0));
            }
        } else if watches::tend(shared, &data) {
        } else if shared.must_rearm.swap(false, Ordering::AcqRel) {
            serve::rearm(shared);
        } else if shared.lock.must_end(own) {
            // This check is last, so that requests are served even if the program makes every agent's thread end at
            // once.
            return;
        } else {
            let pause = confinement.pause(space::read_if_unsure(&data));
            if futex::wait(owner, word, Some(pause)) == Err(TIMED_OUT)
                && let Some(why) = confinement.look(&plan)
            {
                return end(shared, why);
            }
        }
    }
}

/// Sleeps for ever, because under the program's seccomp filter any other call might end the program.
fn sleep_for_good() -> ! {
    static NEVER: AtomicU32 = AtomicU32::new(0);
    loop {
        let _ = futex::wait(&NEVER, 0, None);
    }
}

/// Requests short time slices, so that the agent's thread runs soon even if the program uses every core. Unlike a
/// higher priority, a short slice needs no right (Linux 6.12).
fn run_soon() {
    const SLICE_NS: u64 = 100_000;
    /// The system call returns 20 minus the nice value (getpriority(2)).
    const ABOVE: i32 = 20;
    // SAFETY: the call takes and returns numbers.
    let Ok(below) = (unsafe { call(nr::GETPRIORITY, [0; 6]) }) else {
        return;
    };
    let nice = (ABOVE - below as i32).cast_unsigned();
    // struct sched_attr: size, policy, flags, nice, priority, runtime, deadline, period.
    let size = 48u64;
    let attr = [size, 0, u64::from(nice), SLICE_NS, 0, 0];
    // SAFETY: the call concerns this thread only, and the record lives through it.
    let _ = unsafe { call(nr::SCHED_SETATTR, [0, attr.as_ptr() as usize, 0, 0, 0, 0]) };
}

fn leave_no_trace() {
    let name = c"tiptoe-agent";
    // SAFETY: the thread's descriptor table is its own, and the name lives through the call.
    unsafe {
        let _ = call(nr::CLOSE_RANGE, [0, u32::MAX as usize, 0, 0, 0, 0]);
        let _ = call(nr::PRCTL, [PR_SET_NAME, name.as_ptr() as usize, 0, 0, 0, 0]);
    }
    files::keep();
    credentials::drop_rights();
}
