//! The line on a terminal while a run attaches and counts.

use std::time::Duration;

use tiptoe_session::{Basis, Cost};

use crate::columns::{LEAST_NAME, columns, cut, shortened};
use crate::number::{counted, grouped, percent};
use crate::printable;

const END: &str = "Ctrl-C ends";

/// The state of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunState {
    /// The run waits for its `--delay`.
    Delayed {
        /// Time until counting begins.
        left: Duration,
    },
    /// tiptoe enters the target.
    Attaching {
        /// The number of functions that have their probe, and of all functions.
        functions: Option<(u64, u64)>,
    },
    /// tiptoe counts.
    Counting {
        /// Time since counting began.
        elapsed: Duration,
        /// Time until the end that `--duration` sets.
        left: Option<Duration>,
    },
}

/// The content of the line.
#[derive(Clone, Debug)]
pub struct RunStatus<'a> {
    /// The target.
    pub whom: &'a str,
    /// The run's state.
    pub state: RunState,
    /// The count so far, and its noun in the singular.
    pub hits: Option<(u64, &'static str)>,
    /// The cost so far.
    pub cost: Option<&'a Cost>,
    /// The counts of `stat` so far, by [`counts_so_far`](crate::counts_so_far).
    pub counts: &'a [String],
}

/// Returns the line in at most `width` columns. A line that is too long loses counts, except the first, then the
/// middle of the target's name, and last its own end.
pub fn status_line(status: &RunStatus<'_>, width: usize) -> String {
    let whom = printable(status.whom);
    let (before, after) = match status.state {
        RunState::Delayed { left } => {
            let left = clock(rounded_up(left));
            ("", format!(": counting begins in {left}; {END}"))
        }
        RunState::Attaching { functions } => {
            let functions = functions
                .map(|(done, all)| format!(": {} of {}", grouped(done), counted(all, "function")));
            ("attaching to ", functions.unwrap_or_default() + "; " + END)
        }
        RunState::Counting { elapsed, left } => {
            let room = width.saturating_sub(columns(&whom));
            ("", counting(status, elapsed, left, room))
        }
    };
    let room = width.saturating_sub(columns(before) + columns(&after));
    let whom = shortened(&whom, room.max(LEAST_NAME));
    cut(&format!("{before}{whom}{after}"), width)
}

/// Returns the text after the target's name.
fn counting(
    status: &RunStatus<'_>,
    elapsed: Duration,
    left: Option<Duration>,
    room: usize,
) -> String {
    let time = match left {
        Some(left) => format!(": {} left", clock(rounded_up(left))),
        None => format!(": {}", clock(elapsed)),
    };
    let hits = status.hits;
    let hits = hits.map(|(count, noun)| format!(", {}", counted(count, noun)));
    let cost = status.cost.map(|cost| {
        let mark = match cost.basis {
            Basis::Estimated => "~",
            Basis::Measured => "",
        };
        format!(", cost {mark}{}%", percent(cost.fraction))
    });
    let [hits, cost] = [hits, cost].map(Option::unwrap_or_default);
    let end = format!("{hits}{cost}; {END}");
    let mut text = time;
    for (at, count) in status.counts.iter().enumerate() {
        let more = format!(", {count}");
        if at > 0 && columns(&text) + columns(&more) + columns(&end) > room {
            break;
        }
        text += &more;
    }
    text + &end
}

/// Rounds up to seconds, so that 0 means that no time is left.
fn rounded_up(left: Duration) -> Duration {
    Duration::from_secs(left.as_nanos().div_ceil(1_000_000_000) as u64)
}

