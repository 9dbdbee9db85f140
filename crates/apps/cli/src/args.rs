//! The command line, as clap's types. Doc comments of fields and variants are the help texts.
//!
//! An option of [`Common`] must mean the same for every instrument.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ColorChoice, Parser, Subcommand, ValueEnum};
use tiptoe_collector::Budget;
use tiptoe_event::{Filter, Via};

use crate::bug::{BUG_EXAMPLES, BugArgs};
use crate::doctor::{DOCTOR_EXAMPLES, DoctorArgs};
use crate::generate::{GENERATE_EXAMPLES, GenerateArgs};
use crate::latency::LatencyArgs;
use crate::lock::{LOCK_BUDGET, LOCK_EXAMPLES, LOCK_HELP, LOCK_VIA, LockArgs};
use crate::stat::{STAT_EXAMPLES, STAT_HELP, StatArgs};
use crate::values;
use crate::version::VersionArgs;
use crate::watch::{
    WATCH_BUDGET, WATCH_EXAMPLES, WATCH_HELP, WATCH_VIA, WATCH_VIA_LONG, WatchArgs,
};

/// The examples of `probe -h` and, at its beginning, `--help`.
macro_rules! probe_examples {
    () => {
        "\
Examples:
  tiptoe probe 'redis-server:*' -p 42        which functions are called most
  tiptoe probe malloc --by thread -- CMD     by each thread of a command
  tiptoe probe --latency dictFind -p 42      how long calls take"
    };
}
/// The order of a command's help: options last, because the end of a long text remains on the screen.
const ORDER: &str = "{about-with-newline}\n{usage-heading} {usage}{after-help}\n\n{all-args}";

/// Low-overhead tracing that reports its own cost
#[derive(Debug, Parser)]
#[command(name = "tiptoe", version, disable_version_flag = true)]
#[command(max_term_width = 100, arg_required_else_help = true)]
#[command(help_template = ORDER, after_help = EXAMPLES)]
pub struct Cli {
    #[command(flatten)]
    pub version: VersionArgs,
    #[command(subcommand)]
    pub command: Option<Command>,

    /// Colours: auto, always or never
    ///
    /// auto, the default, is on a terminal, unless NO_COLOR is set.
    #[arg(long, global = true, value_name = "WHEN", default_value_t = ColorChoice::Auto, display_order = 100,
          hide_possible_values = true, hide_default_value = true)]
    pub color: ColorChoice,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Count how often functions of a program run, or time them
    #[command(help_template = ORDER, after_help = probe_examples!(), after_long_help = PROBE_HELP)]
    #[command(mut_arg("all", |all| all.hide(true)))]
    Probe(Box<ProbeArgs>),
    /// Show which threads wait for locks, for how long, and where
    #[command(help_template = ORDER, after_help = LOCK_EXAMPLES, after_long_help = LOCK_HELP)]
    #[command(mut_arg("all", |all| all.help("With --kernel: trace the whole system")))]
    #[command(mut_arg("interval", |interval| interval.help("With --kernel: print rates at this interval")))]
    #[command(mut_arg("budget", |budget| budget.long_help(LOCK_BUDGET)))]
    #[command(mut_arg("via", |via| via.help(LOCK_VIA)))]
    Lock(Box<LockArgs>),
    /// Show which code and thread accesses a variable, and the values
    #[command(help_template = ORDER, after_help = WATCH_EXAMPLES, after_long_help = WATCH_HELP)]
    #[command(mut_args(|arg| match arg.get_id().as_str() {
        // Not implemented yet: an error says so, which reserves the names.
        "all" | "delay" | "interval" => arg.hide(true),
        "budget" => arg.long_help(WATCH_BUDGET),
        "via" => arg.help(WATCH_VIA).long_help(WATCH_VIA_LONG).value_parser(values::watch_via),
        // Addresses differ between processes.
        "pids" => arg.help("Watch in this running process"),
        "comm" => arg.help("Watch in the running process of this name"),
        _ => arg,
    }))]
    Watch(Box<WatchArgs>),
    /// Count perf's events of a command, of processes or of the system
    #[command(help_template = ORDER, after_help = STAT_EXAMPLES, after_long_help = STAT_HELP)]
    Stat(Box<StatArgs>),
    /// Show what this machine and user can do, and how to enable the rest
    #[command(help_template = ORDER, after_help = DOCTOR_EXAMPLES)]
    Doctor(DoctorArgs),
    /// Write what a bug report needs into a folder, and nothing secret
    #[command(help_template = ORDER, after_help = BUG_EXAMPLES)]
    Bug(BugArgs),
    /// Write man pages and shell completions, for packages
    #[command(help_template = ORDER, after_help = GENERATE_EXAMPLES)]
    Generate(GenerateArgs),
}

