//! Attaches to running processes, or starts a command.

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tiptoe_event::Via;
use tiptoe_event::spec::is_glob;
use tiptoe_sys::host::attach_progress;
use tiptoe_sys::host::capabilities::agent_calls;
use tiptoe_sys::host::procfs::{Mapping, Process};

use tiptoe_attach::link::Link;
use tiptoe_attach::offer::Offer;
use tiptoe_attach::phase::Phase;
use tiptoe_attach::preload;
use tiptoe_attach::resident::agent_in;
use tiptoe_attach::{Attached, end_check};
use tiptoe_session::{Process as SessionProcess, ProcessNote};
use tiptoe_wire::Layout;

use crate::drive::{Targets, pause};
use crate::error::{Error, Reason};
use crate::module::{Cache, Module, Object};
use crate::request::{Request, RequestTarget};
use crate::tracee::{Plan, Tracee, ended_in_attach, short_of_room, unpatchable};
use crate::ulocks::Names;
use crate::words::processes;

/// How long a started program may take to reach the constructor of the agent (tiptoe's library).
const REACH: Duration = Duration::from_secs(10);
/// The most probes in a command whose libraries are not known yet.
const COMMAND_PROBES: u32 = 1 << 16;
/// The most functions that may share a name, as static functions and overloads do.
const NAMESAKES: u32 = 1 << 10;

#[derive(Default)]
pub(crate) struct AttachedProcesses {
    pub(crate) tracees: Vec<Tracee>,
    pub(crate) ended: Vec<SessionProcess>,
}

pub(crate) fn attach_all(
    pids: &[u32],
    plan: &Plan,
    cache: &mut Cache,
) -> Result<AttachedProcesses, Error> {
    let options = &plan.request.options;
    if let Some(delay) = options.delay {
        pause(delay, &options.stop, &Targets::default());
    }
    attach_progress::break_off_by(Some(Arc::clone(&options.stop)));
    let attached = attach_until_stopped(pids, plan, cache);
    attach_progress::break_off_by(None);
    attached
}

pub(crate) fn signal_of(request: &Request) -> i32 {
    // Relaxed: the number orders no other data.
    request.options.hand_on.load(Ordering::Relaxed) as i32
}

/// Returns a note if a signal interrupted the attach. The run then ends at once, and reports the hits in the attached
/// processes.
pub(crate) fn broken_off(
    request: &Request,
    tracees: &[Tracee],
    ended: usize,
) -> Option<ProcessNote> {
    let RequestTarget::Pids(pids) = &request.target else {
        return None;
    };
    let tried = tracees.len() + ended;
    let is_whole = tried == pids.len() && !tracees.iter().any(|one| one.coverage.is_partial());
    if is_whole {
        return None;
    }
    Some(ProcessNote::BrokenOff {
        signal: signal_of(request),
        attached: tracees.len() as u64,
        missing: processes(&pids[tried..]).collect(),
    })
}

/// Skips processes that end before their attach; fails if all end.
fn attach_until_stopped(
    pids: &[u32],
    plan: &Plan,
    cache: &mut Cache,
) -> Result<AttachedProcesses, Error> {
    let mut attached = AttachedProcesses::default();
    let mut first_end = None;
    // Names must be read now, because the name of an ended process is unknown.
    let known = processes(pids).map(|process| (!end_check(process.pid)(), process));
    let known: Vec<(bool, SessionProcess)> = known.collect();
    for (pid, (lived, process)) in pids.iter().zip(known) {
        match Tracee::attach(*pid, plan, cache) {
            Ok(tracee) => {
                attached.tracees.push(tracee);
                Phase::Attaching.begin();
            }
            Err(_) if attach_progress::is_broken_off() => return Ok(attached),
            Err(error) if lived && end_check(*pid)() => {
                attached.ended.push(process);
                first_end.get_or_insert(error);
            }
            Err(error) => {
                for tracee in &attached.tracees {
                    let _ = tracee.process.detach();
                }
                return Err(error);
            }
        }
    }
    match first_end {
        Some(error) if attached.tracees.is_empty() => Err(error),
        _ => Ok(attached),
    }
}

pub(crate) fn start_and_attach(
    command: &[OsString],
    delay: Duration,
    stop: &AtomicBool,
    plan: &Plan,
    cache: &mut Cache,
) -> Result<Vec<Tracee>, Error> {
    let mut target = plan.request.start_alone(command)?;
    // From now on a signal must not end tiptoe before the report.
    Phase::Counting.begin();
    target.release()?;
    let waiting = Targets::of(vec![target]);
    let is_over = pause(delay, stop, &waiting);
    let tracees = waiting.alone.into_iter().map(|target| match is_over {
        true => Tracee::attach_late(target, plan, cache),
        false => Ok(Tracee::ended(target, ProcessNote::EndedInDelay)),
    });
    tracees.collect()
}