/// Formats whole seconds in the two largest units: `59 s`, `2 min 5 s`, `3 h 0 min`.
fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    match (seconds / 3600, seconds / 60 % 60) {
        (0, 0) => format!("{seconds} s"),
        (0, minutes) => format!("{minutes} min {} s", seconds % 60),
        (hours, minutes) => format!("{hours} h {minutes} min"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tiptoe_event::Cost as Price;

    const S: Duration = Duration::from_secs(1);

    fn counting_status<'a>(whom: &'a str, cost: &'a Cost) -> RunStatus<'a> {
        RunStatus {
            whom,
            state: RunState::Counting {
                elapsed: 3 * S,
                left: Some(Duration::from_millis(11_200)),
            },
            hits: Some((1_234_567, "hit")),
            cost: Some(cost),
            counts: &[],
        }
    }

    fn price(ns: f64) -> Cost {
        Cost::estimated(1, Price::between(ns, ns, ns), 1_000_000_000)
    }

    #[test]
    fn the_line_shows_the_remaining_time_and_the_cost() {
        let cost = price(4e6);
        let status = counting_status("redis-server (pid 31337)", &cost);
        assert_eq!(
            status_line(&status, 79),
            "redis-server (pid 31337): 12 s left, 1,234,567 hits, cost ~0.40%; Ctrl-C ends"
        );
        let unlimited = RunStatus {
            state: RunState::Counting {
                elapsed: 125 * S,
                left: None,
            },
            cost: None,
            hits: Some((1, "wait")),
            ..status
        };
        assert_eq!(
            status_line(&unlimited, 79),
            "redis-server (pid 31337): 2 min 5 s, 1 wait; Ctrl-C ends"
        );
        let state = |state| RunStatus {
            state,
            ..unlimited.clone()
        };
        let functions = Some((1_200, 2_654));
        assert_eq!(
            status_line(&state(RunState::Attaching { functions }), 79),
            "attaching to redis-server (pid 31337): 1,200 of 2,654 functions; Ctrl-C ends"
        );
        let left = Duration::from_millis(1);
        assert_eq!(
            status_line(&state(RunState::Delayed { left }), 79),
            "redis-server (pid 31337): counting begins in 1 s; Ctrl-C ends"
        );
        assert_eq!(clock(Duration::from_secs(3 * 3600 + 59)), "3 h 0 min");
    }

    /// A wrapped line cannot be erased.
    #[test]
    fn no_line_is_wider_than_the_terminal() {
        let cost = price(1e9);
        for whom in [
            "a",
            "redis-server (pid 31337)",
            "名前名前名前名前名前名前名前",
        ] {
            for width in 0..120 {
                let line = status_line(&counting_status(whom, &cost), width);
                assert!(columns(&line) <= width.max(1), "{width}: {line}");
            }
        }
        let long = "a-program-with-a-long-name (pid 4194303)";
        assert_eq!(
            status_line(&counting_status(long, &cost), 79),
            "a-program-wi…id 4194303): 12 s left, 1,234,567 hits, cost ~100.00%; Ctrl-C ends"
        );
    }

    #[test]
    fn counts_are_shown_while_they_fit() {
        let counts = ["1,305.20 msec task-clock", "18,383 cs", "890 page-faults"];
        let counts = counts.map(str::to_owned);
        let status = RunStatus {
            whom: "redis-server (pid 31337)",
            state: RunState::Counting {
                elapsed: 3 * S,
                left: None,
            },
            hits: None,
            cost: None,
            counts: &counts,
        };
        for (width, expected) in [
            (
                99,
                "redis-server (pid 31337): 3 s, 1,305.20 msec task-clock, 18,383 cs, 890 page-faults; Ctrl-C ends",
            ),
            (
                80,
                "redis-server (pid 31337): 3 s, 1,305.20 msec task-clock, 18,383 cs; Ctrl-C ends",
            ),
            (
                60,
                "redis-se… 31337): 3 s, 1,305.20 msec task-clock; Ctrl-C ends",
            ),
        ] {
            assert_eq!(status_line(&status, width), expected, "{width}");
        }
    }

    #[test]
    fn a_terminal_obeys_no_name() {
        let cost = price(0.0);
        let line = status_line(&counting_status("a\u{1b}[2J\r", &cost), 79);
        assert!(line.starts_with("a\\x1b[2J\\r: 12 s left"), "{line}");
    }
}
