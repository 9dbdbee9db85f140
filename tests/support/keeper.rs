//! The keeper: the process above a test process. Nothing that a test starts may outlive the test.
//!
//! The keeper is a subreaper, so the test's orphans become its children. When the test ends or runs out of time, or
//! at SIGTERM, the keeper kills its descendants and removes the [`Leftovers`]. `xtask` includes this file, because
//! `xtask` must not link what it tests.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::evidence;

/// The variable that names the [`Leftovers`]. A process with this variable has a keeper.
pub const KEPT: &str = "TIPTOE_KEPT";
/// The variable that names the folder of a failed test's state.
pub const EVIDENCE: &str = "TIPTOE_EVIDENCE";
/// The status of a test that ran out of time.
pub const OUT_OF_TIME: i32 = 124;
const DYING: Duration = Duration::from_secs(10);

/// How a kept process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// With an exit code.
    Code(i32),
    /// By a signal.
    Signal(i32),
    /// The keeper killed it, because it ran out of time or the keeper got SIGTERM.
    Killed(i32),
}

impl End {
    /// Returns the status as a shell reports it.
    pub fn status(self) -> i32 {
        match self {
            End::Code(code) | End::Killed(code) => code,
            End::Signal(signal) => 128 + signal,
        }
    }
}

/// Makes the caller end with its keeper; fails if the keeper has ended. Resets and unblocks signals, because nohup
/// ignores some for its children. Must make system calls only, because it runs between fork and exec.
pub fn before_exec(keeper: i32) -> io::Result<()> {
    // SAFETY: the calls touch no memory. Children must not inherit a runner's descriptors.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::close_range(3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC as i32);
    }
    default_signals();
    match parent() == keeper {
        true => Ok(()),
        false => Err(io::Error::from_raw_os_error(libc::ESRCH)),
    }
}

/// A test's temporary files and cgroups.
#[derive(Debug, Clone)]
pub struct Leftovers {
    /// The start of the cgroups' names.
    pub name: String,
    /// The temporary folder, writable for all users.
    pub folder: PathBuf,
}

impl Leftovers {
    /// Returns names that contain a process id.
    pub fn of(pid: i32) -> Leftovers {
        let name = format!("tiptoe-test-{pid}");
        let folder = std::env::temp_dir().join(&name);
        Leftovers { name, folder }
    }

    /// Makes the folder. Only a keeper may do this, because it removes the folder even if the test is killed.
    pub fn prepare(&self) {
        let folder = &self.folder;
        // A killed process with the same id may have left the folder.
        remove_folder(folder);
        let made = fs::create_dir(folder)
            .and_then(|()| fs::set_permissions(folder, fs::Permissions::from_mode(0o1777)));
        made.unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    }

    /// Returns a kept test's environment, with another cache of prices (measured costs) than the user's.
    pub fn environment(&self, root: &Path) -> [(&'static str, PathBuf); 3] {
        [
            (KEPT, PathBuf::from(&self.name)),
            ("TMPDIR", self.folder.clone()),
            ("XDG_CACHE_HOME", root.join("target/test-cache")),
        ]
    }

    /// Removes the leftovers. The test's processes must have ended.
    pub fn remove(&self) {
        remove_cgroups(&self.name);
        remove_folder(&self.folder);
    }
}

/// Makes the caller a keeper, which gets SIGTERM when its parent `front` ends. The keeper's new session gets no signals
/// from a terminal.
pub fn be_keeper(front: i32) {
    // SAFETY: the calls touch no memory.
    unsafe {
        libc::setsid();
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
    }
    adopt();
    if parent() != front {
        std::process::exit(1);
    }
}

/// Makes the caller the subreaper of its descendants.
pub fn adopt() {
    // SAFETY: the call touches no memory.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
}

/// Blocks the keeper's signals. This must precede the fork; otherwise a signal could be lost.
pub fn block_signals() {
    let set = signals();
    // SAFETY: the set outlives the call. SIGCHLD gets its default, because children cannot be waited for if SIGCHLD
    // is ignored.
    unsafe {
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
    }
}

/// Waits until `test` ends, `limit` is over or SIGTERM arrives. Then kills all descendants and removes the
/// leftovers.
pub fn keep(test: i32, left: &Leftovers, limit: Option<Duration>) -> End {
    let end = wait_for(test, limit);
    if let (End::Killed(OUT_OF_TIME), Some(folder)) = (end, std::env::var_os(EVIDENCE)) {
        evidence::save(Path::new(&folder), &below(pid()));
    }
    kill_all();
    left.remove();
    end
}

fn wait_for(test: i32, limit: Option<Duration>) -> End {
    let until = limit.map(|limit| Instant::now() + limit);
    loop {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let signal = match left {
            Some(left) if left.is_zero() => return End::Killed(OUT_OF_TIME),
            left => wait_signal(left.unwrap_or(Duration::from_secs(3600))),
        };
        match signal {
            None => {}
            Some(libc::SIGCHLD) => {
                while let Some((pid, end)) = reap() {
                    if pid == test {
                        return end;
                    }
                }
            }
            Some(signal) => return End::Killed(128 + signal),
        }
    }
}

/// Kills and reaps all descendants. Prints those that do not end.
pub fn kill_all() {
    let until = Instant::now() + DYING;
    loop {
        let left = below(pid());
        if left.is_empty() {
            return;
        }
        if Instant::now() > until {
            eprintln!("keeper: these processes do not end: {left:?}");
            return;
        }
        for pid in left {
            // SAFETY: a descendant keeps its id until it is reaped.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
        while reap().is_some() {}
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Returns a process's descendants.
pub fn below(root: i32) -> Vec<i32> {
    let mut parents = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<i32>().ok())
        else {
            continue;
        };
        let stat = fs::read(entry.path().join("stat")).unwrap_or_default();
        let stat = String::from_utf8_lossy(&stat);
        // The process's name, in parentheses, may itself contain parentheses and spaces.
        let parent = stat
            .rsplit_once(") ")
            .and_then(|(_, rest)| rest.split(' ').nth(1)?.parse::<i32>().ok());
        parents.extend(parent.map(|parent| (pid, parent)));
    }
    let mut found = vec![root];
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        found.extend(
            parents
                .iter()
                .filter(|(_, of)| *of == parent)
                .map(|(pid, _)| *pid),
        );
        next += 1;
    }
    found.remove(0);
    found
}

/// Returns the mount point of cgroup version 2.
pub fn cgroup_root() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/mounts").ok()?;
    let mut fields = mounts
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>());
    let root = fields.find(|fields| fields.get(2) == Some(&"cgroup2"))?;
    Some(PathBuf::from(root[1]))
}