const EXAMPLES: &str = "\
Examples:
  tiptoe doctor                         what works on this machine
  tiptoe probe malloc -- ls             how often ls calls malloc
  tiptoe lock -p 42                     which locks process 42 waits for

`tiptoe COMMAND -h` lists the options of a command, and `tiptoe COMMAND --help` has everything.";

const PROBE_HELP: &str = concat!(
    probe_examples!(),
    "
  tiptoe probe read --filter 'arg2 > 4096' -p 42
                                             only calls with such arguments
  tiptoe probe --record dictFind -p 42       each call, as it happens
  tiptoe probe malloc --under handle -p 42   only below calls of `handle`

Events: [uprobe:|uretprobe:][BINARY:]FUNCTION[+OFFSET]
  dictFind                   a function of the program itself
  'libssl*:SSL_*'            globs, of libraries and of functions: '*' is any
                             text, '?' is one character, every other
                             character is itself
  libstdc++.so.6:std::*      demangled C++ and Rust names, with or without
                             parameters and [abi:…]; a ':' in a name needs no
                             quoting
  redis-server:0x4f2a0       a function without a name
  uretprobe:dictFind         the returns of a function, not its entries
In process, libraries that are loaded later are probed before their code runs. With -- CMD, a \
SPEC may name a library that is not loaded yet. With -p, it must match at once.

Times: with --latency, from entry to return
  --latency                  percentiles, total and self time (the total without
                             callees that are probed too); heat: the times from
                             short to long, a fuller block for more of them
  --latency --histograms     also a histogram of each event's times
  --latency --slower 1ms     only the calls that take longer
  --latency --by thread      also for each thread; --by comm: for each thread
                             name; --by arg0: for each value of the first
                             argument

Records: --record prints a line for each call: seconds since the start, thread, event, and its \
first two integer arguments (small numbers in decimal, others as 0x…): as many as the function \
has, if debug information says so, otherwise the registers rdi and rsi. With --json, each line \
is an object. Calls that are made faster than tiptoe reads them are counted as lost.

Calls are followed and recorded up to --budget; beyond it they are only counted.
`--budget off` follows all of them.

Values: --by arg0 … arg5 counts each value of an integer argument separately, and times it \
with --latency. The value is the one at the call's entry. A thread has room for 256 values of \
an event (64 with --latency); the others are counted as `(other values)`.

Below a function: --under FUNC counts only hits inside a call of FUNC on the same thread, at \
any depth; also in signal handlers, and in coroutines that FUNC switches to or is suspended \
in. Calls of FUNC that began before the trace are not seen. FUNC itself is always followed, \
whatever the budget (about 8 ns a call), and cannot be counted.

Cost: a hit adds 1 to 6 ns if the code is patched, 1 to 4 us if only a trap fits, and 0.2 to \
20 us if the kernel counts (it may have to single-step). Where only a trap fits, the kernel counts \
if that is cheaper on this machine. A kernel probe that exceeds --budget \
counts only in windows, so its count is a lower bound (>=). Code that is not probed runs \
unchanged. Every report ends with what the tracing cost.

Ctrl-C, SIGTERM and SIGHUP end the trace; the last two are passed on to CMD. While tiptoe \
attaches to processes they break that off, and what is attached is reported.

Exit status: with -- CMD, that of CMD (128+N if signal N ended it), else 0; 2 if tiptoe itself \
failed; 128+N if signal N ended tiptoe."
);

