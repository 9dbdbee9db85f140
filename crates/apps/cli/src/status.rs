//! The status line on a terminal's stderr while a run attaches and counts. It is erased before anything else is
//! printed, and drawn again below that.
//!
//! The thread that waits for signals draws it ([`draw_if_due`]), because the driver's thread must serve the
//! target and may be busy for seconds. The driver's loop only stores numbers ([`put`]).
//!
//! [`IS_ON`] is false without a terminal, so that all functions return at once.
//!
//! INVARIANT: a thread holds [`LINE`] while it writes to the terminal, so that the line is never inside other
//! text. The thread that draws must never wait for it, because a signal must end tiptoe even while the terminal
//! takes no output (Ctrl-S).

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tiptoe_collector::{Phase, Progress, RequestTarget};
use tiptoe_report::{RunState, RunStatus, counts_so_far, status_line};
use tiptoe_session::{Cost, Count};
use tiptoe_sys::host::attach_progress;

use crate::args::Common;
use crate::output::Output;
use crate::{ready, terminal};

const ERASE: &str = "\r\x1b[K";
/// Shorter runs show no line.
const FIRST: Duration = Duration::from_millis(300);
/// The pause between two drawings while tiptoe counts.
const PAUSE: Duration = Duration::from_secs(1);
const ATTACHING_PAUSE: Duration = Duration::from_millis(200);
/// Reading counts for the line may take one part in 50 of the loop's time.
const READING_SHARE: u32 = 50;

// Relaxed: the flag orders no other data.
static IS_ON: AtomicBool = AtomicBool::new(false);
static LINE: Mutex<Line> = Mutex::new(Line {
    run: None,
    shown: String::new(),
    drawn_at: None,
});

struct Line {
    run: Option<ShownRun>,
    /// Empty if there is no line.
    shown: String,
    drawn_at: Option<Instant>,
}

struct ShownRun {
    description: RunDescription,
    /// Whether the target writes to the same terminal, so that the line must end when counting begins.
    is_shared: bool,
    begun: Instant,
    counting: Option<Instant>,
    hits: Option<u64>,
    cost: Option<Cost>,
    /// Of `stat`, shown instead of hits.
    counts: Vec<String>,
    requested: Instant,
    next_request: Instant,
}

/// What the line shows of a run and does not change.
#[derive(Clone, Debug)]
pub struct RunDescription {
    pub whom: String,
    /// For what is counted, in the singular.
    pub noun: &'static str,
    pub delay: Option<Duration>,
    pub duration: Option<Duration>,
    /// Whether programs read the report, so that no line may be in its stream.
    pub is_for_programs: bool,
}

impl RunDescription {
    pub fn new(target: &RequestTarget, noun: &'static str, common: &Common) -> RunDescription {
        RunDescription {
            whom: ready::whom(target),
            noun,
            delay: common.delay,
            duration: common.duration,
            is_for_programs: common.json,
        }
    }
}

/// Begins the line of a run, if stderr is a terminal and the line disturbs nothing there.
///
/// A command on the same terminal may write at any time, so the line must end before it begins. If stdout is no
/// terminal, the command is assumed to write only there.
pub fn begin(description: RunDescription, target: &RequestTarget, output: &Output) {
    let (stdout, stderr) = (io::stdout().is_terminal(), terminal::is_there());
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    let is_shared = matches!(target, RequestTarget::Command(_)) && stdout;
    let is_data = match output {
        Output::Stdout => stdout,
        Output::Stderr => stderr,
        Output::Whole(..) | Output::Direct(..) => false,
    } && description.is_for_programs;
    // With a delay, a command begins before counting, so there must be no line.
    if !stderr || is_dumb || is_data || is_shared && description.delay.is_some() {
        return;
    }
    let now = Instant::now();
    line().run = Some(ShownRun {
        description,
        is_shared,
        begun: now,
        counting: None,
        hits: None,
        cost: None,
        counts: Vec::new(),
        requested: now,
        next_request: now,
    });
    IS_ON.store(true, Relaxed);
}

/// Switches the line to counting, or ends it if the target writes to the same terminal.
pub fn counting() {
    if !IS_ON.load(Relaxed) {
        return;
    }
    let mut line = line();
    let now = Instant::now();
    line.erase();
    match &mut line.run {
        Some(run) if !run.is_shared => {
            (run.counting, run.next_request) = (Some(now), now + FIRST);
            line.drawn_at = None;
        }
        _ => line.end(),
    }
}

