//! `tiptoe lock`: who waits for which lock, for how long, and where.
//!
//! The kernel's locks are [`kernel`]'s, those of programs [`user`]'s.

use std::process::ExitCode;

use clap::{Args, ValueEnum};

use crate::args::Common;
use crate::failure::Failure;

mod kernel;
mod user;

/// What `tiptoe lock --help` says behind the options.
pub const LOCK_HELP: &str = "\
Locks of programs: where libc is about to wait for a lock, and where it wakes who waits,
is patched in the running program; a lock that is free runs the code it always ran.
  tiptoe lock -p 42                     which locks process 42 waits for
  tiptoe lock --by callsite -- CMD      from where they are asked for
  tiptoe lock --now -p 42               who waits for whom at this moment; deadlocks
  tiptoe lock --hold cache_lock -p 42   and how long cache_lock is held, by who takes it
Rows: the time asleep (total, median, p99, longest), how many calls were contended, how
many waits slept and how many returned at once, as the lock had changed hands; the lock by
its variable or where it is; from where it was mostly waited for. Below each: from where
the waiters were woken, by their share of the time: by the last holder, who may not have held
the lock for most of the wait (--hold times holds). What threads wait for
that nobody holds (conditions, semaphores, joins) has a table of its own. --by callsite,
thread or type groups by these. Mutexes of all kinds, rwlocks, conditions, semaphores,
barriers, once, join, stdio's and malloc's locks; through syscall() those of Rust,
parking_lot and C++ atomics. A call site is the first caller outside of the runtime: libc,
the loader, libstdc++ or libc++, libgcc, and what of std::, __gnu_cxx::, core::, alloc:: and
parking_lot was compiled into the program; those in any other library are that library's.
A C++ atomic that is no futex (std::atomic<long>, atomic_flag, barrier) waits at a word of
a table: its row has the variable that the call is given, or the function that calls.
Not seen: spinning. Not traced: what CMD forks.
Waits that were on when the trace began are told apart, with '>=': they are seen from outside,
as by --now, which counts from when a thread last ran (a signal, SIGSTOP or an attach lets it
run for a moment). They end with the last look, twice a second, that found the thread still
asleep. Threads that wait for each other when the trace ends are named as a deadlock.
--hold LOCK also times every hold of one mutex, rwlock or spin lock, from the call that
takes it (or the end of its wait there) to the call that gives it back, by the call site
that took it. It patches pthread_mutex_lock and the like: each call of these costs some
1 to 2 ns more, one for LOCK about 40. Locks that are taken without a call (Rust's, a program's
own) have no holds.
Cost: nothing for a lock that is free; some 30 ns for a wait that returns at once, 40 for one that
sleeps, and 15 for a wake ('tiptoe bench lock' measures these here), which cost 150 to 400 ns
by themselves. Of these 40 some 17 are two readings of the clock. Where --budget does not pay for
all of them (threads that wake each other 100,000 times a second and more), waits between two that
are timed are only counted, as many as chance says: numbers of waits stay exact; totals and blame
are estimated from those that were timed, and marked '~' (in JSON: 'timed', of so many that
slept). Who waits seldom has each wait timed, and waits of 20 ms and more are always told.
Where the agent cannot go (static programs, Go, musl, seccomp), and with --via kernel, BPF
programs at the kernel's futex tracepoints tell the same of all futex calls, each of which
takes about 1 us longer then, a half of it for the tracepoint itself; of calls that could
not be patched (the report names them) they tell beside the agent. Call sites are the
user's where libc's frames are known: of musl only the place in libc, of a program without
names the caller of what makes the call, of Rust's std, which keeps frame pointers, std's own. Of Go these are waits of its runtime's threads,
not of goroutines. A call that a signal interrupts is counted again where it is made
again. Not seen: 32-bit programs, holds, readers; futex_waitv and the single calls since 6.7
are only counted. Needs root, or cap_bpf and cap_perfmon and a readable tracefs; Linux
5.15, and BTF.

Kernel locks: --kernel times waits for the kernel's own locks (mmap_lock, rwsem, mutex,
spinlock, rwlock, semaphore, percpu-rwsem, and the rt- forms of PREEMPT_RT), of a process,
a command, or with -a of all. BPF programs at lock:contention_begin and _end keep the
histograms in the kernel, so that a lock that is free costs nothing.
  tiptoe lock --kernel -p 42            where process 42 waits, by call site
  tiptoe lock --kernel --mmap -- CMD    only for mmap_lock: page faults beside mmap
  tiptoe lock --kernel -a --by type     the whole system in a few rows
  tiptoe lock --kernel --every -p 42    each acquisition of mmap_lock, free or not
