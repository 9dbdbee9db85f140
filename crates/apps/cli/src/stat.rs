//! `tiptoe stat`: counts events by perf's names.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use tiptoe_collector::{CounterOptions, Request, RequestTarget};

use crate::counters;
use crate::failure::{Failure, TargetOf};
use crate::{instrument, processes, target_names, values};

mod report;
mod run;
mod scopes;

use run::StatRun;

pub const STAT_EXAMPLES: &str = "\
Examples:
  tiptoe stat CMD                            the usual events of a command
  tiptoe stat -e page-faults,cs -p 42        of a process and its children
  tiptoe stat -a -I 1000                     of the whole system, each second";

pub const STAT_HELP: &str = "\
Examples:
  tiptoe stat CMD                            the usual events of a command
  tiptoe stat -e page-faults,cs -p 42        of a process and its children
  tiptoe stat -a -I 1000                     of the whole system, each second
  tiptoe stat -a -e kmem:kmalloc -- CMD      of the system while CMD runs
  tiptoe stat -r 5 -x, -- CMD                the mean of five runs, as fields
  tiptoe stat --for-each-cgroup 'a/*' -I 1000   of the system and each cgroup
  tiptoe stat --by scope -e cs -p 42         of each scope that a program enters

Counts as `perf stat` does, and reports what the counting cost.

Events, as in `perf list`:
  cycles instructions branches cache-misses …   the CPU's counters
  rNNN                        a raw event number of the CPU
  pmu/event/ pmu/term=…,…/    as /sys/bus/event_source/devices/ names them
  task-clock page-faults context-switches …     the kernel's own
  group:name                  tracepoints
{A,B} is a group, whose events count together or not at all. Modifiers follow ':', for an \
event or a group: u user space, k kernel, h hypervisor, G guests, H the host, I not idle, D \
pinned (always has its counter, or is not counted), e alone on the counters.

Events that the machine does not have are <not supported>; the others are counted. Events that \
never had a turn are <not counted>. If there are more events than counters, the kernel lets \
them take turns: counts are then scaled, and followed by the share of the time that they \
counted.

For processes and commands, task-clock, context-switches, cpu-migrations and faults are read \
from what the kernel keeps of each task, so counting them costs nothing at task switches. With \
a modifier, perf's events count.

Cgroups (of version 2) are given by their paths below the mount point ('/' is the root), by \
the full paths of their folders, or by patterns, in which '*' is any text and '?' is one \
character. Cgroups that are created later are counted too. What is in a cgroup also counts for \
its ancestors. The kernel keeps time, switches, faults and migrations of each task: tiptoe \
reads them from the tasks, so nothing runs at switches. All other events, cgroup-switches and \
--per-cpu are counted at switches; events are read when a CPU changes to another cgroup. No \
event is added or removed there, however many cgroups there are. The counts of the system are \
the sums. Without BPF (root, or cap_bpf and cap_perfmon), the kernel's own cgroup events count \
(cap_perfmon); otherwise the cgroups' files are read.

Cgroups are printed in the order of their counts of the first event, scopes in that of their CPU \
time, the largest first; --top N prints N of them, and the others as their sum, which leaves \
out cgroups inside printed ones. Events have the order of -e. With -I the cgroups with the most \
so far are printed, in the order of NAMES, later ones last. The forms for scripts have all \
cgroups and scopes. The table has all cgroups, too, unless a terminal or --top limits it.

Scopes are labels that a program puts on what its threads do, with the crate tiptoe-scope or \
tiptoe.h; one within another is printed as outer/inner. An agent in the program records how \
often each is entered and for how long. BPF programs (root, or cap_bpf and cap_perfmon) \
subtract the time in which its threads did not run, and charge each event to the scope in \
which it happens: only events of the kernel's own and tracepoints, eight at most. Counts of an \
inner scope are not part of the outer scope's. With -I, the scopes are printed in which a \
thread was during the interval. Lines of --csv: seconds,scope,event,value,unit,state; each scope \
has the events `entries`, `cpu-time` and `wall-time` besides those of -e.

Lines of -x: [seconds,][CPU,]value,unit,event,[cgroup,][spread,]ns-counted,percent-counted, \
metric,metric-unit; lines that are not data begin with '#'. --csv prints a line of names, \
clocks in ns, and a column with `counted`, `not counted` or `not supported`. Notes and the cost \
go to stderr as comments, with -o to the end of the report.

Cost: estimated. At each switch between tasks the events of a task are removed and added. \
That, and what a tracepoint costs, is measured on this machine after the counting, and \
multiplied by how often it happened. Events of whole CPUs (-a) are neither removed nor added \
at switches. The work for cgroups is timed as it runs.

Ctrl-C, SIGTERM and SIGHUP end the counting; the last two are passed on to CMD.

