//! Waits until no thread can get a signal of a closed event, or of a trap byte that was removed.
//!
//! The kernel sends the signal when the thread returns to the program. A thread may lose its CPU just before that, and
//! gets the signal once it has a CPU again. Without our handler this signal would kill the program.

use tiptoe_sys::raw::{self, gettid};

use crate::memory::{self, PAGE};
use crate::tasks::{self, Task};

const LOOK_NS: u64 = 1_000_000;
/// Under heavy load a thread may get no CPU for seconds.
const MOST_LOOKS: u32 = 5_000;
/// Room for threads that start while the list is read.
const MORE: usize = 64;

/// A thread, and [`Task::progress`] when the events had been closed and the trap bytes removed.
type Runnable = [u64; 2];

/// Waits until each thread that could run has run.
pub fn wait() {
    let most = tasks::count() + MORE;
    let len = (most * size_of::<Runnable>()).next_multiple_of(PAGE);
    let Ok(at) = memory::private(len) else { return };
    // SAFETY: fresh zeroed memory of that length, which nothing else uses.
    let threads = unsafe { core::slice::from_raw_parts_mut(at as *mut Runnable, most) };
    let (mut used, own) = (0, gettid());
    tasks::each_task(|task| {
        if task.tid() != own
            && task.is_runnable()
            && let Some(progress) = task.progress()
            && let Some(place) = threads.get_mut(used)
        {
            *place = [task.tid().into(), progress];
            used += 1;
        }
    });
    for _ in 0..MOST_LOOKS {
        if !have_waiting(threads.get_mut(..used).unwrap_or_default()) {
            break;
        }
        raw::sleep_ns(LOOK_NS);
    }
    memory::unmap(at, len);
}

/// Forgets threads that have run, and returns whether others are left.
fn have_waiting(threads: &mut [Runnable]) -> bool {
    let mut are_left = false;
    tasks::each_task(|task: &Task| {
        let tid = u64::from(task.tid());
        let found = threads.iter_mut().find(|thread| thread[0] == tid);
        if let Some([waiting, before]) = found {
            match task.is_runnable() && task.progress() == Some(*before) {
                true => are_left = true,
                false => *waiting = 0,
            }
        }
    });
    are_left
}
