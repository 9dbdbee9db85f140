//! The command line. Common options mean the same for every instrument.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use tiptoe_collector::Budget;
use tiptoe_event::{Filter, Via};

use crate::doctor::DoctorArgs;
use crate::generate::GenerateArgs;
use crate::latency::LatencyArgs;
use crate::lock::{LOCK_HELP, LockArgs};
use crate::plan::{PLAN_HELP, PlanArgs};
use crate::stat::{STAT_HELP, StatArgs};
use crate::values;
use crate::watch::{WATCH_HELP, WatchArgs};

/// Low-overhead tracing that says what it cost
#[derive(Debug, Parser)]
#[command(name = "tiptoe", version)]
pub struct Cli {
    /// Which instrument.
    #[command(subcommand)]
    pub command: Command,
}

/// The instruments.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Count how often functions of a program run, or time them
    #[command(after_help = PROBE_HELP)]
    Probe(Box<ProbeArgs>),
    /// Show who waits for locks, for how long, and where
    #[command(after_help = LOCK_HELP)]
    Lock(Box<LockArgs>),
    /// Show who accesses a variable, from where, with which values
    #[command(after_help = WATCH_HELP)]
    Watch(Box<WatchArgs>),
    /// Count events of a command, of processes or of the system, by perf's names
    #[command(after_help = STAT_HELP)]
    Stat(Box<StatArgs>),
    /// Tell how accurate a set of counters would be, and what it would cost
    #[command(after_help = PLAN_HELP)]
    Plan(PlanArgs),
    /// Measure what tiptoe's own parts cost, beside the alternatives
    Bench(BenchArgs),
    /// Show what this machine and user can do, and how to enable the rest
    Doctor(DoctorArgs),
    /// Write man pages and shell completions, for packages
    Generate(GenerateArgs),
}

const PROBE_HELP: &str = "\
Events: [uprobe:|uretprobe:][BINARY:]FUNCTION[+OFFSET]
  dictFind                   a function of the program itself
  'libssl*:SSL_*'            globs, of libraries and of functions: '*' stands for any
                             text, '?' for one character, all else for itself
  libstdc++.so.6:std::*      demangled C++ and Rust names, with or without parameters
                             and [abi:…]; a ':' in a name needs no quoting
  redis-server:0x4f2a0       a function without a name
  uretprobe:dictFind         its returns in place of its entries
Libraries that are loaded later are probed before their code runs, in process; with
-- CMD a SPEC may name one that is not there yet, with -p it has to match at once.

Times: with --latency, from entry to return
  --latency                  percentiles, histograms, total and self time (what is
                             left without the callees that are probed too)
  --latency --slower 1ms     only the calls that take longer
  --latency --by thread      of each thread for itself, too; --by comm: of each name;
                             --by arg0: of each value of the first argument

Records: with --record, a line for each call: seconds since the start, thread, event,
and its first two arguments (registers; small numbers as such, others as 0x…); with
--json an object a line. Calls that come faster than they are read are counted as lost.

Calls are followed and recorded as far as --budget goes and only counted beyond it;
with 'off' all of them are.

Values: with --by arg0 … arg5 each value of an integer argument is counted for itself,
and with --latency timed, as it was at the call's entry. What a thread has no room for
(256 values of an event, 64 with --latency) goes to '(other values)'.

Below a function: with --under FUNC only hits of threads that are in a call of FUNC
count, at any depth; also in signal handlers, and in coroutines that FUNC switches to
or is suspended in. Calls of FUNC that began before the trace are not seen. FUNC itself
is always followed, whatever the budget (about 8 ns a call), and cannot be counted.

Cost: a hit adds 1 to 6 ns to the target where its code is patched, 1 to 4 us where
only a trap fits, and 0.2 to 20 us where the kernel counts (it may have to single-
step); 'tiptoe bench uprobe' measures these here. A probe of the kernel's that passes
--budget counts in windows only, and its count is a lower bound (>=). Code that is not
probed runs as before. Every report ends with what the tracing cost.