/// `tiptoe probe`.
#[derive(Debug, Args)]
pub struct ProbeArgs {
    /// Events to count; quote globs
    #[arg(value_name = "SPEC", required = true)]
    pub specs: Vec<String>,

    /// Print each call: time, thread, two arguments
    #[arg(long, conflicts_with = "latency")]
    pub record: bool,

    /// Count only hits whose arguments match
    ///
    /// Such as 'arg1 > 4096 && arg0:u32 == 3'.
    #[arg(long, value_name = "EXPR")]
    pub filter: Option<Filter>,

    /// Split by thread, comm, arg0 … arg5 or scope
    ///
    /// thread: each thread. comm: all threads of one name together. arg0 to arg5: each value of that argument; arg0 is
    /// the first. scope: each scope that the program enters (tiptoe-scope, tiptoe.h). With --latency each part has its
    /// times.
    #[arg(long, value_name = "WHAT", value_enum, hide_possible_values = true)]
    pub by: Option<ByWord>,

    #[command(flatten)]
    pub timing: LatencyArgs,

    /// Use the agent even under seccomp or small limits
    ///
    /// By default the kernel counts in such a process.
    #[arg(long)]
    pub force: bool,

    /// Remove the probes and insert them again N times: a test of the patcher
    #[arg(long, value_name = "N", hide = true)]
    pub toggles: Option<u64>,

    #[command(flatten)]
    pub common: Common,
}

/// The words of `probe --by`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ByWord {
    /// Each thread
    Thread,
    /// All threads of one name together
    Comm,
    /// Each value of the first argument
    Arg0,
    /// Each value of the second argument
    Arg1,
    /// Each value of the third argument
    Arg2,
    /// Each value of the fourth argument
    Arg3,
    /// Each value of the fifth argument
    Arg4,
    /// Each value of the sixth argument
    Arg5,
    /// Each scope that the program enters (tiptoe-scope, tiptoe.h)
    Scope,
}

/// Options that mean the same for all instruments.
#[derive(Debug, Args)]
pub struct Common {
    /// Trace these running processes
    #[arg(short, long = "pid", value_name = "PID", value_delimiter = ',',
          value_parser = values::pid, conflicts_with_all = ["comm", "cmd"])]
    pub pids: Vec<u32>,

    /// Trace the running processes of this name
    #[arg(long, value_name = "NAME", conflicts_with = "cmd")]
    pub comm: Option<String>,

    /// Stop after this time: 2, 1.5s, 500ms, 3m
    ///
    /// CMD continues, and the report is printed when CMD ends.
    #[arg(long, value_name = "TIME", value_parser = values::time, allow_hyphen_values = true)]
    pub duration: Option<Duration>,

    /// Wait this long before counting
    #[arg(long, value_name = "TIME", value_parser = values::time, allow_hyphen_values = true)]
    pub delay: Option<Duration>,

    /// Print rates at this interval, one line each time
    ///
    /// With --json each line is an object with counts, as in the report's `intervals`.
    #[arg(long, value_name = "TIME", value_parser = values::time, allow_hyphen_values = true)]
    pub interval: Option<Duration>,

    /// Show this many rows; 0 shows all [default: 20]
    ///
    /// On a terminal the default is as many as it has room for, between 3 and 20. Of histograms, 10 are drawn by default.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub top: Option<usize>,

    /// Print all notes, even many similar ones
    ///
    /// Also how the probes of traps were looked up.
    #[arg(short = 'v', long = "verbose")]
    pub all_notes: bool,

    /// Print the report as one line of JSON
    #[arg(long)]
    pub json: bool,

    /// Write report and notes to a file; `-` is stdout
    ///
    /// By default the report goes to stdout, with -- CMD to stderr.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Write `ready` to this descriptor at the start
    ///
    /// When counting has begun tiptoe writes the line `ready`, then closes the descriptor.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(3..))]
    pub ready_fd: Option<i32>,

    /// What counts: agent, kernel or auto
    ///
    /// agent: code in the target. kernel: the kernel. auto: the agent where it can, else the kernel; where
    /// the agent would need a trap, the cheaper of the two.
    #[arg(long, value_name = "WHAT", default_value_t = Via::Auto, value_parser = values::via)]
    pub via: Via,

    /// Limit of the cost: 1%, 0.5 or off [default: 1%]
    ///
    /// The share of the target's CPU time that tracing may take. When it is used up, calls are only counted, and the
    /// kernel's probes are closed for part of the time. A trap that is hit more than 10,000 times a second is disabled.
    /// off: no limit.
    #[arg(long, value_name = "PERCENT|off", value_parser = values::budget, allow_hyphen_values = true)]
    pub budget: Option<Budget>,

    /// Trace the whole system
    #[arg(short = 'a', long = "all", conflicts_with_all = ["pids", "comm"])]
    pub all: bool,

    /// Start this command and trace it
    #[arg(last = true, value_name = "CMD", id = "cmd")]
    pub command: Vec<OsString>,
}