Exit status: with -- CMD, that of CMD (128+N if signal N ended it), else 0; 2 if tiptoe itself \
failed, or nothing can be counted; 128+N if signal N ended tiptoe.

Needs root or cap_perfmon for -a, for other users' processes, and for what happens in the \
kernel, if /proc/sys/kernel/perf_event_paranoid says so. Tracepoints need a readable tracefs.";

const DEFAULT: &str =
    "context-switches,cpu-migrations,page-faults,cycles,instructions,branches,branch-misses";

/// `tiptoe stat`.
#[derive(Debug, Args)]
pub struct StatArgs {
    /// Events, by perf's names, such as cs,page-faults
    ///
    /// Also {groups} and :modifiers. May be given more than once.
    #[arg(short = 'e', long = "event", value_name = "EVENTS")]
    pub events: Vec<String>,

    /// Count the whole system
    ///
    /// With -- CMD, while CMD runs.
    #[arg(short = 'a', long = "all", conflicts_with = "pids")]
    pub all: bool,

    /// Count the system and each of these cgroups
    ///
    /// By names or patterns. With -- CMD, while CMD runs.
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        conflicts_with = "pids"
    )]
    pub for_each_cgroup: Vec<String>,

    /// Count these running processes
    ///
    /// With -- CMD, while CMD runs.
    #[arg(short, long = "pid", value_name = "PID", value_delimiter = ',',
          value_parser = values::pid_alone)]
    pub pids: Vec<u32>,

    /// scope: count for each scope of the program
    ///
    /// The scope's time and events. A program enters scopes with the crate tiptoe-scope or with tiptoe.h.
    #[arg(long, value_name = "WHAT", value_enum, hide_possible_values = true)]
    pub by: Option<StatByWord>,

    /// Print counts every MS milliseconds
    #[arg(short = 'I', value_name = "MS", conflicts_with_all = ["interval", "repeat"],
          value_parser = clap::value_parser!(u32).range(1..))]
    pub interval_ms: Option<u32>,

    /// Print counts at this interval: 1, 500ms, 2m
    #[arg(long, value_name = "TIME", value_parser = values::time, conflicts_with = "repeat",
          allow_hyphen_values = true)]
    pub interval: Option<Duration>,

    /// Print the counts of each CPU, with -a
    #[arg(long)]
    pub per_cpu: bool,

    /// Show this many cgroups or scopes [default: 20]
    ///
    /// The others are one sum. 0 shows all. Without a terminal the default is all cgroups.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub top: Option<usize>,

    /// Run CMD N times, and print means and spread
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub repeat: Option<u32>,

    /// Print fields with this separator, not a table
    #[arg(
        short = 'x',
        long = "field-separator",
        value_name = "SEP",
        conflicts_with = "json"
    )]
    pub separator: Option<String>,

    /// Print all notes, even many similar ones
    #[arg(short = 'v', long = "verbose")]
    pub all_notes: bool,

    /// Print the report as one line of JSON
    ///
    /// With -I, also one line after each interval.
    #[arg(long)]
    pub json: bool,

    /// Print a table for scripts
    ///
    /// CSV, with a line of names. The columns do not depend on the options.
    #[arg(long, conflicts_with_all = ["json", "separator"])]
    pub csv: bool,

    /// Stop after this time: 2, 1.5s, 500ms, 3m
    ///
    /// CMD continues, and the report is printed when CMD ends.
    #[arg(long, value_name = "TIME", value_parser = values::time, allow_hyphen_values = true)]
    pub duration: Option<Duration>,

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

    /// Start this command and count it
    #[arg(trailing_var_arg = true, value_name = "CMD", id = "cmd")]
    pub command: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StatByWord {
    /// Each scope that the program enters
    Scope,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Form {
    Text,
    Fields(String),
    Csv,
    Json,
}

pub fn run(args: StatArgs) -> Result<ExitCode, Failure> {
    if args.by.is_some() {
        return scopes::run(args);
    }
    let form = form(&args)?;
    let target = target(&args)?;
    let lists = lists(&args);
    let events = counters::events(&lists)?;
    let shape = match args.command.is_empty() {
        true => RequestTarget::System,
        false => RequestTarget::Command(args.command.clone()),
    };
    let named = target_names::one(&target);
    let is_beside = !args.command.is_empty() && target != shape;
    let (mut run, request) = StatRun::begin(&args, form, &shape, named, "hit")?;
    let request = Request {
        events,
        meanwhile: is_beside.then(|| args.command.clone()),
        target,
        counters: CounterOptions {
            cgroups: (!args.for_each_cgroup.is_empty()).then(|| args.for_each_cgroup.clone()),
            per_cpu: args.per_cpu,
            repeat: args.repeat.unwrap_or(1),
        },
        ..request
    };
    let outcome = tiptoe_collector::run(&request, &mut run.printer)?;
    Ok(run.finish(outcome))
}

fn target(args: &StatArgs) -> Result<RequestTarget, Failure> {
    let has_command = !args.command.is_empty();
    let of_all = args.all || !args.for_each_cgroup.is_empty();
    if args.per_cpu && !of_all {
        return Err(Failure::PerCpuOfProcess);
    }
    if args.repeat.is_some() && !has_command {
        return Err(Failure::RepeatOfNothing);
    }
    if let Some(program) = args.command.first().and_then(|word| word.to_str()) {
        processes::refuse_pid(program, "command", &args.pids)?;
    }
    if args.top.is_some() && args.for_each_cgroup.is_empty() {
        return Err(Failure::TopOfEvents);
    }
    match (of_all, args.pids.as_slice(), has_command) {
        (true, _, _) => Ok(RequestTarget::System),
        (false, [], true) => Ok(RequestTarget::Command(args.command.clone())),
        (false, [], false) => Err(Failure::NoTarget(TargetOf::Counters)),
        (false, pids, _) => Ok(RequestTarget::Pids(instrument::without_repeats(pids))),
    }
}

/// Returns the lists of events. Without `-e` the list begins with a clock: for the whole system the CPUs' clock,
/// otherwise the tasks' clock, which shows how long tasks or cgroups ran.
fn lists(args: &StatArgs) -> Vec<String> {
    if !args.events.is_empty() {
        return args.events.clone();
    }
    let clock = if args.all && args.for_each_cgroup.is_empty() {
        "cpu-clock"
    } else {
        "task-clock"
    };
    vec![format!("{clock},{DEFAULT}")]
}

fn form(args: &StatArgs) -> Result<Form, Failure> {
    match args.separator.as_deref() {
        Some("") => Err(Failure::NoSeparator),
        Some(separator) if separator.contains(['"', '\n']) => Err(Failure::BadSeparator),
        Some("\\t") => Ok(Form::Fields("\t".into())),
        Some(separator) => Ok(Form::Fields(separator.into())),
        None if args.json => Ok(Form::Json),
        None if args.csv => Ok(Form::Csv),
        None => Ok(Form::Text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser;

    fn parse(line: &str) -> Result<StatArgs, clap::Error> {
        let words = ["tiptoe", "stat"]
            .into_iter()
            .chain(line.split_whitespace());
        Cli::try_parse_from(words).map(|cli| match cli.command {
            Some(Command::Stat(args)) => *args,
            other => panic!("not stat: {other:?}"),
        })
    }

    #[test]
    fn targets_events_and_form_follow_from_the_options() {
        let command =
            |words: &[&str]| RequestTarget::Command(words.iter().map(OsString::from).collect());
        for (line, expected) in [
            ("-a", RequestTarget::System),
            ("-a -- ls", RequestTarget::System),
            ("-a sleep 1", RequestTarget::System),
            ("sleep 1", command(&["sleep", "1"])),
            ("-p 3,2,3", RequestTarget::Pids(vec![2, 3])),
            ("-p 2 -- sleep 1", RequestTarget::Pids(vec![2])),
            ("-r 3 -- ls", command(&["ls"])),
        ] {
            assert_eq!(target(&parse(line).unwrap()).unwrap(), expected, "{line}");
        }
        let args = parse("-e cs -e {cycles,faults}:u -x; -I 100 -- ls -a").unwrap();
        assert_eq!(args.events, ["cs", "{cycles,faults}:u"]);
        assert_eq!(form(&args).unwrap(), Form::Fields(";".into()));
        assert_eq!((args.interval_ms, args.all), (Some(100), false));
        for line in ["-e cs ls -a -e x", "-e cs -- ls -a -e x"] {
            let args = parse(line).unwrap();
            assert_eq!((args.events, args.all), (vec!["cs".to_owned()], false));
            assert_eq!(args.command, ["ls", "-a", "-e", "x"]);
        }
        assert!(lists(&parse("-a").unwrap())[0].starts_with("cpu-clock,"));
        assert!(lists(&parse("-- ls").unwrap())[0].starts_with("task-clock,"));
    }

    #[test]
    fn options_that_exclude_each_other_are_refused() {
        for line in [
            "-a -p 1",
            "-I 0 -a",
            "-I 5 -r 2 -- ls",
            "-x, --json -a",
            "--csv --json -a",
            "-r 0 -- ls",
            "-p 0",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
        for (line, said) in [
            ("", "no process to count"),
            ("--per-cpu -- ls", "--per-cpu without -a"),
            ("-r 2 -a", "-r without -- CMD"),
            ("--top 3 -a", "--top without --for-each-cgroup"),
            ("-e cylces -- ls", "no event 'cylces'"),
            ("-x \" -- ls", "-x: a quote"),
        ] {
            let failure = run(parse(line).unwrap()).expect_err(line);
            assert!(failure.to_string().contains(said), "{failure}");
        }
    }
}