Ctrl-C, SIGTERM and SIGHUP end the trace, and the last two CMD as well. Before the
trace has begun they end tiptoe, which then has no report.

Exit status: the command's own with -- CMD (128+N where signal N ended it), else 0;
2 where tiptoe itself failed, 128+N where signal N ended tiptoe.";

/// `tiptoe probe`.
#[derive(Debug, Args)]
pub struct ProbeArgs {
    /// Events to count; quote globs
    #[arg(value_name = "SPEC", required = true)]
    pub specs: Vec<String>,

    /// Count hits: the default
    #[arg(long)]
    pub count: bool,

    /// Print a line for each call: when, its thread, and its first two arguments
    #[arg(long, conflicts_with_all = ["count", "latency"])]
    pub record: bool,

    /// Count only hits whose arguments pass, such as 'arg1 > 4096 && arg0:u32 == 3'
    #[arg(long, value_name = "EXPR")]
    pub filter: Option<Filter>,

    /// Split the counts, and with --latency the times
    #[arg(long, value_name = "WHAT", value_enum)]
    pub by: Option<ByWord>,

    /// How long calls take.
    #[command(flatten)]
    pub timing: LatencyArgs,

    /// Patch in process even where the kernel would be preferred (seccomp)
    #[arg(long)]
    pub force: bool,

    /// Take the probes out and put them in again this many times: a test of the patcher
    #[arg(long, value_name = "N", hide = true)]
    pub toggles: Option<u64>,

    /// Whom, how long, and where the report goes.
    #[command(flatten)]
    pub common: Common,
}

/// What counts can be split by, as words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ByWord {
    /// Each thread for itself
    Thread,
    /// Threads of one name together
    Comm,
    /// Each value of the first argument for itself
    Arg0,
    /// Of the second
    Arg1,
    /// Of the third
    Arg2,
    /// Of the fourth
    Arg3,
    /// Of the fifth
    Arg4,
    /// Of the sixth
    Arg5,
    /// Each scope that the program enters (tiptoe-scope, tiptoe.h)
    Scope,
}

/// Options with one meaning for all instruments.
#[derive(Debug, Args)]
pub struct Common {
    /// Trace these running processes
    #[arg(short, long = "pid", value_name = "PID", value_delimiter = ',',
          value_parser = values::pid, conflicts_with_all = ["comm", "cmd"])]
    pub pids: Vec<u32>,

    /// Trace the running processes of this name
    #[arg(long, value_name = "NAME", conflicts_with = "cmd")]
    pub comm: Option<String>,

    /// Stop after this time (2, 1.5s, 500ms, 3m); CMD goes on, and the report comes at its end
    #[arg(long, value_name = "TIME", value_parser = values::time, allow_negative_numbers = true)]
    pub duration: Option<Duration>,

    /// Wait this long before counting
    #[arg(long, value_name = "TIME", value_parser = values::time, allow_negative_numbers = true)]
    pub delay: Option<Duration>,

    /// Print rates while it runs, one line each time; with --json, counts, one object each
    /// time, as in the report's 'intervals'
    #[arg(long, value_name = "TIME", value_parser = values::time, allow_negative_numbers = true)]
    pub interval: Option<Duration>,

    /// Show this many events and histograms; 0 shows all [default: 20, and 10 histograms]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub top: Option<usize>,

    /// Report as one line of JSON
    #[arg(long)]
    pub json: bool,

    /// Report into a file, or '-' for stdout [default: stdout, with -- CMD stderr]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Write the line 'ready' to this descriptor once counting has begun, and close it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(3..))]
    pub ready_fd: Option<i32>,

    /// Who counts: code in the target (agent), the kernel, or for each probe what it allows
    #[arg(long, value_name = "agent|kernel|auto", default_value_t = Via::Auto)]
    pub via: Via,

    /// Most of the target's CPU time that tracing may take, in percent: calls are followed
    /// and recorded, waits for locks timed, and the kernel's probes open, as far as it goes, and
    /// a trap that is hit more than 10,000 times a second is switched off. off: nothing is
    #[arg(long, value_name = "PERCENT|off", default_value = "1%", value_parser = values::budget,
          allow_negative_numbers = true)]
    pub budget: Budget,

    /// The whole system; so far only of `lock --kernel`
    #[arg(short = 'a', long = "all", conflicts_with_all = ["pids", "comm", "cmd"])]
    pub all: bool,

    /// Reserved: the processes of a cgroup.
    #[arg(long, value_name = "PATH", hide = true)]
    pub cgroup: Option<PathBuf>,

    /// Reserved: follow children.
    #[arg(short = 'f', long = "follow", hide = true)]
    pub follow: bool,

    /// Start this command and trace it
    #[arg(last = true, value_name = "CMD", id = "cmd")]
    pub command: Vec<OsString>,
}

