//! `tiptoe watch`: which code accesses a variable, in which thread, with which values.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use tiptoe_collector::{AccessOptions, Error, Request, Split};
use tiptoe_event::{Event, Memory, kind_prefix};

use crate::common::Common;
use crate::failure::{Failure, TargetOf};
use crate::instrument::{self, InstrumentRun, ReportExtras};
use crate::other_command;
use crate::processes;
use crate::values;

pub const WATCH_EXAMPLES: &str = "\
Examples:
  tiptoe watch hits -p 42                    which code writes it
  tiptoe watch head -p 42 --when 'new == 0'  which code clears it
  tiptoe watch head -p 42 --trace            each access as it happens";

pub const WATCH_BUDGET: &str = "\
Limit of the cost: 1%, 0.5 or off [default: 1%]

The share of one CPU's time that accesses may take. Beyond it the watch rests for part of the \
time. off: no limit.";

pub const WATCH_VIA: &str = "agent, kernel, kernel-task or auto";

pub const WATCH_VIA_LONG: &str = "\
What watches: agent, kernel, kernel-task or auto

agent: code in the target. kernel: breakpoints of all CPUs. kernel-task: breakpoints of each \
thread. auto, the default: the kernel where this user may, else the agent.";

pub const WATCH_HELP: &str = "\
Examples:
  tiptoe watch hits -p 42                    which code writes it
  tiptoe watch hits -p 42 --changed          which code changes it
  tiptoe watch head -p 42 --when 'new == 0'  which code clears it
  tiptoe watch head -p 42 --trace            each access as it happens
  tiptoe watch a/pinned/ b c d e -p 42 --rotate 100ms
                                             a always, the others in turn

Variables: [BINARY:]VARIABLE[:LEN][:w|rw|x], or an address in place of a name
  stats.hits                 a member, by the program's debug information; if
                             that is not here, the servers of $DEBUGINFOD_URLS
                             are asked
  table[3]->next             through a pointer; if the pointer changes, the
                             watch follows; before it is set, nothing is
                             watched
  'ns::Class::member'        C++; a :: belongs to the name
  main.Counter               Go; quoted if its package's path has a /
  libc.so.6:environ          of a library
  0x7ffd1000:4:rw            four bytes at an address, reads too
  errno_copy --thread worker of that thread, if each thread has its own
w: writes, the default. rw: reads too (x86 has no reads alone). x: code that is executed. LEN \
is 1, 2, 4 or 8, and the address must be a multiple of it.

Rows: how many accesses, how many changed the value, when the first and last were; the thread, \
by name (with its number if it was only one; --by thread splits all threads); the instruction \
after the access. Below: the values, and the callers. A value is taken from the instruction \
that stored it, because memory may already hold another thread's value when the processor \
reports the store. If that is impossible (the first hits of an instruction, additions in \
memory, vectors), the value is read from memory and marked racy. System calls that write to \
the variable are counted at the call.

How: breakpoints of all CPUs, and a BPF program that knows the process. So all threads are \
seen, also those that start later; none is stopped, and switches between threads take no \
longer. 3 of the 4 debug registers may be used; --all-slots takes the last, which gdb would \
use. Hits of another process at the same address are not counted; their number is reported, \
because each costs that process as much.
--via kernel-task uses breakpoints of each thread, which threads that start later inherit. It \
is also chosen before Linux 6.10, if other processes run the program at the same addresses \
(forked workers) or if CPUs have no register left. It adds 0.3 us and more to each switch.
--via agent is chosen if this user may use neither of these. The agent sets the same breakpoints in \
the program, and each access raises a signal in the thread that made it. It works for your own \
programs. It does not see writes by system calls, nor those of a thread while it blocks \
SIGTRAP by a system call that is not libc's.

Cost: each access takes longer, in a virtual machine by 5 to 20 us. So hits may take 1% of one \
CPU's time over all variables (--budget). When the share of a tenth of a second is used up, \
the watch rests until the next. Totals are then marked `at least`.