impl Common {
    pub fn limit(&self) -> Budget {
        self.budget.unwrap_or(Budget::Percent(1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<ProbeArgs, clap::Error> {
        let words = ["tiptoe", "probe"]
            .into_iter()
            .chain(line.split_whitespace());
        Cli::try_parse_from(words).map(|cli| match cli.command {
            Some(Command::Probe(args)) => *args,
            other => panic!("not a probe: {other:?}"),
        })
    }

    #[test]
    fn clap_accepts_the_definition() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    /// Regression: a row of a help table was broken at the terminal's edge.
    #[test]
    fn rows_of_tables_fit_eighty_columns() {
        use clap::CommandFactory;
        let cli = Cli::command();
        for command in cli.get_subcommands().chain([&cli]) {
            let texts = [command.get_after_help(), command.get_after_long_help()];
            for text in texts.into_iter().flatten().map(ToString::to_string) {
                let is_row = |line: &&str| line.starts_with(' ');
                let wide = text
                    .lines()
                    .filter(is_row)
                    .find(|row| row.chars().count() > 80);
                assert_eq!(wide, None, "{}", command.get_name());
            }
        }
    }

    #[test]
    fn targets_are_parsed_and_defaults_filled_in() {
        let args = parse("f g -p 1,2 -p 3").unwrap();
        assert_eq!(
            (args.specs, args.common.pids.clone()),
            (vec!["f".into(), "g".into()], vec![1, 2, 3])
        );
        assert_eq!(
            (args.common.via, args.common.limit()),
            (Via::Auto, Budget::Percent(1.0))
        );
        let args = parse("f --json -- ls -p --json").unwrap();
        assert_eq!(args.common.command, ["ls", "-p", "--json"]);
        assert!(args.common.json && args.common.pids.is_empty());
    }

    #[test]
    fn values_of_options_are_parsed() {
        let args =
            parse("f -p 1 --duration 500ms --interval 2 --budget off --via kernel --by comm");
        let args = args.unwrap();
        assert_eq!(args.common.duration, Some(Duration::from_millis(500)));
        assert_eq!(args.common.interval, Some(Duration::from_secs(2)));
        assert_eq!(
            (args.common.limit(), args.common.via),
            (Budget::Off, Via::Kernel)
        );
        assert_eq!(args.by, Some(ByWord::Comm));
        let words = ["tiptoe", "probe", "f", "-p", "1", "--filter", "arg0 > 3"];
        assert!(Cli::try_parse_from(words).is_ok());
    }

    #[test]
    fn options_that_time_calls_are_parsed() {
        let args = parse("f -p 1 --latency --slower 500us --under g --by arg0 --budget 0.5");
        let args = args.unwrap();
        assert!(args.timing.latency);
        assert_eq!(args.timing.slower, Some(500_000));
        assert_eq!(args.timing.under.as_deref(), Some("g"));
        assert_eq!(args.by, Some(ByWord::Arg0));
        assert_eq!(args.common.budget, Some(Budget::Percent(0.5)));
    }

    #[test]
    fn bad_command_lines_are_refused() {
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
            "f -p 1 --count",
            "f -p 1 --latency --slower 1",
            "f -p 1 --latency --slower 0ms",
            "f -p 1 --interval 0",
            "f -p 1 --nonsense",
        ] {
            assert!(parse(line).is_err(), "{line:?}");
        }
    }
}
