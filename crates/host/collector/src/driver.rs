//! The loop: attach, tell intervals, stop, detach, and write down what it was.

use std::io::Read;
use std::process::Child;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tiptoe_event::{Cost, Via};
use tiptoe_session::{Event, Part, Process, Refusal, Session};

use crate::calibrate::{UnitCosts, Want, unit_costs};
use crate::module::{Cache, Module, Object};
use crate::offer::Offer;
use crate::preload::{self, Started};
use crate::request::{Error, Observer, Outcome, Request, RequestTarget};
use crate::resolve;
use crate::totals::{Events, Prices};
use crate::tracee::{Plan, Source, Tracee, short_of_room};

/// How often the loop looks whether to stop.
const TICK: Duration = Duration::from_millis(10);
/// How often it looks whether a target runs another program now, or as another user.
const EXEC_TICK: Duration = Duration::from_millis(20);
/// How often it looks whether somebody else probes the same functions.
const FOREIGN_TICK: Duration = Duration::from_millis(500);
/// How long a started program may take to reach the agent's constructor.
const REACH: Duration = Duration::from_secs(10);
/// Probes that a command may get, whose libraries are not known yet.
const COMMAND_PROBES: u32 = 1 << 16;

/// Runs a request to its end.
pub fn run(request: Request, observer: &mut dyn Observer) -> Result<Outcome, Error> {
    for spec in &request.specs {
        resolve::parse(spec)?;
    }
    let plan = Plan::of(&request);
    let started_at = SystemTime::now();
    let (tracees, child) = match &request.target {
        RequestTarget::Pids(pids) => (attach_all(&request, pids, &plan)?, None),
        RequestTarget::Command(command) => {
            let (tracee, child) = start(command, &plan)?;
            (vec![tracee], Some(child))
        }
    };
    let mut run = Run::new(&request, tracees, child, started_at);
    let looped = run.watch(observer);
    let _soon = run.child.is_none().then(Hurry::new);
    run.look_for_foreign();
    let went = run.tracees.iter().filter_map(Tracee::came_and_went);
    run.session.notes.extend(went);
    run.all_ended(observer);
    let detached: Result<Vec<()>, Error> = run.tracees.iter().map(Tracee::detach).collect();
    looped?;
    run.finish()?;
    if let Err(error) = detached {
        run.session.notes.push(error.to_string());
    }
    let exit_status = run.wait_for_command();
    Ok(Outcome {
        session: run.session,
        exit_status,
    })
}

/// Attaches to one running process, takes its probes out and puts them in again
/// `times` times while it runs, and detaches: how the patcher is shown to be safe.
/// Returns how often it did, fewer where `request.stop` was set.
pub fn toggle(request: &Request, times: u64) -> Result<u64, Error> {
    let RequestTarget::Pids(pids) = &request.target else {
        return Err(Error::new("toggling needs a running process"));
    };
    let plan = Plan {
        via: Via::Agent,
        by: None,
        ..Plan::of(request)
    };
    let tracees = attach_all(request, pids, &plan)?;
    let stop = || request.stop.load(Ordering::Relaxed);
    let toggled = tracees
        .iter()
        .map(|tracee| tracee.toggle(times, stop))
        .sum();
    for tracee in &tracees {
        tracee.detach()?;
    }
    toggled
}

fn attach_all(request: &Request, pids: &[u32], plan: &Plan) -> Result<Vec<Tracee>, Error> {
    if let Some(delay) = request.delay {
        let until = Instant::now() + delay;
        while Instant::now() < until && !request.stop.load(Ordering::Relaxed) {
            std::thread::sleep(TICK.min(delay));
        }
    }
    let mut cache = Cache::default();
    let mut tracees = Vec::new();
    let _soon = Hurry::new();
    for pid in pids {
        match Tracee::attach(*pid, plan, &mut cache) {
            Ok(tracee) => tracees.push(tracee),
            Err(error) => {
                // A failed run leaves nothing in any target.
                for tracee in &tracees {
                    let _ = Tracee::detach(tracee);
                }
                return Err(error);
            }
        }
    }
    Ok(tracees)
}

/// While it lives this process runs at a high priority, where it may: a target
/// that keeps every core busy would else hold up its own attach.
struct Hurry(i32);