Needs root, or cap_bpf and cap_perfmon; Linux 6.1, and BTF. --via agent needs no right, but \
Linux 5.13, and kernel.perf_event_paranoid at 2 or below.";

/// `tiptoe watch`.
#[derive(Debug, Args)]
pub struct WatchArgs {
    /// Variables to watch
    #[arg(value_name = "VARIABLE", required = true)]
    pub variables: Vec<String>,

    /// The thread whose own variable is watched
    ///
    /// For a variable of which each thread has its own: thread_local, __thread.
    #[arg(long, value_name = "TID|NAME")]
    pub thread: Option<String>,

    /// Count only accesses that changed the value
    ///
    /// Also accesses whose old value is unknown, because they may have changed it.
    #[arg(long)]
    pub changed: bool,

    /// Count only accesses for which this is true
    ///
    /// Such as 'new == 0' or 'new < old && new & 1'.
    #[arg(long, value_name = "EXPR")]
    pub when: Option<String>,

    /// Also print each access as it happens
    #[arg(long)]
    pub trace: bool,

    /// Split rows by comm or thread
    ///
    /// comm: all threads of one name together, the default. thread: each thread.
    #[arg(long, value_name = "WHAT", value_enum, hide_possible_values = true)]
    pub by: Option<WatchByWord>,

    /// Also use the debugger's debug register
    ///
    /// By default one of the four registers is left to debuggers.
    #[arg(long)]
    pub all_slots: bool,

    /// Let many variables take turns of this length
    ///
    /// For more variables than debug registers. A variable with /pinned/ after its name keeps its register.
    #[arg(long, value_name = "TIME", value_parser = values::time, allow_hyphen_values = true)]
    pub rotate: Option<Duration>,

    /// Report how debug registers were reserved
    ///
    /// Also how long reservations waited.
    #[arg(long)]
    pub stats: bool,

    #[command(flatten)]
    pub common: Common,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WatchByWord {
    /// All threads of one name together
    Comm,
    /// Each thread
    Thread,
}

pub fn run(args: WatchArgs) -> Result<ExitCode, Failure> {
    let common = args.common;
    let variables = args.variables.iter().map(|text| {
        processes::refuse_pid(text, "variable", &common.pids)?;
        parse(text)
    });
    let variables = variables.collect::<Result<Vec<_>, _>>()?;
    let (interval, delay) = (common.interval.is_some(), common.delay.is_some());
    if let Some(option) = instrument::given([(interval, "--interval"), (delay, "--delay")]) {
        return Err(Failure::WatchOption(option));
    }
    let target = instrument::target(&common, TargetOf::Variables)?;
    let (mut run, request) = InstrumentRun::begin(&target, &common, "hit", true)?;
    let request = Request {
        events: variables,
        split: args.by.map(|by| match by {
            WatchByWord::Comm => Split::Comm,
            WatchByWord::Thread => Split::Thread,
        }),
        accesses: AccessOptions {
            thread: args.thread,
            only_changed: args.changed,
            trace: args.trace,
            when: args.when,
            all_slots: args.all_slots,
            rotate: args.rotate,
            stats: args.stats,
        },
        ..request
    };
    let outcome = tiptoe_collector::run(&request, &mut run.observer)?;
    Ok(run.finish(outcome, &common, ReportExtras::default()))
}

/// Must run before the command is started, so that a bad variable starts nothing.
fn parse(text: &str) -> Result<Event<'_>, Failure> {
    other_command::refuse(text, "watch")?;
    let text = match kind_prefix(text) {
        Some(prefix @ "mem:") => &text[prefix.len()..],
        _ => text,
    };
    let variable = Memory::parse(text).map_err(|error| Error::BadVariable {
        text: text.to_owned(),
        error: error.into(),
    });
    Ok(Event::Memory(variable?))
}
