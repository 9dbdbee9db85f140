//! Sleeps until an agent (tiptoe's library) reports a change, or until a deadline.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A word in shared memory, and the word's value while the agent has nothing to report.
pub type Bell<'a> = (&'a AtomicU32, u32);

/// The most words that futex_waitv(2) takes.
const MOST: usize = 128;
/// The longest sleep where futex_waitv cannot be used: before Linux 5.16, or for more than [`MOST`] words.
const NAP: Duration = Duration::from_millis(1);

/// `struct futex_waitv`.
#[repr(C)]
struct BellWait {
    value: u64,
    address: u64,
    flags: u32,
    reserved: u32,
}

/// Sleeps until a word differs from its value, or until `limit` has passed; may return earlier.
pub fn wait(bells: &[Bell], limit: Duration) {
    let some = !bells.is_empty() && bells.len() <= MOST;
    match (bells.is_empty(), some && wait_for_any(bells, limit)) {
        (_, true) => {}
        (true, _) => std::thread::sleep(limit),
        (false, _) => std::thread::sleep(limit.min(NAP)),
    }
}

/// Returns whether any word differs from its value.
pub fn is_rung(bells: &[Bell]) -> bool {
    // Relaxed: the code that handles the change loads the word again with its own ordering.
    let rung = |(word, quiet): &Bell| word.load(Ordering::Relaxed) != *quiet;
    bells.iter().any(rung)
}

/// Returns `false` if the kernel lacks futex_waitv.
fn wait_for_any(bells: &[Bell], limit: Duration) -> bool {
    const SIZE_U32: u32 = 2;
    let waits: Vec<BellWait> = bells
        .iter()
        .map(|(word, value)| BellWait {
            value: u64::from(*value),
            address: word.as_ptr() as u64,
            flags: SIZE_U32,
            reserved: 0,
        })
        .collect();
    let until = Duration::from_nanos(tiptoe_sys::raw::monotonic_ns()) + limit;
    let until = libc::timespec {
        tv_sec: until.as_secs().cast_signed(),
        tv_nsec: i64::from(until.subsec_nanos()),
    };
    let (table, count) = (waits.as_ptr(), waits.len());
    let clock = libc::CLOCK_MONOTONIC;
    // SAFETY: the table, its words and the time outlive the call.
    let woken = unsafe {
        libc::syscall(
            libc::SYS_futex_waitv,
            table,
            count,
            0,
            &raw const until,
            clock,
        )
    };
    woken >= 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::ENOSYS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::SeqCst;
    use std::time::Instant;

    #[test]
    fn a_word_that_changed_is_not_waited_for() {
        let (rung, quiet) = (AtomicU32::new(1), AtomicU32::new(0));
        let began = Instant::now();
        wait(&[(&quiet, 0), (&rung, 0)], Duration::from_secs(60));
        assert!(is_rung(&[(&quiet, 0), (&rung, 0)]));
        wait(&[(&quiet, 0)], Duration::from_millis(1));
        assert!(!is_rung(&[(&quiet, 0), (&rung, 1)]));
        wait(&[], Duration::from_millis(1));
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "{}",
            rung.load(SeqCst)
        );
    }
}
