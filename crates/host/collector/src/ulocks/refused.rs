//! Waits that the kernel refused. If all mutexes of a deadlock inherit priorities, the kernel answers the last thread's
//! wait with EDEADLK. The thread then sleeps in libc for ever, on a word of its stack. Only the thread's registers
//! contain the mutex's address, and only a stopped thread's registers can be read.

use tiptoe_session::WaitingThread;

use super::LockKind;
use super::futex_sleeper::FutexSleeper;

const MUTEX: &str = "a priority-inheriting mutex";

/// Returns whether the kernel refused the wait. The thread then waits on a word in libc's frames, below `user_sp`.
pub(super) fn is_refused(asleep: &FutexSleeper, kind: &LockKind, user_sp: u64) -> bool {
    kind.name == "mutex" && (asleep.sp..user_sp).contains(&asleep.address)
}

/// Turns a wait on libc's word into a wait for an unknown mutex.
pub(super) fn without_word(wait: WaitingThread) -> WaitingThread {
    WaitingThread {
        lock: MUTEX.to_owned(),
        holder: None,
        holder_comm: None,
        ..wait
    }
}

/// Finds the holders of unknown mutexes. A refused wait would have closed a cycle, so the mutex's holder waits for
/// the refused thread, directly or through other threads. If only one thread waits for the refused thread, that
/// thread is the holder.
pub(super) fn find_holders(waits: &mut [WaitingThread]) {
    let refused: Vec<usize> = (0..waits.len())
        .filter(|index| waits[*index].lock == MUTEX)
        .collect();
    for index in refused {
        let tid = waits[index].tid;
        let waiters = waits.iter().filter(|wait| leads_to(waits, wait, tid));
        let waiters: Vec<(u32, String)> =
            waiters.map(|wait| (wait.tid, wait.comm.clone())).collect();
        if let [(holder, comm)] = &waiters[..] {
            waits[index].holder = Some(*holder);
            waits[index].holder_comm = Some(comm.clone());
        }
    }
}

/// Returns whether a wait is for a mutex of thread `tid`, directly or through other threads.
fn leads_to(waits: &[WaitingThread], wait: &WaitingThread, tid: u32) -> bool {
    let mut at = Some(wait);
    for _ in 0..waits.len() {
        let holder = at
            .filter(|wait| wait.kind == "mutex" && wait.tid != tid)
            .and_then(|wait| wait.holder);
        match holder {
            Some(holder) if holder == tid => return true,
            Some(holder) => at = waits.iter().find(|wait| wait.tid == holder),
            None => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_only_thread_that_waits_for_a_refused_one_is_the_holder() {
        let wait = |tid, lock: &str, holder| WaitingThread {
            tid,
            lock: lock.into(),
            kind: "mutex".into(),
            holder,
            ..WaitingThread::default()
        };
        let refused = || wait(2, MUTEX, None);
        let holder = |others: &[WaitingThread]| {
            let mut waits = [&[refused()], others].concat();
            find_holders(&mut waits);
            waits[0].holder
        };
        assert_eq!(
            holder(&[wait(1, "a", Some(2)), wait(7, "b", Some(8))]),
            Some(1)
        );
        // Thread 1 or 3 may be the holder.
        assert_eq!(
            holder(&[wait(1, "a", Some(2)), wait(3, "b", Some(1))]),
            None
        );
        assert_eq!(holder(&[]), None);
        assert_eq!(
            holder(&[wait(4, "a", Some(5)), wait(5, "b", Some(4))]),
            None
        );
    }
}
