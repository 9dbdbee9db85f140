//! The agent's thread: a raw clone that libc does not know, with every signal blocked and without rights
//! ([`crate::credentials`]). Its own descriptor table is emptied at once, because it must not keep a file of the
//! program open. It sleeps on the word that tiptoe holds as a robust futex: the kernel marks the word and wakes the
//! thread when tiptoe dies, and tiptoe wakes it for a request.

use core::sync::atomic::{AtomicU32, Ordering};

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

/// Waits until an older session's thread has ended. Otherwise there is a race: that thread may remove what belongs to
/// the new session.
pub fn wait_for_former(shared: &Shared) {
    let former = shared.thread.load(Ordering::Acquire); // written by the kernel
    wait_until_ended(shared, former);
}

/// Starts the thread for the session that [`Shared`] holds.
pub fn start(shared: &'static Shared) -> Result<(), Errno> {
    wait_for_former(shared);
    let stack = memory::stack()?;
    let mask = set_mask(u64::MAX);
    // SAFETY: the stack is new; the stub calls `run` on it, unmaps it and ends the thread.
    let tid = unsafe { tiptoe_spawn(FLAGS, stack + STACK, shared.thread.as_ptr(), 0) };
    set_mask(mask);
    check(tid)
        .map(|_| ())
        .inspect_err(|_| memory::unmap(stack, STACK))
}

/// Makes the thread end the session as a detach does, and waits for the thread's end. The program is about to forbid
/// system calls that the agent needs, or to replace a thread's block, which has our words.
pub fn leave(shared: &Shared, why: LeaveReason) {
    if let Some(data) = shared.data() {
        data.set_left(why);
    }
    shared.must_leave.store(true, Ordering::Relaxed); // published by `must_retire`
    retire(shared);
}

/// Makes the thread end without ending the session, and waits for that.
pub fn retire(shared: &Shared) {
    let tid = shared.thread.load(Ordering::Acquire); // written by the kernel
    shared.must_retire.store(true, Ordering::Release); // pairs with the swap in `run`
    if let Some(owner) = shared.data().and_then(|data| data.owner()) {
        futex::wake(owner, u32::MAX);
    }
    wait_until_ended(shared, tid);
    shared.must_retire.store(false, Ordering::Release); // no thread reads it now
}

/// Ends the session on a thread of the program, because the agent's thread cannot start again.
pub fn end_session_here(shared: &Shared) {
    // No signal handler must run here: it could enter this code, too, or change what is being restored.
    let mask = set_mask(!OURS);
    end(shared, LeaveReason::Confined);
    set_mask(mask);
}

/// Restores the program without a request from tiptoe.
fn end(shared: &Shared, why: LeaveReason) {
    if let Some(data) = shared.data() {
        data.set_left(why);
    }
    serve::detach(shared);
    serve::settle(shared, || OtherThreads::Running, || ());
}

/// Waits until the kernel no longer knows the thread, at most about 5 s.
fn wait_until_ended(shared: &Shared, tid: u32) {
    let pid = shared.pid.load(Ordering::Relaxed); // constant within a session
    for _ in 0..50_000 {
        if tid == 0 || !thread_alive(pid, tid) {
            return;
        }
        if let Some(owner) = shared.data().and_then(|data| data.owner()) {
            futex::wake(owner, u32::MAX);
        }
        sleep_ns(100_000);
    }
}

/// Runs the agent's thread from its start to its end.
pub extern "C" fn run() {
    let Some(shared) = shared::get() else { return };
    run_soon();
    leave_no_trace();
    forbidden::begin();
    let Some(data) = shared.data() else { return };
    data.set_thread(gettid());
    if data.state() == State::Absent {
        // This must precede the first patch. For a program with one thread, `entry` has done it already.
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
    while !shared.must_retire.load(Ordering::Acquire) {
        let Some(plan) = shared.plan() else { return };
        if plan.is_silent() {
            sleep_for_good();
        }
        // Acquire: the kernel writes this word when tiptoe dies.
        let word = owner.load(Ordering::Acquire);
        if !is_owned(word) {
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
            // There was work, so do not sleep.
        } else if shared.must_rearm.swap(false, Ordering::AcqRel) {
            serve::rearm(shared);
        } else {
            let pause = confinement.pause(space::read_if_unsure(&data));
            if futex::wait(owner, word, Some(pause)) == Err(TIMED_OUT)
                && let Some(why) = confinement.look(&plan)
            {
                return end(shared, why);
            }
        }
    }
    // Relaxed: ordered by `must_retire`, read above.
    if shared.must_leave.swap(false, Ordering::Relaxed) {
        serve::detach(shared);
        serve::settle(shared, || OtherThreads::Running, || ());
    }
}

/// Sleeps for ever. A filter of the program covers the thread, so any other call might end the program.
fn sleep_for_good() -> ! {
    static NEVER: AtomicU32 = AtomicU32::new(0);
    loop {
        let _ = futex::wait(&NEVER, 0, None);
    }
}

/// Asks for short slices. The thread has little to do and others wait for it, so it should run soon even if the
/// program keeps every core busy. A short slice needs no right (Linux 6.12); a higher priority does, so the thread
/// keeps the program's nice value.
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

/// Closes every descriptor in this thread's own table, opens its own files, gives up its rights, and sets a name that
/// users recognise. The files must be opened first, because opening needs the rights.
fn leave_no_trace() {
    let name = c"tiptoe-agent";
    // SAFETY: the call closes descriptors of this thread's own table only, because the clone did not share it. The
    // name lives through the call.
    unsafe {
        let _ = call(nr::CLOSE_RANGE, [0, u32::MAX as usize, 0, 0, 0, 0]);
        let _ = call(nr::PRCTL, [PR_SET_NAME, name.as_ptr() as usize, 0, 0, 0, 0]);
    }
    files::keep();
    credentials::drop_rights();
}
