//! `tiptoe lock`: which threads wait for which locks of programs ([`user`]) or of the kernel ([`kernel`]), how long,
//! and where.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use tiptoe_collector::{Budget, Split};
use tiptoe_event::Via;

use crate::common::Common;
use crate::failure::Failure;
use crate::{instrument, processes};

mod kernel;
mod user;

pub const LOCK_EXAMPLES: &str = "\
Examples:
  tiptoe lock -p 42                     which locks process 42 waits for
  tiptoe lock --now -p 42               which threads wait now; deadlocks
  tiptoe lock --kernel -p 42            which locks of the kernel it waits for";

pub const LOCK_BUDGET: &str = "\
Limit of the cost: 1%, 0.5 or off [default: 1%]

The share of the target's CPU time that tracing may take. Beyond it, some waits are timed, \
chosen by chance, and the others only counted. off: no limit. The kernel times each wait that it \
reports, so there is no limit for --kernel, --via kernel, and programs that the agent cannot enter.";

pub const LOCK_VIA: &str = "What traces: agent, kernel or auto";

pub const LOCK_HELP: &str = "\
Examples:
  tiptoe lock -p 42                     which locks process 42 waits for
  tiptoe lock --by callsite -- CMD      which code waits
  tiptoe lock --now -p 42               which threads wait now; deadlocks
  tiptoe lock --hold cache_lock -p 42   also how long cache_lock is held
  tiptoe lock --kernel -p 42            where process 42 waits in the kernel
  tiptoe lock --kernel --mmap -- CMD    only mmap_lock: page faults beside mmap
  tiptoe lock --kernel -a --by type     the whole system in a few rows
  tiptoe lock --kernel -a sleep 5       the whole system while a command runs
  tiptoe lock --kernel --every -p 42    each acquisition of mmap_lock

Locks of programs: in the running program, libc is patched where a thread is about to wait for \
a lock, and where it wakes waiters. A free lock runs the same code as before.
Rows: the time asleep (total, median, p99, longest; heat: from short to long, a fuller block \
for more waits; --histograms draws it), how many calls were contended, how many waits slept, \
and how many returned at once because the lock had changed hands; the lock, by its variable or \
address; the call site that waited most. Below each row: `held by`, the code that held the \
lock while others waited, by its share of that time; for mutexes and rwlocks of libc, which \
record the thread that holds them. A holder is named by the call site that released the lock; \
if that was not seen, by its thread, or as readers. Elsewhere `woken by`: the code that woke the \
waiters, which may not have held the lock for most of the wait. Waits for what no thread holds \
(conditions, semaphores, joins) have a table of their own. --by callsite, thread or type \
groups the rows otherwise. Rows whose calls never slept are one sum, unless --top 0 is given.
Covered: mutexes of all kinds, rwlocks, conditions, semaphores, barriers, once, join, the \
locks of stdio and malloc; through syscall() those of Rust, parking_lot and C++ atomics. A \
call site is the first caller outside the runtime: libc, the loader, libstdc++ or libc++, \
libgcc, and code of std::, __gnu_cxx::, core::, alloc:: and parking_lot that was compiled into \
the program. In any other library, such code counts as that library's. A C++ atomic that is \
not a futex (std::atomic<long>, atomic_flag, barrier) waits at a word of a shared table: its \
row has the variable that the call is given, or the calling function.
Spinning is not seen. Children of CMD are not traced.
Waits that began before the trace have rows of their own, marked `>=`. They are observed from \
outside, as by --now: they count from the moment when the thread last ran. (A signal, SIGSTOP \
or an attach makes a thread run for a moment.) They end with the last check, twice a second, \
that found the thread still asleep. Waits that are not over when the trace ends count until \
then, also marked `>=`. Threads that wait for each other when the trace ends are reported as a \
deadlock. Threads of a container are reported by the ids that they have outside of it.
--hold LOCK also times every hold of one mutex, rwlock or spin lock, by the call site that \
took it: from the call that takes it (or the end of the wait in that call) to the call that \
releases it. It patches pthread_mutex_lock and similar functions: each call of these costs 1 \
to 2 ns more, a call for LOCK about 40. Locks that are taken without a call (Rust's, a \
program's own) have no holds.
Cost: a free lock costs nothing. A wait that returns at once costs about 30 ns, a wait that \
sleeps 40 (17 of these are two readings of the clock), and a wake 15; by themselves they take \
150 to 400 ns.
If timing each wait would exceed --budget (threads that wake each other 100,000 times a second \
and more), only some are timed: between two timed waits a random number of waits is only \
counted. Numbers of waits stay exact; totals and blame are estimated from the timed waits, and \
marked `~` (in JSON, `timed` is their number). Threads that wait seldom have each wait timed, \
and waits of 20 ms and more are always reported.
If the agent cannot enter (static programs, Go, musl, seccomp), and with --via kernel, BPF \
programs at the kernel's futex tracepoints report all futex calls in its place. Each call then \
takes about 1 us longer, half of it for the tracepoint itself; --budget does not limit that. \
If the agent is in the program but cannot patch some calls, these programs report only those \
calls, and the report names them. Call sites are in the user's code if libc's frames are \
known. On musl a call site is the place in libc; in a program without symbols, the caller of \
the function that makes the call; in Rust's std, which keeps frame pointers, std's own code. \
In Go programs, waits of the runtime's threads are seen, not those of goroutines. A call that \
a signal interrupts is counted again when it is repeated. 32-bit programs, holds and readers \
are not seen; futex_waitv and the separate calls since Linux 6.7 are only counted. Needs root, \
or cap_bpf and cap_perfmon and a readable tracefs; Linux 5.15, and BTF.

