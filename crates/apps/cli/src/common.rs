//! The options that instruments (subcommands) share.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use tiptoe_collector::Budget;
use tiptoe_event::Via;

use crate::values;

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

    /// Trace the program of this name that CMD starts
    ///
    /// For commands that start another program: env, make, a shell script, a version manager's shim; sudo, if tiptoe runs
    /// as root. NAME is that program's file name or path. The first process that runs it is traced, from before its code
    /// runs.
    #[arg(long, value_name = "NAME", requires = "cmd",
          conflicts_with_all = ["pids", "comm", "all"])]
    pub exec: Option<OsString>,

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
    /// On a terminal the default is the number of rows for which the terminal has room, between 3 and 20. By default at
    /// most 10 histograms are drawn.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub top: Option<usize>,

    /// Print all notes, even many similar ones
    ///
    /// The notes then also say how hits of traps found their probes.
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
    /// agent: code in the target. kernel: the kernel. auto: the agent if it can enter, otherwise the kernel. Where the
    /// agent would need a trap, the cheaper of the two.
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
