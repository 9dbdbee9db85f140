//! Removes what benches create: child processes, folders and cgroups. A signal that ends the process drops no guard. So
//! a thread waits for SIGINT, SIGTERM and SIGHUP, cleans up, and ends the process.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, getpid, kill_process, set_child_subreaper};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tiptoe_sys::host::Process;

/// The longest wait until killed processes have ended and their cgroups are removed.
const PATIENCE: Duration = Duration::from_secs(5);
const TICK: Duration = Duration::from_millis(2);

static MADE: Mutex<Vec<Temporary>> = Mutex::new(Vec::new());
/// Set when a signal ends the process, before the children are killed.
static IS_ENDING: AtomicBool = AtomicBool::new(false);

#[derive(Clone, Debug, PartialEq)]
enum Temporary {
    Folder(PathBuf),
    Cgroup(PathBuf),
}

impl Temporary {
    fn remove(&self) {
        match self {
            Temporary::Folder(path) => {
                let _ = std::fs::remove_dir_all(path);
            }
            Temporary::Cgroup(path) => remove_cgroup(path, Instant::now() + PATIENCE),
        }
    }
}

fn remove_cgroup(path: &Path, until: Instant) {
    // Before Linux 5.14 this file does not exist; then only cgroups without tasks are removed.
    let _ = std::fs::write(path.join("cgroup.kill"), "1");
    let below = std::fs::read_dir(path).into_iter().flatten().flatten();
    let folders = below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.for_each(|folder| remove_cgroup(&folder.path(), until));
    // A killed task stays in its cgroup until it has ended.
    while std::fs::remove_dir(path).is_err_and(|error| error.kind() == io::ErrorKind::ResourceBusy)
        && Instant::now() < until
    {
        std::thread::sleep(TICK);
    }
}

#[derive(Debug)]
pub(crate) struct TemporaryGuard(Temporary);

impl TemporaryGuard {
    pub(crate) fn folder(path: PathBuf) -> TemporaryGuard {
        TemporaryGuard::new(Temporary::Folder(path))
    }

    pub(crate) fn cgroup(path: PathBuf) -> TemporaryGuard {
        TemporaryGuard::new(Temporary::Cgroup(path))
    }

    fn new(made: Temporary) -> TemporaryGuard {
        let all = MADE.lock();
        all.unwrap_or_else(PoisonError::into_inner)
            .push(made.clone());
        TemporaryGuard(made)
    }

    pub(crate) fn path(&self) -> &Path {
        match &self.0 {
            Temporary::Folder(path) | Temporary::Cgroup(path) => path,
        }
    }
}

impl Drop for TemporaryGuard {
    fn drop(&mut self) {
        self.0.remove();
        let all = MADE.lock();
        let mut all = all.unwrap_or_else(PoisonError::into_inner);
        all.retain(|made| *made != self.0);
    }
}

/// Starts the thread that cleans up and ends the process on a signal.
pub fn clean_up_on_signals() -> io::Result<()> {
    // Ignored signals, as under `nohup`, must stay ignored.
    let status = Process::current().status().map_err(io::Error::other)?;
    let signals = [SIGINT, SIGTERM, SIGHUP].into_iter();
    let mut signals = Signals::new(signals.filter(|signal| !status.sig_ign.contains(*signal)))?;
    let thread = std::thread::Builder::new().name("signals".to_owned());
    thread.spawn(move || {
        if let Some(signal) = signals.forever().next() {
            end(signal);
        }
    })?;
    Ok(())
}

/// If a signal is ending the process, waits for the end. The main thread must call this before it prints a failure,
/// because killing the bench's children makes the bench fail.
pub fn stay_if_ending() {
    // Acquire: pairs with the Release in `end`.
    while IS_ENDING.load(Ordering::Acquire) {
        std::thread::sleep(TICK);
    }
}

fn end(signal: i32) -> ! {
    // Release: pairs with the Acquire in `stay_if_ending`. A thread that sees a killed child must see this flag.
    IS_ENDING.store(true, Ordering::Release);
    let until = Instant::now() + PATIENCE;
    // Children of an ended child become children of this process, so that the loop finds them.
    let _ = set_child_subreaper(Some(getpid()));
    // This repeats, because the main thread or a child may be starting a process.
    loop {
        let living = descendants(std::process::id());
        for pid in living.iter().filter_map(|&pid| Pid::from_raw(pid as i32)) {
            let _ = kill_process(pid, Signal::KILL);
        }
        if living.is_empty() || Instant::now() > until {
            break;
        }
        std::thread::sleep(TICK);
    }
    let made = MADE.lock().unwrap_or_else(PoisonError::into_inner).clone();
    made.iter().rev().for_each(Temporary::remove);
    std::process::exit(128 + signal)
}

fn descendants(pid: u32) -> Vec<u32> {
    let mut all = children(pid);
    let mut next = 0;
    while let Some(&pid) = all.get(next) {
        all.extend(children(pid));
        next += 1;
    }
    // A zombie has ended.
    let lives = |pid: &u32| {
        let status = Process::new(*pid).and_then(Process::status);
        status.is_ok_and(|status| !matches!(status.state, 'Z' | 'X'))
    };
    all.retain(lives);
    all
}

fn children(pid: u32) -> Vec<u32> {
    let Ok(process) = Process::new(pid) else {
        return Vec::new();
    };
    let threads = process.threads().unwrap_or_default().into_iter();
    threads
        .flat_map(|tid| process.thread_children(tid).unwrap_or_default())
        .collect()
}