/// `tiptoe bench`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct BenchArgs {
    /// A bench with options of its own.
    #[command(subcommand)]
    pub own: Option<BenchCommand>,

    /// Which one; without it, lists them
    pub name: Option<String>,

    /// Rows as one line of JSON
    #[arg(long)]
    pub json: bool,

    /// Measure every case this often; the median is shown
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub rounds: Option<u16>,

    /// Run each single measurement for this much CPU time, in milliseconds
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub ms: Option<u32>,

    /// Run this many threads side by side: 1, 2, 4 and so on up to it, or each of a list
    #[arg(short = 't', long, value_name = "N[,N...]", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..=64))]
    pub threads: Vec<u32>,
}

/// Benches with options of their own.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// What accounting for debug registers costs
    #[command(subcommand)]
    Breakpoint(BreakpointBench),
}

/// `tiptoe bench breakpoint`.
#[derive(Debug, Subcommand)]
pub enum BreakpointBench {
    /// Pairs of reserve and release: with accounting off, ours, under one mutex
    Stress(StressArgs),
    /// The same pairs on up to 256 CPUs, simulated: who waits for whom follows from critical
    /// sections, locks and ways between CPUs that are measured here in the same run
    Queue(QueueArgs),
    /// Threads that are created and end, as perf bench has it: alone, with accounting
    /// in each form, with the kernel's breakpoints
    Thread(ThreadArgs),
    /// Switching a breakpoint of the kernel's off and on, as perf bench has it
    Enable(EnableArgs),
}

/// `tiptoe bench breakpoint stress`.
#[derive(Debug, Args)]
pub struct StressArgs {
    /// Up to so many threads; the machine's CPUs unless given
    #[arg(short = 't', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: Option<u32>,

    /// So many in a hundred pairs are for a CPU; 0, 1 and 10 unless given
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(0..=100))]
    pub cpu_targets: Option<u32>,

    /// Debug registers of a CPU
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=16))]
    pub slots: u32,

    /// CPUs that are accounted for; the machine's unless given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub cpus: Option<u32>,

    /// Run each single measurement for this long, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub ms: u32,

    /// Measure every case this often; the median is shown
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u16).range(1..))]
    pub rounds: u16,

    /// Rows as one line of JSON
    #[arg(long)]
    pub json: bool,
}

/// `tiptoe bench breakpoint queue`.
#[derive(Debug, Args)]
pub struct QueueArgs {
    /// Up to so many CPUs, with a thread each
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub cpus: u32,

    /// So many in a hundred pairs are for a CPU; 0, 1 and 10 unless given
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(0..=100))]
    pub cpu_targets: Option<u32>,

    /// Debug registers of a CPU
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=16))]
    pub slots: u32,

    /// Each thread does something else for so long in front of a pair, on average
    #[arg(long, value_name = "NS", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=100_000_000))]
    pub work_ns: u32,

    /// A cache line takes so long from one CPU to another, as on another machine; measured
    /// unless given
    #[arg(long, value_name = "NS", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub line_ns: Option<u32>,

    /// Run each single measurement for this long, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub ms: u32,

    /// Measure everything this often; the median is taken
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..))]
    pub rounds: u16,

    /// Rows as one line of JSON
    #[arg(long)]
    pub json: bool,
}

