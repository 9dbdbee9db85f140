//! `enable`: disables and enables one kernel breakpoint that other threads inherit. The breakpoint keeps its debug
//! register.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tiptoe_sys::host::perf::PerfEvent;
use tiptoe_sys::raw::futex;

use super::inherited;
use crate::error::Error;
use crate::table::{Table, TableRow, median_and_spread};

const SETTLE: Duration = Duration::from_millis(10);

/// What to measure.
#[derive(Clone, Copy, Debug)]
pub struct Enable {
    /// How often the breakpoint is disabled and enabled.
    pub repeat: u32,
    /// The number of sleeping threads.
    pub passive: u32,
    /// The number of running threads.
    pub active: u32,
    /// How often the time is measured.
    pub rounds: usize,
}

impl Enable {
    pub(super) fn run(&self) -> Result<Table, Error> {
        let times = (0..self.rounds).map(|_| self.measure());
        let times = times.collect::<std::io::Result<Vec<f64>>>();
        let mut table = Table {
            bench: "breakpoint enable".into(),
            ..Table::default()
        };
        match times {
            Ok(times) => {
                let row = TableRow::new("kernel", &times, "usecs/op");
                table.rows.push(row.of_threads(self.passive + self.active));
                table
                    .lines
                    .extend(self.as_perf(median_and_spread(&times).0));
                table.notes.push(format!(
                    "an op is a switch off and a switch on, over {} sleeping and {} running threads; {} rounds of {}",
                    self.passive, self.active, self.rounds, self.repeat
                ));
            }
            Err(error) => table.notes.push(format!("skipped: kernel ({error})")),
        }
        Ok(table)
    }

    fn as_perf(&self, us_per_op: f64) -> [String; 6] {
        [
            "# Running 'breakpoint/enable' benchmark:".to_owned(),
            format!(
                "# Enabled/disabled breakpoint {} time with {} passive and {} active threads",
                self.repeat, self.passive, self.active
            ),
            format!(
                "     Total time: {:.3} [sec]",
                us_per_op * f64::from(self.repeat) / 1e6
            ),
            String::new(),
            format!("{us_per_op:15.6} usecs/op"),
            String::new(),
        ]
    }

    fn measure(&self) -> std::io::Result<f64> {
        let (is_done, is_over) = (AtomicU32::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            // A new thread, so that only its children inherit the breakpoint.
            let work = scope.spawn(|| {
                let events = inherited(1)?;
                std::thread::scope(|scope| {
                    for _ in 0..self.passive {
                        scope.spawn(|| {
                            while is_done.load(Ordering::SeqCst) == 0 {
                                let _ = futex::wait(&is_done, 0, None); // the loop checks again
                            }
                        });
                    }
                    for _ in 0..self.active {
                        scope.spawn(|| {
                            while !is_over.load(Ordering::Relaxed) {
                                std::hint::spin_loop();
                            }
                        });
                    }
                    std::thread::sleep(SETTLE);
                    let took = switch(&events, self.repeat);
                    is_over.store(true, Ordering::Relaxed); // Relaxed: only ends the loops
                    is_done.store(1, Ordering::SeqCst);
                    futex::wake(&is_done, i32::MAX as u32);
                    took
                })
            });
            work.join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

fn switch(events: &[PerfEvent], repeat: u32) -> std::io::Result<f64> {
    let begun = Instant::now();
    for _ in 0..repeat {
        for event in events {
            event.disable()?;
            event.enable()?;
        }
    }
    Ok(begun.elapsed().as_secs_f64() * 1e6 / f64::from(repeat))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_are_perfs() {
        let enable = Enable {
            repeat: 10,
            passive: 2,
            active: 1,
            rounds: 1,
        };
        let perfs = "# Running 'breakpoint/enable' benchmark:\n# Enabled/disabled breakpoint 10 time with 2 passive and 1 \
                     active threads\n     Total time: 0.001 [sec]\n\n      87.400000 usecs/op\n";
        assert_eq!(enable.as_perf(87.4).join("\n"), perfs);
    }
}