pub fn wants_progress() -> bool {
    if !IS_ON.load(Relaxed) {
        return false;
    }
    let now = Instant::now();
    let mut line = line();
    match &mut line.run {
        Some(run) if run.counting.is_some() && now >= run.next_request => {
            run.requested = now;
            true
        }
        _ => false,
    }
}

pub fn put(progress: &Progress) {
    if let Some(run) = &mut line().run {
        (run.hits, run.cost) = (Some(progress.hits), progress.cost.clone());
        run.set_next_request();
    }
}

pub fn put_counts(counts: &[Count]) {
    if let Some(run) = &mut line().run {
        run.counts = counts_so_far(counts);
        run.set_next_request();
    }
}

/// Draws the line if its pause is over. One thread must call this every few milliseconds.
pub fn draw_if_due() {
    if !IS_ON.load(Relaxed) {
        return;
    }
    if let Ok(mut line) = LINE.try_lock() {
        line.draw_if_due(Instant::now());
    }
}

pub fn end() {
    if IS_ON.load(Relaxed) {
        line().end();
    }
}

/// Erases the line for good, unless that would wait for another writer or for a terminal that takes no output;
/// then the next output erases it.
pub fn end_without_waiting() {
    if !IS_ON.load(Relaxed) {
        return;
    }
    if let Ok(mut line) = LINE.try_lock()
        && (line.shown.is_empty() || terminal::takes_a_line())
    {
        line.end();
    }
}

/// Disables the line. A panicking thread must call this before it prints: it may hold the line's lock and would
/// deadlock.
pub fn give_up() {
    IS_ON.store(false, Relaxed);
}

/// Erases the line, calls `write`, and draws the line again. Without `ends_line` it is not drawn, because the
/// written text does not end its line.
pub fn with_line_erased<R>(ends_line: bool, write: impl FnOnce() -> R) -> R {
    if !IS_ON.load(Relaxed) {
        return write();
    }
    let mut line = line();
    let shown = line.erase();
    let written = write();
    if ends_line && !shown.is_empty() {
        line.draw(shown);
    }
    written
}

/// Writes to the terminal above the status line.
pub struct AboveStatusLine<W>(pub W);

impl<W: Write> Write for AboveStatusLine<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        with_line_erased(bytes.ends_with(b"\n"), || self.0.write(bytes))
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        with_line_erased(bytes.ends_with(b"\n"), || {
            self.0.write_all(bytes).and_then(|()| self.0.flush())
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

fn line() -> MutexGuard<'static, Line> {
    LINE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Line {
    fn draw_if_due(&mut self, now: Instant) {
        let Some(run) = &self.run else { return };
        let pause = match run.counting {
            Some(_) => PAUSE,
            None => ATTACHING_PAUSE,
        };
        let is_late = now >= run.begun + FIRST;
        let is_due = is_late && self.drawn_at.is_none_or(|at| now >= at + pause);
        let is_over = matches!(Phase::now(), Phase::Ending | Phase::Waiting);
        // Last, because it makes system calls.
        if !(is_due || is_over && !self.shown.is_empty()) || !terminal::takes_a_line() {
            return;
        }
        if is_over {
            self.erase();
            return;
        }
        // The last column stays free, because some terminals wrap after it.
        let width = terminal::options().width.unwrap_or(80).saturating_sub(1);
        let text = status_line(&run.status(now), width);
        self.drawn_at = Some(now);
        if text != self.shown {
            self.draw(text);
        }
    }

    /// Leaves the cursor at the line's beginning, so that an echoed `^C` is erased with it.
    fn draw(&mut self, text: String) {
        terminal::write_raw(&format!("\r{text}\x1b[K\r"));
        self.shown = text;
    }

    fn erase(&mut self) -> String {
        let shown = std::mem::take(&mut self.shown);
        if !shown.is_empty() {
            terminal::write_raw(ERASE);
        }
        shown
    }

    fn end(&mut self) {
        self.erase();
        self.run = None;
        IS_ON.store(false, Relaxed);
    }
}

impl ShownRun {
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