Kernel locks: --kernel times waits for the kernel's own locks (mmap_lock, rwsem, mutex, \
spinlock, rwlock, semaphore, percpu-rwsem, and the rt- forms of PREEMPT_RT), of a process, a \
command, or with -a of the whole system. BPF programs at lock:contention_begin and \
lock:contention_end keep the histograms in the kernel, so that a free lock costs nothing.
Not seen: waits that are won by spinning. A thread that spins for a sleeping lock and gets it \
(writers of rwsem and mmap_lock do) does not reach these tracepoints, nor does a reader for \
whom the lock turns out to be free. A mutex counts from the moment that the thread spins. \
Spinlocks are seen if the kernel queues for them. --mmap recognizes an mmap_lock by its address \
in the waiting task: a wait for that of another process (ptrace, /proc/PID) counts as rwsem. \
With -- CMD and -p, forked children do not count.
Rows: the time waited (total, mean, median, p99, longest; heat as above) and how often; type; \
mode (read, write, or - if there is only one; `failed` if a signal or a timeout ended the \
wait); call site: the first caller after the lock's own code. --by callsite shows its callers; \
--by process, thread, cgroup (of version 2) or lock groups by these, with the call site that \
waited most. Waits that were seen but not counted are reported by reason. With --json the rows \
are `waits`, each with its whole histogram.
Cost: 1 to 10 us for each contended wait, spent on a walk over the kernel's stack before the \
thread waits (rare waits cost more, because the caches are colder). If the lock is free after \
the walk, the time of the walk is not counted. --every costs more: it uses mmap_lock:*, so every \
acquisition costs 1 to 3 us, also of a free lock. It reports attempts that failed (trylock) and \
downgrades from write to read separately. The cost at the end of the report is measured: the \
programs' time in the traced process, and in all other processes, because their waits run the \
programs too. --budget is refused, because each wait is timed.
Needs root, or cap_bpf and cap_perfmon (cap_syslog for names of call sites, cap_sys_admin for \
the cost in all processes); Linux 5.19, and BTF.";

/// `tiptoe lock`.
#[derive(Debug, Args)]
pub struct LockArgs {
    /// With -a: trace the system while this command runs, as `-- CMD` does
    #[arg(value_name = "CMD", hide = true)]
    pub meanwhile: Vec<OsString>,

    /// Time waits for the kernel's own locks
    #[arg(long)]
    pub kernel: bool,

    /// Print which threads wait for which, and deadlocks
    #[arg(long, conflicts_with_all = ["kernel", "by", "duration", "delay", "interval", "via", "force", "ready_fd"])]
    pub now: bool,

    /// With --kernel: only mmap_lock
    #[arg(long)]
    pub mmap: bool,

    /// With --kernel: every acquisition of mmap_lock
    ///
    /// Also acquisitions without a wait, which costs more.
    #[arg(long)]
    pub every: bool,

    /// Split by lock, callsite, thread, type, scope, …
    ///
    /// lock: each lock, the default. callsite: the code that takes the lock, with its callers; the default with
    /// --kernel. thread: each thread. type: type and mode only. scope: each scope that the program enters
    /// (tiptoe-scope, tiptoe.h). With --kernel also process: each process, and cgroup: each cgroup, by its path.
    #[arg(long, value_name = "WHAT", value_enum, hide_possible_values = true)]
    pub by: Option<LockByWord>,

    /// Also time how long this lock is held
    ///
    /// Split by the code that takes it. LOCK is a variable or an address, as in a report.
    #[arg(long, value_name = "LOCK", conflicts_with_all = ["kernel", "now"])]
    pub hold: Option<String>,

    /// Draw each row's histogram above the tables
    #[arg(long, conflicts_with = "now")]
    pub histograms: bool,

    /// Use the agent despite seccomp or low ulimits
    ///
    /// By default the kernel counts in such a process. Not with --kernel.
    #[arg(long)]
    pub force: bool,