/// Starts a command with the agent, or under the kernel's probes if the agent cannot enter. The command does not run
/// until it is released. With `--exec`, the command runs until it starts that program.
pub(crate) fn start(command: &[OsString], plan: &Plan, cache: &mut Cache) -> Result<Tracee, Error> {
    let program = preload::find_program(&command[0])?;
    match &plan.request.exec {
        Some(name) => start_launcher(command, name, plan, cache),
        None => start_program(&program, command, plan, cache)
            .map_err(|error| error_of_launcher(error, &program, command)),
    }
}

/// Names the program that a launcher probably starts: the first word that is a program; for a script, what it is
/// named after.
fn error_of_launcher(error: Error, program: &Path, command: &[OsString]) -> Error {
    if !matches!(error, Error::NoFunction { .. } | Error::NoBinary { .. }) {
        return error;
    }
    let later = || {
        let mut words = command.iter().skip(1).filter(|word| !word.is_empty());
        words.find_map(|word| preload::find_program(word).ok())
    };
    let next = match is_elf(program) {
        true => later(),
        false => Some(program.to_owned()),
    };
    match next.as_deref().and_then(Path::file_name) {
        Some(name) => Error::InLauncher {
            error: Box::new(error),
            program: name.display().to_string(),
        },
        None => error,
    }
}

fn start_program(
    program: &Path,
    command: &[OsString],
    plan: &Plan,
    cache: &mut Cache,
) -> Result<Tracee, Error> {
    // For a script, the interpreter decides whether the agent can enter.
    let path = preload::interpreter(program);
    let object = match Object::of_program(&path) {
        Err(error) if is_elf(&path) => return Err(error),
        object => object,
    };
    let against = rules_against_agent(object.as_ref().ok(), &path, Process::current(), plan)?;
    if plan.request.via != Via::Kernel && against.is_none() {
        let layout = layout(plan);
        let offer = Offer::new(layout.geometry)?;
        let passed = offer.passed(plan.request.agent)?;
        let mut target = Attached::start(program, command, Some(passed))?;
        target.link = Some(offer.open(&plan.terms(&layout), target.process.pid())?);
        return with_agent(target, plan, cache);
    }
    let target = Attached::start(program, command, None)?;
    in_kernel(target, object?, path, against, plan)
}

/// A *launcher*, such as env(1) or a shell script, starts the program `name`, or becomes it by exec.
fn start_launcher(
    command: &[OsString],
    name: &OsStr,
    plan: &Plan,
    cache: &mut Cache,
) -> Result<Tracee, Error> {
    let mut target = Attached::start_alone(command)?;
    let path = target.hold_at_program(name)?;
    let object = Object::of_program(&path)?;
    let mut against = rules_against_agent(Some(&object), &path, target.process, plan)?;
    if plan.request.via != Via::Kernel && against.is_none() {
        let layout = layout(plan);
        let terms = plan.terms(&layout);
        match target.exec_with_agent(plan.request.agent, layout.geometry, &terms) {
            Ok(()) => return with_agent(target, plan, cache),
            Err(why) => against = Some(kept_out(Error::from(why).into(), &path, plan)?),
        }
    }
    in_kernel(target, object, path, against, plan)
}

/// Returns why the agent must not enter a program that has not begun; fails if it would have to. `program` is `None`
/// if the file is no program: either a shell runs it, or the exec fails. The program has the limits of `process`, which
/// is tiptoe or a launcher.
fn rules_against_agent(
    program: Option<&Object>,
    path: &Path,
    process: Process,
    plan: &Plan,
) -> Result<Option<Reason>, Error> {
    let of_program = program.and_then(|object| {
        let header = object.image.header();
        let refusal = header.refusal_in_process();
        let refusal = refusal.or_else(|| preload::gained_by(path));
        let locks = || unpatchable(header).filter(|_| plan.locks());
        refusal.map(Reason::Program).or_else(locks)
    });
    let filters = |process: Process| {
        let status = process.status().ok();
        status.map(|status| (status.seccomp, status.seccomp_filters))
    };
    let has_own_filter = || filters(process) != filters(Process::current());
    let filtered = || has_own_filter().then_some(Reason::Seccomp);
    let refused_call = || agent_calls().err().map(Reason::RefusedCall);
    let inherited = || {
        short_of_room(process)
            .or_else(filtered)
            .or_else(refused_call)
    };
    let may_refuse = !plan.request.force && program.is_some();
    let against = of_program.or_else(|| may_refuse.then(inherited).flatten());
    against.map(|why| kept_out(why, path, plan)).transpose()
}

