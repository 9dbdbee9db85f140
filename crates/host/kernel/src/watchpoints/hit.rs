//! Measures the cost of a breakpoint's hit: the trap, without the BPF program's work.

use std::sync::atomic::{AtomicU64, Ordering};

use tiptoe_event::Cost;
use tiptoe_sys::host::perf::{Access, Breakpoint, CountedOn, PerfEvent, SigtrapHandler};
use tiptoe_sys::raw::thread_cpu_ns;

use super::opener::{cannot_switch_on, open, refusal};
use crate::Error;

const BATCHES: usize = 7;
const HITS: u64 = 30;

pub(super) fn measure() -> Result<(Cost, bool), Error> {
    let word = AtomicU64::new(0);
    let at = stores_to(&word);
    let here = CountedOn::Thread(0);
    let (event, sees_kernel) = match open(&at, here, true) {
        Err(Error::BreakpointDenied) => (open(&at, here, false)?, false),
        event => (event?, true),
    };
    event.enable().map_err(cannot_switch_on)?;
    Ok((timed(&word), sees_kernel))
}

/// Returns the cost of a hit that sends a signal, with the handler of tiptoe's library.
pub fn signal_cost() -> Result<Cost, Error> {
    let word = AtomicU64::new(0);
    let at = stores_to(&word);
    let _answered = SigtrapHandler::install().map_err(cannot_switch_on)?;
    let event = PerfEvent::signal_accesses(&at);
    let _event = event.map_err(|error| refusal(error, &at, CountedOn::Thread(0)))?;
    Ok(timed(&word))
}

fn stores_to(word: &AtomicU64) -> Breakpoint {
    Breakpoint {
        address: word.as_ptr() as u64,
        len: 8,
        access: Access::Write,
    }
}

fn timed(word: &AtomicU64) -> Cost {
    let mut batches = [0.0; BATCHES];
    for batch in &mut batches {
        let start = thread_cpu_ns();
        // Relaxed: the store only has to hit the breakpoint.
        (0..HITS).for_each(|hit| word.store(hit, Ordering::Relaxed));
        *batch = (thread_cpu_ns() - start) as f64 / HITS as f64;
    }
    batches.sort_by(f64::total_cmp);
    let [low, middle, high] = [1, BATCHES / 2, BATCHES - 2].map(|at| batches[at]);
    Cost::between(low, middle, high)
}
