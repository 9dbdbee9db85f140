//! `tiptoe watch`: who accesses a variable, from where, with which values.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use tiptoe_collector::WatchRequest;

use crate::args::Common;
use crate::failure::Failure;
use crate::interrupt;
use crate::observer::Terminal;
use crate::output::Output;
use crate::probe::{self, AGENT};
use crate::ready::{self, Talk};
use crate::values;

/// What `tiptoe watch --help` says behind the options.
pub const WATCH_HELP: &str = "\
Variables: [BINARY:]VARIABLE[:LEN][:w|rw|x], or an address in place of a name
  stats.hits                 a member, by the program's debug information
  table[3]->next             through a pointer, followed where that leads elsewhere
  'ns::Class::member'        C++; a :: belongs to the name
  main.Counter               Go; quoted if its package's path has a /
  libc.so.6:environ          of a library
  0x7ffd1000:4:rw            four bytes at an address; reads, too
  errno_copy --thread worker the one of that thread, where each has its own
w: writes, the default. rw: reads as well (x86 has no reads alone). x: code that is run.
LEN is 1, 2, 4 or 8, and the address a multiple of it.

Rows: how many accesses, how many changed the value, when the first and last were; the
thread, by name (with its number where it was one; --by thread tells all apart); the
instruction behind the access. Below: the values, and from where it was called. A value
is taken from the instruction that stored it, as memory may already hold another
thread's when the processor tells. Where that cannot be (the first hits of an instruction,
additions in memory, vectors) it is read from memory, and marked racy. System calls that
write to the variable are counted where the call is made.
  tiptoe watch hits -p 42                    who writes it
  tiptoe watch hits -p 42 --changed          who changes it
  tiptoe watch head -p 42 --when 'new == 0'  who clears it
  tiptoe watch head -p 42 --trace            each time, as it comes
  tiptoe watch a/pinned/ b c d e -p 42 --rotate 100ms   a all the time, the others in turn

How: breakpoints of all CPUs, and a BPF program that knows the process: all of its threads
are seen, also those that begin later, none is stopped, and nothing is added to a switch
between threads. 3 of the 4 debug registers may be used, --all-slots takes the last, which
gdb would use. Hits of another process at the same address are not counted, but their
number is told, as each costs it as much. --via kernel-task, taken too where other processes
run the program at the same place (forked workers) or CPUs have no register left: breakpoints
of each thread, inherited by those that begin later; they add 0.3 us and more to each switch.
--via agent, taken where this user may have neither: the same breakpoints set by the agent in
the program, which raise a signal in the thread that made the access; for programs of one's
own. Writes by system calls are not seen then, nor those of a thread while it blocks SIGTRAP
by a system call that is not libc's.

Cost: each access takes longer, in a virtual machine by 5 to 20 us. So hits are allowed 1%
of one CPU's time over all variables (--budget); when a tenth of a second's share is used
up the watch rests until the next. Totals are then marked 'at least'.

Needs root, or cap_bpf and cap_perfmon; Linux 5.15, and BTF. --via agent needs no right, but
kernel.perf_event_paranoid at 2 or below.";

/// `tiptoe watch`.
#[derive(Debug, Args)]
pub struct WatchArgs {
    /// What to watch
    #[arg(value_name = "VARIABLE", required = true)]
    pub variables: Vec<String>,

    /// The thread whose variables are meant, of those that each thread has (thread_local, __thread)
    #[arg(long, value_name = "TID|NAME")]
    pub thread: Option<String>,

    /// Count only accesses that changed the value, or may have, as those before them were missed
    #[arg(long)]
    pub changed: bool,

    /// Count only accesses for which this holds, such as 'new == 0' or 'new < old && new & 1'
    #[arg(long, value_name = "EXPR")]
    pub when: Option<String>,

    /// Print a line for each access, too, as it comes
    #[arg(long)]
    pub trace: bool,

    /// Tell threads apart by their numbers, not only by name
    #[arg(long, value_name = "WHAT", value_enum)]
    pub by: Option<WatchByWord>,

    /// Use the debug register that is left to debuggers, too
    #[arg(long)]
    pub all_slots: bool,

    /// Have more variables than debug registers take turns of so long, such as 100ms; those
    /// with /pinned/ behind them keep theirs
    #[arg(long, value_name = "TIME", value_parser = values::time, allow_negative_numbers = true)]
    pub rotate: Option<Duration>,

    /// Tell how debug registers were reserved, and what was waited for that
    #[arg(long)]
    pub stats: bool,

    /// Whom, how long, and where the report goes.
    #[command(flatten)]
    pub common: Common,
}

/// What accesses can be told apart by, as words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WatchByWord {
    /// Threads of one name together
    Comm,
    /// Each thread for itself
    Thread,
}

/// Whom, where nobody is named.
const TARGETS: &str = "-p PID, --comm NAME or -- CMD says whose variables";

/// Runs the instrument; the exit status is the command's own where one was started.
pub fn run(args: WatchArgs) -> Result<ExitCode, Failure> {
    let common = args.common;
    for (given, option) in [
        (common.interval.is_some(), "--interval"),
        (common.delay.is_some(), "--delay"),
    ] {
        if given {
            let hint = "--duration ends a watch; the report comes then";
            return Err(Failure::not_yet(format!("{option} for variables"), hint));
        }
    }
    let target = probe::target(&common, TARGETS)?;
    let output: Output = probe::place(&common, &target, true)?;
    let (stop, hand_on) = interrupt::on_signals(&target)?;
    let ready = ready::ready(common.ready_fd, Talk::beside(&output, common.json))?;
    let mut observer = Terminal::new(&output, common.json, Arc::clone(&stop))?;
    let request = WatchRequest {
        agent: AGENT,
        variables: args.variables,
        target,
        thread: args.thread,
        by_thread: args.by == Some(WatchByWord::Thread),
        only_changed: args.changed,
        trace: args.trace,
        when: args.when,
        all_slots: args.all_slots,
        via: common.via,
        rotate: args.rotate,
        stats: args.stats,
        budget: common.budget,
        duration: common.duration,
        stop,
        hand_on,
        ready,
    };
    let outcome = tiptoe_collector::watch(&request, &mut observer)?;
    Ok(probe::end(&outcome, output, &common, false))
}