    #[command(flatten)]
    pub common: Common,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LockByWord {
    /// The code that takes the lock, with its callers
    Callsite,
    /// Type and mode only
    Type,
    /// Each lock
    Lock,
    /// Each thread
    Thread,
    /// Each process
    Process,
    /// Each cgroup, by its path
    Cgroup,
    /// Each scope that the program enters (tiptoe-scope, tiptoe.h)
    Scope,
}

impl LockByWord {
    fn split(self, is_kernel: bool) -> Result<Split, Failure> {
        match (self, is_kernel) {
            (LockByWord::Callsite, _) => Ok(Split::Callsite),
            (LockByWord::Type, _) => Ok(Split::Type),
            (LockByWord::Lock, _) => Ok(Split::Lock),
            (LockByWord::Thread, _) => Ok(Split::Thread),
            (LockByWord::Process, true) => Ok(Split::Process),
            (LockByWord::Process, false) => Err(Failure::ByWithoutKernel("process")),
            (LockByWord::Cgroup, true) => Ok(Split::Cgroup),
            (LockByWord::Cgroup, false) => Err(Failure::ByWithoutKernel("cgroup")),
            (LockByWord::Scope, true) => Err(Failure::KernelByScope),
            (LockByWord::Scope, false) => Ok(Split::Scope),
        }
    }
}

pub fn run(args: LockArgs) -> Result<ExitCode, Failure> {
    check(&args)?;
    instrument::check_via(args.common.via, args.force)?;
    match args.kernel {
        true => kernel::run(args),
        false if args.now => user::now(&args),
        false => user::run(args),
    }
}

fn refuse_budget(args: &LockArgs) -> Result<(), Failure> {
    match (args.common.budget, args.common.via) {
        (None | Some(Budget::Off), _) => Ok(()),
        _ if args.now => Err(Failure::BudgetOfNow),
        _ if args.kernel => Err(Failure::BudgetOfKernelLocks),
        (_, Via::Kernel) => Err(Failure::BudgetOfKernelWaits),
        _ => Ok(()),
    }
}

fn check(args: &LockArgs) -> Result<(), Failure> {
    if let Some(word) = args.meanwhile.first().filter(|_| !args.common.all) {
        let word = word.to_string_lossy();
        processes::refuse_pid(&word, "option", &args.common.pids)?;
        return Err(Failure::UnexpectedArgument(word.into_owned()));
    }
    refuse_budget(args)?;
    if args.kernel && args.force {
        return Err(Failure::ForceWith("--kernel"));
    }
    match instrument::given([(args.mmap, "--mmap"), (args.every, "--every")]) {
        Some(option) if !args.kernel => Err(Failure::WithoutKernel(option)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser;

    fn parse(line: &str) -> Result<LockArgs, clap::Error> {
        let words = ["tiptoe", "lock"]
            .into_iter()
            .chain(line.split_whitespace());
        Cli::try_parse_from(words).map(|cli| match cli.command {
            Some(Command::Lock(args)) => *args,
            other => panic!("not lock: {other:?}"),
        })
    }

    #[test]
    fn options_are_parsed() {
        let args = parse("--kernel --mmap -a --by cgroup --top 3").unwrap();
        assert!(args.kernel && args.mmap && !args.every && args.common.all);
        assert_eq!(args.by, Some(LockByWord::Cgroup));
        assert_eq!(args.common.top, Some(3));
        for line in [
            "--by colour",
            "-a -p 1",
            "-a --comm x",
            "--now -p 1 --interval 1",
            "--now -p 1 --via kernel",
            "--now -p 1 --force",
        ] {
            assert!(parse(line).is_err(), "{line:?}");
        }
    }

    #[test]
    fn options_that_exclude_each_other_are_refused() {
        for (line, said) in [
            ("--mmap -p 1", "--mmap without --kernel"),
            ("--every -a", "--every without --kernel"),
            ("--kernel -a --force", "--force does not go with --kernel"),
            (
                "-p 1 --via kernel --force",
                "--force does not go with --via kernel",
            ),
            ("-a", "-a"),
            ("-a -- ls", "-a"),
            ("-a sleep 1", "-a"),
            ("nonsense", "unexpected argument 'nonsense'"),
            ("--kernel sleep 1", "unexpected argument 'sleep'"),
            ("-p 1 --by cgroup", "--by cgroup without --kernel"),
            ("--now -p 1 --budget 1%", "--budget does not go with --now"),
            (
                "--kernel -a --budget 1%",
                "--budget does not go with --kernel",
            ),
            (
                "--via kernel -p 1 --budget 1%",
                "--budget does not go with --via kernel",
            ),
        ] {
            let failure = run(parse(line).unwrap()).expect_err(line);
            assert!(failure.to_string().contains(said), "{failure}");
        }
    }
}