impl Hurry {
    const NICE: i32 = -15;

    fn new() -> Hurry {
        // SAFETY: both calls take and return integers only.
        unsafe {
            let before = libc::getpriority(libc::PRIO_PROCESS, 0);
            libc::setpriority(libc::PRIO_PROCESS, 0, Self::NICE);
            Hurry(before)
        }
    }
}

impl Drop for Hurry {
    fn drop(&mut self) {
        // SAFETY: as in `new`.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, self.0) };
    }
}

/// Starts a command with the agent in it, or, where that cannot be, under the
/// kernel's probes.
fn start(command: &[std::ffi::OsString], plan: &Plan) -> Result<(Tracee, Child), Error> {
    let path = preload::find_program(&command[0])?;
    let object = match Object::of_program(&path) {
        Err(error) if is_elf(&path) => return Err(error),
        object => object,
    };
    let against = match &object {
        Ok(object) => object
            .image
            .header()
            .refusal_in_process()
            .map(str::to_owned),
        // A script: its interpreter decides.
        Err(_) => None,
    };
    // A command has the limits of tiptoe, which starts it.
    let own = tiptoe_sys::host::procfs::Process::current();
    let room = || short_of_room(own).filter(|_| !plan.force && object.is_ok());
    let against = against.or_else(room);
    if let (Via::Agent, Some(reason)) = (plan.via, &against) {
        return Err(Error::new(format!(
            "the agent cannot enter {}: {reason}",
            path.display()
        ))
        .with_hint("`--via kernel` counts the same functions"));
    }
    match (plan.via, against) {
        (Via::Kernel, _) => start_under_kernel(command, object?, plan, None),
        (_, Some(reason)) => start_under_kernel(command, object?, plan, Some(reason)),
        _ => start_with_agent(command, plan),
    }
}

/// Whether a file is a program of some machine, rather than a script.
fn is_elf(path: &std::path::Path) -> bool {
    let mut magic = [0; 4];
    let read = std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut magic));
    read.is_ok() && magic == *b"\x7fELF"
}

fn cannot_start(command: &[std::ffi::OsString], error: &std::io::Error) -> Error {
    Error::new(format!("cannot run `{}`: {error}", command[0].display()))
}

fn start_with_agent(command: &[std::ffi::OsString], plan: &Plan) -> Result<(Tracee, Child), Error> {
    let offer = Offer::new(COMMAND_PROBES * plan.follow().width())?;
    let failed = |error: std::io::Error| cannot_start(command, &error);
    let started = preload::start(command, Some(offer.passed(plan.agent)?)).map_err(failed)?;
    let pid = started.pid;
    let link = offer.open(&plan.terms(), pid)?;
    let mut child = started.proceed().map_err(failed)?;
    if link.wait_for_hello(REACH).is_none() {
        let status = child.try_wait().ok().flatten();
        let _ = child.kill();
        let _ = child.wait();
        let why = match status {
            Some(status) => format!("it ended before that ({status})"),
            None => "its loader did not take the agent (setuid, or not glibc?)".to_owned(),
        };
        return Err(Error::new(format!(
            "the agent did not get into `{}`: {why}",
            command[0].display()
        ))
        .with_hint("`--via kernel` needs no agent"));
    }
    match Tracee::adopt(pid, link, plan, &mut Cache::default()) {
        Ok(tracee) => Ok((tracee, child)),
        Err(error) => {
            let _ = child.kill();
            let _ = child.wait();
            Err(error)
        }
    }
}

fn start_under_kernel(
    command: &[std::ffi::OsString],
    object: Object,
    plan: &Plan,
    reason: Option<String>,
) -> Result<(Tracee, Child), Error> {
    let path = preload::find_program(&command[0])?;
    let failed = |error: std::io::Error| cannot_start(command, &error);
    let started: Started = preload::start(command, None).map_err(failed)?;
    let modules = Module::before_exec(object, path);
    let mut tracee = Tracee::kernel_only(started.pid, &modules, plan)?;
    tracee
        .notes
        .extend(reason.map(|reason| format!("traced by the kernel: {reason}")));
    plan.go_on()?;
    Ok((tracee, started.proceed().map_err(failed)?))
}

