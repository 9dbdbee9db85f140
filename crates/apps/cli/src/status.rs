//! What the status line shows while a run attaches and counts, and when it is drawn.
//!
//! The thread that waits for signals draws the line ([`draw_if_due`]), because the driver's thread, which runs the
//! trace, may be busy for seconds. The driver's loop only stores numbers ([`put`]).
//!
//! A thread may take the line's lock while it holds [`RUN`], but not the reverse. The thread that draws waits for
//! neither lock.

use std::io::{self, IsTerminal};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tiptoe_collector::{Phase, Progress, RequestTarget};
use tiptoe_report::{RunState, RunStatus, counts_so_far, status_line};
use tiptoe_session::{Cost, Count};
use tiptoe_sys::host::attach_progress;

use crate::output::Output;
use crate::terminal::{self, line};

/// Runs shorter than this show no line.
const FIRST: Duration = Duration::from_millis(300);
/// The pause between two drawings while tiptoe counts.
const PAUSE: Duration = Duration::from_secs(1);
const ATTACHING_PAUSE: Duration = Duration::from_millis(200);
/// Reading counts for the line takes at most one part in `READING_SHARE` of the loop's time.
const READING_SHARE: u32 = 50;

static RUN: Mutex<Option<ShownRun>> = Mutex::new(None);

struct ShownRun {
    description: RunDescription,
    /// Whether the target shares tiptoe's terminal.
    is_shared: bool,
    begun: Instant,
    counting: Option<Instant>,
    hits: Option<u64>,
    cost: Option<Cost>,
    /// The counts of `stat`, shown instead of hits.
    counts: Vec<String>,
    requested: Instant,
    next_request: Instant,
    drawn_at: Option<Instant>,
}

/// The part of the line that does not change during a run.
#[derive(Clone, Debug)]
pub struct RunDescription {
    pub whom: String,
    /// The noun for what is counted, in the singular.
    pub noun: &'static str,
    pub delay: Option<Duration>,
    pub duration: Option<Duration>,
    /// Whether programs read the report. If so, no line may be in the report's stream.
    pub is_for_programs: bool,
}

/// Begins the line of a run, if stderr is a terminal and the line disturbs nothing there.
///
/// A command on the same terminal may write at any time, so the line must end before the command begins. If stdout is
/// no terminal, the command is assumed not to write to the terminal.
pub fn begin(description: RunDescription, target: &RequestTarget, output: &Output) {
    let (stdout, stderr) = (io::stdout().is_terminal(), terminal::is_there());
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    let is_shared = matches!(target, RequestTarget::Command(_)) && stdout;
    let is_data = match output {
        Output::Stdout => stdout,
        Output::Stderr => stderr,
        Output::Whole(..) | Output::Direct(..) => false,
    } && description.is_for_programs;
    // The line ends when counting begins. With a delay the command begins earlier, so there must be no line.
    if !stderr || is_dumb || is_data || is_shared && description.delay.is_some() {
        return;
    }
    let now = Instant::now();
    *run() = Some(ShownRun {
        description,
        is_shared,
        begun: now,
        counting: None,
        hits: None,
        cost: None,
        counts: Vec::new(),
        requested: now,
        next_request: now,
        drawn_at: None,
    });
    line::turn_on();
}

pub fn counting() {
    if !line::is_on() {
        return;
    }
    match &mut *run() {
        Some(run) if !run.is_shared => {
            let now = Instant::now();
            line::erase();
            (run.counting, run.next_request) = (Some(now), now + FIRST);
            run.drawn_at = None;
        }
        _ => line::end(),
    }
}

pub fn wants_progress() -> bool {
    if !line::is_on() {
        return false;
    }
    let now = Instant::now();
    match &mut *run() {
        Some(run) if run.counting.is_some() && now >= run.next_request => {
            run.requested = now;
            true
        }
        _ => false,
    }
}

pub fn put(progress: &Progress) {
    if let Some(run) = &mut *run() {
        (run.hits, run.cost) = (Some(progress.hits), progress.cost.clone());
        run.set_next_request();
    }
}

pub fn put_counts(counts: &[Count]) {
    if let Some(run) = &mut *run() {
        run.counts = counts_so_far(counts);
        run.set_next_request();
    }
}

/// One thread must call this every few milliseconds.
pub fn draw_if_due() {
    if line::is_on()
        && let Ok(mut run) = RUN.try_lock()
        && let Some(run) = &mut *run
    {
        run.draw_if_due(Instant::now());
    }
}

fn run() -> MutexGuard<'static, Option<ShownRun>> {
    RUN.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ShownRun {
    fn draw_if_due(&mut self, now: Instant) {
        if matches!(Phase::now(), Phase::Ending | Phase::Waiting) {
            line::try_draw("");
            return;
        }
        let pause = match self.counting {
            Some(_) => PAUSE,
            None => ATTACHING_PAUSE,
        };
        let is_late = now >= self.begun + FIRST;
        if !is_late || self.drawn_at.is_some_and(|at| now < at + pause) {
            return;
        }
        // The last column stays free, because some terminals wrap after it.
        let width = terminal::options().width.unwrap_or(80).saturating_sub(1);
        if line::try_draw(&status_line(&self.status(now), width)) {
            self.drawn_at = Some(now);
        }
    }

    fn set_next_request(&mut self) {
        let now = Instant::now();
        let took = now.saturating_duration_since(self.requested);
        self.next_request = now + PAUSE.max(took * READING_SHARE);
    }

    fn status(&self, now: Instant) -> RunStatus<'_> {
        let delayed = self.description.delay.and_then(|delay| {
            let left = delay.checked_sub(now.saturating_duration_since(self.begun));
            left.filter(|left| !left.is_zero())
        });
        let state = match (self.counting, delayed) {
            (Some(since), _) => {
                let elapsed = now.saturating_duration_since(since);
                let left = |duration: Duration| duration.saturating_sub(elapsed);
                RunState::Counting {
                    elapsed,
                    left: self.description.duration.map(left),
                }
            }
            (None, Some(left)) => RunState::Delayed { left },
            (None, None) => RunState::Attaching {
                functions: attach_progress::progress(),
            },
        };
        RunStatus {
            whom: &self.description.whom,
            state,
            hits: self.hits.map(|count| (count, self.description.noun)),
            cost: self.cost.as_ref(),
            counts: &self.counts,
        }
    }
}