fn remove_cgroups(name: &str) {
    let Some(root) = cgroup_root() else { return };
    let prefix = format!("{name}-");
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(&prefix) {
            end_cgroup(&entry.path());
        }
    }
}

/// Kills and removes a cgroup and those below it, or gives up after 10 s.
pub fn end_cgroup(path: &Path) {
    let until = Instant::now() + DYING;
    while path.exists() && Instant::now() < until {
        // This file is missing before Linux 5.14.
        let _ = fs::write(path.join("cgroup.kill"), "1");
        remove_cgroup(path);
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn remove_cgroup(path: &Path) {
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_cgroup(&entry.path());
        }
    }
    let _ = fs::remove_dir(path);
}

/// Removes a folder after detaching its mounts; otherwise files of other file systems would be removed.
fn remove_folder(folder: &Path) {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    for place in mounts
        .lines()
        .rev()
        .filter_map(|line| line.split(' ').nth(1))
    {
        if Path::new(place).starts_with(folder)
            && let Ok(place) = std::ffi::CString::new(place)
        {
            // SAFETY: the path is NUL-terminated and outlives the call.
            unsafe { libc::umount2(place.as_ptr(), libc::MNT_DETACH) };
        }
    }
    let _ = fs::remove_dir_all(folder);
}

fn default_signals() {
    for signal in 1..32 {
        // SAFETY: sets a disposition to its default, or fails.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    // SAFETY: sigemptyset fills the zeroed set, which outlives the calls.
    unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}

fn signals() -> libc::sigset_t {
    // SAFETY: sigemptyset fills the zeroed set, which outlives the calls.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        libc::sigaddset(&raw mut set, libc::SIGTERM);
        set
    }
}

/// Waits for a signal of [`block_signals`], at most `limit`.
pub fn wait_signal(limit: Duration) -> Option<i32> {
    let set = signals();
    let limit = libc::timespec {
        tv_sec: limit.as_secs() as i64,
        tv_nsec: i64::from(limit.subsec_nanos()),
    };
    // SAFETY: both structures outlive the call; the information may be null.
    let signal =
        unsafe { libc::sigtimedwait(&raw const set, std::ptr::null_mut(), &raw const limit) };
    (signal > 0).then_some(signal)
}

/// Reaps one ended child.
pub fn reap() -> Option<(i32, End)> {
    let mut status = 0;
    // SAFETY: the status outlives the call.
    let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) };
    if pid <= 0 {
        return None;
    }
    let end = match libc::WIFSIGNALED(status) {
        true => End::Signal(libc::WTERMSIG(status)),
        false => End::Code(libc::WEXITSTATUS(status)),
    };
    Some((pid, end))
}

/// Returns the process id.
pub fn pid() -> i32 {
    std::process::id().cast_signed()
}

/// Returns the parent's id.
pub fn parent() -> i32 {
    // SAFETY: getppid touches no memory.
    unsafe { libc::getppid() }
}