What is not seen: waits that are won by spinning. A thread that spins for a sleeping lock
and gets it (writers of rwsem and mmap_lock do) begins no wait for these tracepoints, nor
does a reader that finds the lock free after all; a mutex counts from the moment it spins.
Spinlocks are seen where the kernel queues for them. --mmap knows an mmap_lock by its
address within the waiting task: a wait for that of another process (ptrace, /proc/PID)
counts as rwsem. Of -- CMD and -p the process counts, not what it forks.
Rows: the time waited (total, mean, median, p99, longest) and how often; type; mode (read,
write, - where there is but one; 'failed' where a signal or a timeout ended the wait);
call site, the first caller behind the lock's own code. --by callsite shows its callers;
--by process, thread, cgroup (of version 2) or lock groups by these, with the call site
where most was waited. What was seen and not counted is told by reason. With --json the
rows are 'waits', each with its whole histogram.
Cost: 1 to 10 us for each contended wait (a walk over the kernel's stack: the rarer, the
colder), spent before the thread waits. What is over by then counts without that time.
--every costs more: it uses mmap_lock:*, and so pays 1 to 3 us for every acquisition, also
of a free lock; it tells those that failed (a try) and downgrades from write to read apart.
What every report ends with is measured: the programs' time in the traced process, and in
all others, whose waits pass them too. --budget holds nothing here, as nothing is thinned.
Needs root, or cap_bpf and cap_perfmon (cap_syslog for names of call sites, cap_sys_admin
for what all processes paid); Linux 5.19, and BTF.";

/// `tiptoe lock`.
#[derive(Debug, Args)]
pub struct LockArgs {
    /// Watch the kernel's own locks
    #[arg(long)]
    pub kernel: bool,

    /// Who waits for whom at this moment, and deadlocks: reads, and ends
    #[arg(long, conflicts_with_all = ["kernel", "by", "duration", "delay", "ready_fd"])]
    pub now: bool,

    /// Of the kernel's locks only mmap_lock
    #[arg(long)]
    pub mmap: bool,

    /// Every acquisition of mmap_lock, also where nothing waited: costs more
    #[arg(long)]
    pub every: bool,

    /// Tell rows apart by this, besides type and mode [default: lock, with --kernel callsite]
    #[arg(long, value_name = "WHAT", value_enum)]
    pub by: Option<LockByWord>,

    /// How long this one is held, too, by who takes it: a variable or an address, as told in a report
    #[arg(long, value_name = "LOCK", conflicts_with_all = ["kernel", "now"])]
    pub hold: Option<String>,

    /// Patch in process even where that is against the rules (seccomp)
    #[arg(long)]
    pub force: bool,

    /// Whom, how long, and where the report goes.
    #[command(flatten)]
    pub common: Common,
}

/// What waits can be told apart by, as words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LockByWord {
    /// Where the lock was asked for, with the callers of that
    Callsite,
    /// Nothing else
    Type,
    /// Each lock for itself
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

/// Runs the instrument; the exit status is the command's own where one was started.
pub fn run(args: LockArgs) -> Result<ExitCode, Failure> {
    check(&args)?;
    crate::probe::refuse_of_threads(args.common.via)?;
    match args.kernel {
        true => kernel::run(args),
        false if args.now => user::now(&args),
        false => user::run(args),
    }
}

/// Whether the options make sense together.
fn check(args: &LockArgs) -> Result<(), Failure> {
    let of_kernel = [(args.mmap, "--mmap"), (args.every, "--every")];
    match of_kernel.into_iter().find(|(given, _)| *given) {
        Some((_, option)) if !args.kernel => {
            let what = format!("{option} without --kernel: mmap_lock is a lock of the kernel's");
            Err(Failure::new(what).hint(format!("tiptoe lock --kernel {option}")))
        }
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
            Command::Lock(args) => *args,
            other => panic!("not lock: {other:?}"),
        })
    }

    #[test]
    fn options() {
        let args = parse("--kernel --mmap -a --by cgroup --top 3").unwrap();
        assert!(args.kernel && args.mmap && !args.every && args.common.all);
        assert_eq!(args.by, Some(LockByWord::Cgroup));
        assert_eq!(args.common.top, Some(3));
        for line in [
            "--by colour",
            "-a -p 1",
            "-a --comm x",
            "-a -- ls",
            "nonsense",
        ] {
            assert!(parse(line).is_err(), "{line:?}");
        }
    }

    #[test]
    fn what_does_not_go_together() {
        for (line, said) in [
            ("--mmap -p 1", "--mmap without --kernel"),
            ("--every -a", "--every without --kernel"),
            ("-a", "-a"),
            ("-p 1 --by cgroup", "--by cgroup without --kernel"),
        ] {
            let failure = run(parse(line).unwrap()).expect_err(line);
            assert!(format!("{failure:?}").contains(said), "{failure:?}");
        }
    }
}