/// A run that is on.
struct Run<'a> {
    request: &'a Request,
    tracees: Vec<Tracee>,
    child: Option<Child>,
    exit_status: Option<i32>,
    session: Session,
    start: Instant,
    baseline: Events,
}

impl<'a> Run<'a> {
    fn new(
        request: &'a Request,
        tracees: Vec<Tracee>,
        child: Option<Child>,
        started_at: SystemTime,
    ) -> Run<'a> {
        let command = match &request.target {
            RequestTarget::Command(command) => command
                .iter()
                .map(|word| word.to_string_lossy().into_owned())
                .collect(),
            RequestTarget::Pids(_) => tracees
                .first()
                .map(|t| t.command.clone())
                .unwrap_or_default(),
        };
        let mut session = Session::new(command);
        session.started_unix_ns = started_at
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_nanos() as u64);
        for tracee in &tracees {
            let (pid, comm) = (tracee.process.pid(), tracee.comm.clone());
            session.targets.push(Process { pid, comm });
            session.notes.extend(tracee.notes.iter().cloned());
            let refusal = |(event, why): &(String, String)| Refusal::new(event, why);
            session.refusals.extend(tracee.refused.iter().map(refusal));
        }
        let start = tracees
            .first()
            .map_or_else(Instant::now, |tracee| tracee.since);
        let baseline = Events::default();
        Run {
            request,
            tracees,
            child,
            exit_status: None,
            session,
            start,
            baseline,
        }
    }

    /// Runs until the target ends, time is over, or the user stops it.
    fn watch(&mut self, observer: &mut dyn Observer) -> Result<(), Error> {
        let delay = match self.request.target {
            RequestTarget::Command(_) => self.request.delay,
            RequestTarget::Pids(_) => None,
        };
        let end = self
            .request
            .duration
            .map(|d| self.start + d + delay.unwrap_or_default());
        let mut begin = delay.map(|delay| self.start + delay);
        let mut next = self.request.interval.map(|interval| self.start + interval);
        let mut next_exec_look = self.start + EXEC_TICK;
        let mut next_foreign_look = self.start + FOREIGN_TICK;
        let mut last = Events::default();
        loop {
            let now = Instant::now();
            if begin.is_some_and(|begin| now >= begin) {
                begin = None;
                self.baseline = self.events()?;
            }
            if let (Some(at), Some(interval)) = (next, self.request.interval)
                && now >= at
            {
                next = Some(at + interval);
                last = self.tell_interval(last, interval, observer)?;
            }
            if now >= next_foreign_look {
                next_foreign_look = now + FOREIGN_TICK;
                self.look_for_foreign();
            }
            if now >= next_exec_look {
                next_exec_look = now + EXEC_TICK;
                self.tracees.iter().for_each(Tracee::follow_user);
                let empty = self.tracees.iter().all(Tracee::only_agent_left);
                if empty || self.all_ended(observer) {
                    return Ok(());
                }
            }
            let stopped = self.request.stop.load(Ordering::Relaxed);
            if stopped || self.has_ended() || end.is_some_and(|end| now >= end) {
                return Ok(());
            }
            let wake = [next, end, begin].into_iter().flatten().min();
            let pause = wake.map_or(TICK, |at| at.saturating_duration_since(now).min(TICK));
            std::thread::sleep(pause.max(Duration::from_micros(100)));
        }
    }

    fn has_ended(&mut self) -> bool {
        match &self.child {
            Some(child) => has_exited(child.id()),
            None => self.tracees.iter().all(Tracee::is_gone),
        }
    }

    /// Tells of traces that ended before their programs; whether all did.
    fn all_ended(&mut self, observer: &mut dyn Observer) -> bool {
        let mut all = true;
        for tracee in &self.tracees {
            let Some((what, then)) = tracee.ended_by() else {
                all = false;
                continue;
            };
            let (pid, comm) = (tracee.process.pid(), &tracee.comm);
            let said = format!("process {pid} ({comm}) {what}");
            if self
                .session
                .notes
                .iter()
                .any(|note| note.starts_with(&said))
            {
                continue;
            }
            let after = tracee.since.elapsed().as_secs_f64();
            let note = format!("{said} after {after:.1} s: {then}");
            observer.note(&note);
            self.session.notes.push(note);
        }
        all
    }

    /// Notes events that somebody else probes too.
    fn look_for_foreign(&mut self) {
        for tracee in &self.tracees {
            for event in tracee.foreign() {
                let note = format!(
                    "somebody else's probe stood on {event}: meanwhile its hits were counted \
                     through a trap, or not at all"
                );
                if !self.session.notes.contains(&note) {
                    self.session.notes.push(note);
                }
            }
        }
    }

    fn events(&self) -> Result<Events, Error> {
        let mut events = Events::default();
        for tracee in &self.tracees {
            tracee.cpu_time();
            events.add(tracee, tracee.read(self.request.by)?);
        }
        events.since(&self.baseline);
        Ok(events)
    }

    fn tell_interval(
        &mut self,
        last: Events,
        interval: Duration,
        observer: &mut dyn Observer,
    ) -> Result<Events, Error> {
        let now = self.events()?;
        let mut deltas = Session::new(self.session.command.clone());
        deltas.duration_ns = interval.as_nanos() as u64;
        let before = last.readings();
        for name in &now.order {
            let Some(total) = now.by_name.get(name) else {
                continue;
            };
            let earlier = before.get(name).copied().unwrap_or_default();
            deltas
                .events
                .push(Event::new(name, total.via, total.reading.since(earlier)));
        }
        let at = self.start.elapsed().as_nanos() as u64;
        self.session.intervals.push(deltas.as_interval(at));
        observer.interval(&deltas);
        Ok(now)
    }

    /// Takes the last counts and puts a price on them.
    fn finish(&mut self) -> Result<(), Error> {
        let events = self.events()?;
        self.session.duration_ns = self.start.elapsed().as_nanos() as u64;
        let cpu: Duration = self.tracees.iter().map(Tracee::cpu_time).sum();
        self.session.cpu_ns = cpu.as_nanos() as u64;
        self.session.slower_ns = self.request.slower_ns;
        let sources = || self.tracees.iter().flat_map(|tracee| &tracee.counters);
        let costs = unit_costs(Want {
            trap: sources().any(|c| matches!(c.source, Source::Agent { trap: true, .. })),
            kernel: sources().any(|c| matches!(c.source, Source::Kernel(_))),
        });
        let prices = Prices {
            costs,
            filtered: self.request.filter.is_some(),
        };
        let mut sum = Cost::default();
        let mut hits = 0;
        let extra = UnitCosts::extra_for_sites(events.hot_sites());
        for name in &events.order {
            let Some(total) = events.by_name.get(name) else {
                continue;
            };
            let unit = prices.of(total, extra);
            let cost = unit.times(total.reading.count);
            sum = sum.plus(cost);
            hits += total.reading.count;
            let mut event = Event::new(name, total.via, total.reading);
            if let Some(times) = &total.times {
                event = event.with_histogram(times);
            }
            event.cost_ns = cost.ns;
            event.names = total.names.clone();
            event.notes = total.notes();
            event.by = total
                .parts
                .iter()
                .map(|(key, count)| Part::new(key, *count))
                .collect();
            event.by.sort_by_key(|part| std::cmp::Reverse(part.count));
            self.session.events.push(event);
        }
        self.session.cost = tiptoe_session::Cost::estimated(hits, sum, self.session.cpu_ns);
        Ok(())
    }

    fn wait_for_command(&mut self) -> Option<i32> {
        use std::os::unix::process::ExitStatusExt;
        let status = self.child.as_mut()?.wait().ok()?;
        self.exit_status = status.code().or(status.signal().map(|signal| 128 + signal));
        self.exit_status
    }
}

/// Whether a child has exited, without reaping it: its times can still be read.
fn has_exited(pid: u32) -> bool {
    // SAFETY: an all-zero siginfo is valid; the kernel fills it.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: `info` is valid for the length of the call.
    let asked = unsafe { libc::waitid(libc::P_PID, pid, &raw mut info, flags) };
    // SAFETY: waitid sets the field, or leaves the zero.
    asked != 0 || unsafe { info.si_pid() } != 0
}
