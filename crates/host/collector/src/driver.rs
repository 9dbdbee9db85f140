//! From a request to its outcome: attach or start, watch, detach.

use std::io::Read;
use std::path::Path;
use std::process::Child;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use tiptoe_event::Via;

use crate::module::{Cache, Module, Object};
use crate::offer::Offer;
use crate::preload::{self, Started};
use crate::request::{Error, Observer, Outcome, Request, RequestTarget};
use crate::resolve;
use crate::run::Run;
use crate::tracee::{Plan, Tracee, short_of_room};

/// How often the loop looks whether to stop.
pub const TICK: Duration = Duration::from_millis(10);
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
    let counted = run.stop();
    let _soon = run.child.is_none().then(Hurry::new);
    run.look_for_foreign();
    let went = run.tracees.iter().filter_map(Tracee::came_and_went);
    run.session.notes.extend(went);
    run.all_ended(observer);
    run.look_for_ends(observer);
    let detached: Result<Vec<()>, Error> = run.tracees.iter().map(Tracee::detach).collect();
    looped?;
    run.finish(&counted?);
    if let Err(error) = detached {
        run.session.notes.push(error.to_string());
    }
    let exit_status = run.wait_for_command(observer);
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
            .or_else(|| preload::gained_by(&path))
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
        (Via::Kernel, _) => {
            start_under_kernel(&path, command, object.map_err(is_script)?, plan, None)
        }
        (_, Some(reason)) => start_under_kernel(&path, command, object?, plan, Some(reason)),
        _ => start_with_agent(&path, command, plan),
    }
}

fn is_script(error: Error) -> Error {
    error.with_hint("the kernel's probes need a program: give a script's interpreter, `-- sh FILE`")
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

fn start_with_agent(
    path: &Path,
    command: &[std::ffi::OsString],
    plan: &Plan,
) -> Result<(Tracee, Child), Error> {
    let offer = Offer::new(COMMAND_PROBES * plan.follow().width())?;
    let failed = |error: std::io::Error| cannot_start(command, &error);
    let started = preload::start(path, command, Some(offer.passed(plan.agent)?)).map_err(failed)?;
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
    path: &Path,
    command: &[std::ffi::OsString],
    object: Object,
    plan: &Plan,
    reason: Option<String>,
) -> Result<(Tracee, Child), Error> {
    let failed = |error: std::io::Error| cannot_start(command, &error);
    let started: Started = preload::start(path, command, None).map_err(failed)?;
    let modules = Module::before_exec(object, path.to_owned());
    let tracee = Tracee::kernel_only(started.pid, &modules, plan, reason)?;
    plan.go_on()?;
    Ok((tracee, started.proceed().map_err(failed)?))
}
