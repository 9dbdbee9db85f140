//! The command line, as clap's types. Doc comments of fields and variants are the help texts.

use clap::{ColorChoice, Parser, Subcommand};
use tiptoe_event::Via;

use crate::bug::{BUG_EXAMPLES, BugArgs};
use crate::doctor::{DOCTOR_EXAMPLES, DoctorArgs};
use crate::generate::{GENERATE_EXAMPLES, GenerateArgs};
use crate::lock::{LOCK_BUDGET, LOCK_EXAMPLES, LOCK_HELP, LOCK_VIA, LockArgs};
use crate::probe::args::{PROBE_EXAMPLES, PROBE_HELP, ProbeArgs};
use crate::stat::{STAT_EXAMPLES, STAT_HELP, StatArgs};
use crate::version::VersionArgs;
use crate::watch::{
    WATCH_BUDGET, WATCH_EXAMPLES, WATCH_HELP, WATCH_VIA, WATCH_VIA_LONG, WatchArgs,
};

/// The order of a command's help. Options are last, because the end of a long text remains on the screen.
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
    /// auto, the default, colours output to a terminal, unless NO_COLOR is set.
    #[arg(long, global = true, value_name = "WHEN", default_value_t = ColorChoice::Auto, display_order = 100,
          hide_possible_values = true, hide_default_value = true)]
    pub color: ColorChoice,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Count how often functions of a program run, or time them
    #[command(help_template = ORDER, after_help = PROBE_EXAMPLES, after_long_help = PROBE_HELP)]
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
        // `watch` does not implement these options, and refuses them. Their names are reserved.
        "all" | "delay" | "interval" => arg.hide(true),
        "budget" => arg.long_help(WATCH_BUDGET),
        "via" => arg.help(WATCH_VIA).long_help(WATCH_VIA_LONG).value_parser(str::parse::<Via>),
        // A watch takes one process, because addresses differ between processes.
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tiptoe_collector::Budget;

    use super::*;
    use crate::probe::args::ByWord;

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
        assert!(args.latency);
        assert_eq!(args.slower, Some(500_000));
        assert_eq!(args.under.as_deref(), Some("g"));
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