/// `tiptoe bench breakpoint thread`.
#[derive(Debug, Args)]
pub struct ThreadArgs {
    /// Batches of threads, over all workers
    #[arg(short, long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub repeat: u32,

    /// Breakpoints of each thread
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4))]
    pub breakpoints: u32,

    /// Workers that create threads side by side
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub parallel: u32,

    /// Threads of a batch
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: u32,

    /// Measure every case this often, alternating
    #[arg(long, value_name = "N", default_value_t = 31, value_parser = clap::value_parser!(u16).range(1..))]
    pub rounds: u16,

    /// Rows as one line of JSON
    #[arg(long)]
    pub json: bool,
}

/// `tiptoe bench breakpoint enable`.
#[derive(Debug, Args)]
pub struct EnableArgs {
    /// Switches off and on
    #[arg(short, long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub repeat: u32,

    /// Threads that sleep meanwhile
    #[arg(short, long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1024))]
    pub passive: u32,

    /// Threads that run meanwhile
    #[arg(short, long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1024))]
    pub active: u32,

    /// Measure all of it this often; the median is shown
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    pub rounds: u16,

    /// Rows as one line of JSON
    #[arg(long)]
    pub json: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<ProbeArgs, clap::Error> {
        let words = ["tiptoe", "probe"]
            .into_iter()
            .chain(line.split_whitespace());
        Cli::try_parse_from(words).map(|cli| match cli.command {
            Command::Probe(args) => *args,
            other => panic!("not a probe: {other:?}"),
        })
    }

    #[test]
    fn the_definition_is_sound() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    #[test]
    fn targets_and_defaults() {
        let args = parse("f g -p 1,2 -p 3").unwrap();
        assert_eq!(
            (args.specs, args.common.pids),
            (vec!["f".into(), "g".into()], vec![1, 2, 3])
        );
        assert_eq!(
            (args.common.via, args.common.budget),
            (Via::Auto, Budget::Percent(1.0))
        );
        let args = parse("f --json -- ls -p --json").unwrap();
        assert_eq!(args.common.command, ["ls", "-p", "--json"]);
        assert!(args.common.json && args.common.pids.is_empty());
    }

    #[test]
    fn values() {
        let args =
            parse("f -p 1 --duration 500ms --interval 2 --budget off --via kernel --by comm");
        let args = args.unwrap();
        assert_eq!(args.common.duration, Some(Duration::from_millis(500)));
        assert_eq!(args.common.interval, Some(Duration::from_secs(2)));
        assert_eq!(
            (args.common.budget, args.common.via),
            (Budget::Off, Via::Kernel)
        );
        assert_eq!(args.by, Some(ByWord::Comm));
        let words = ["tiptoe", "probe", "f", "-p", "1", "--filter", "arg0 > 3"];
        assert!(Cli::try_parse_from(words).is_ok());
    }

    #[test]
    fn times_of_calls() {
        let args = parse("f -p 1 --latency --slower 500us --under g --by arg0 --budget 0.5");
        let args = args.unwrap();
        assert!(args.timing.latency);
        assert_eq!(args.timing.slower, Some(500_000));
        assert_eq!(args.timing.under.as_deref(), Some("g"));
        assert_eq!(args.by, Some(ByWord::Arg0));
        assert_eq!(args.common.budget, Budget::Percent(0.5));
    }

    #[test]
    fn what_is_refused() {
        for line in [
            "",
            "f -p 0",
            "f -p one",
            "f -p 1 -- ls",
            "f --comm redis -- ls",
            "f -p 1 --comm redis",
            "f -p 1 --filter size>3",
            "f -p 1 --via magic",
            "f -p 1 --budget 0",
            "f -p 1 --by colour",
            "f -p 1 --latency --count",
            "f -p 1 --latency --slower 1",
            "f -p 1 --latency --slower 0ms",
            "f -p 1 --interval 0",
            "f -p 1 --nonsense",
        ] {
            assert!(parse(line).is_err(), "{line:?}");
        }
    }
}