fn kept_out(why: Reason, path: &Path, plan: &Plan) -> Result<Reason, Error> {
    match plan.request.via {
        Via::Agent => Err(Error::AgentKeptOut {
            target: path.display().to_string(),
            why,
            substitute: plan.agent_substitute(),
        }),
        _ => Ok(why),
    }
}

/// Counts a command that has not begun by the kernel's probes. `against` is why the agent does not count.
fn in_kernel(
    mut target: Attached,
    object: Object,
    path: PathBuf,
    against: Option<Reason>,
    plan: &Plan,
) -> Result<Tracee, Error> {
    let modules = Module::before_exec(object, path);
    let name = modules.first().map(|program| program.name.clone());
    target.comm = name.unwrap_or_default();
    let reason = against.filter(|_| plan.request.via != Via::Kernel);
    let mut tracee = Tracee::kernel_only(target, &modules, plan, None, reason)?;
    tracee.locks.expect_start(modules);
    Ok(tracee)
}

fn is_elf(path: &std::path::Path) -> bool {
    let mut magic = [0; 4];
    let read = std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut magic));
    read.is_ok() && magic == *b"\x7fELF"
}

fn command_probes(plan: &Plan) -> u32 {
    let specs = plan.probes.iter().chain(&plan.request.calls.under);
    match specs.clone().any(|probe| is_glob(probe.text)) {
        true => COMMAND_PROBES,
        false => COMMAND_PROBES.min(NAMESAKES * specs.count() as u32),
    }
}

fn layout(plan: &Plan) -> Layout {
    let probes = plan.follow().room(command_probes(plan));
    Layout::of(&plan.needs(0, probes))
}

/// Lets a held command load the agent, which then holds it. If the agent cannot serve, it keeps the program from
/// starting until the link (its shared memory with tiptoe) is dropped.
fn with_agent(mut target: Attached, plan: &Plan, cache: &mut Cache) -> Result<Tracee, Error> {
    let held = target.hold_in_agent();
    match held.map(|()| wait_for_agent(&target)) {
        Ok(Ok(())) => Tracee::adopt(target, plan, cache),
        // Only a killed command counts as ended. A command that exited was no program, or its loader failed.
        _ if target.has_failed_by_end() && target.killed_by().is_some() => {
            let note = ended_in_attach(&target);
            Ok(Tracee::ended(target, note))
        }
        Ok(Err(why)) => {
            let word = target.command.first().cloned().unwrap_or_default();
            without_agent(target, why.clone(), plan).map_err(|error| Error::AgentNotLoaded {
                word,
                why,
                error: Box::new(error),
            })
        }
        Err(error) => Err(error.into()),
    }
}

fn wait_for_agent(target: &Attached) -> Result<(), Reason> {
    let link = target.link.as_ref().ok_or(Reason::StartedWithoutAgent)?;
    let deadline = Instant::now() + REACH;
    while link.wait_for_hello(Duration::from_millis(5)).is_none() {
        if let Some(why) = link.refusal() {
            return Err(Error::AgentRefused(why).into());
        }
        if link.has_lost_target() {
            return Err(Reason::EndedBefore);
        }
        if Instant::now() > deadline || is_past_preloading(target.process) {
            return Err(Reason::NotPreloaded);
        }
    }
    Ok(())
}

/// Returns whether a program has glibc but no agent. Then no agent will be mapped, because preloaded libraries are mapped
/// first. musl's libc is the loader itself, and so is mapped before them.
fn is_past_preloading(process: Process) -> bool {
    let maps = process.maps();
    let is_libc = |mapping: &Mapping| {
        let name = mapping.file().and_then(|path| path.file_name());
        name.is_some_and(|name| name.as_encoded_bytes().starts_with(b"libc.so."))
    };
    maps.is_ok_and(|maps| maps.iter().any(is_libc) && agent_in(&maps).is_none())
}

/// The command already runs, or the agent holds it.
fn without_agent(mut target: Attached, why: Reason, plan: &Plan) -> Result<Tracee, Error> {
    if plan.request.via == Via::Agent || target.link.as_ref().is_none_or(Link::has_lost_target) {
        return Err(Error::NothingCounted);
    }
    let modules = Names::of(target.process, &mut Cache::default())?.modules;
    let link = target.link.as_ref();
    let is_late = link.is_some_and(|link| link.refusal().is_none());
    target.retire_agent();
    let mut tracee = Tracee::kernel_only(target, &modules, plan, None, Some(why))?;
    if is_late {
        tracee.coverage.note(ProcessNote::StartedLate);
    }
    Ok(tracee)
}
