//! The command line, as clap's types. Doc comments of fields and variants are the help texts.

use clap::{Args, Parser, Subcommand};

use crate::plan::{PLAN_HELP, PlanArgs};

/// What tiptoe's makers measure and simulate
#[derive(Debug, Parser)]
#[command(name = "tiptoe-dev", version)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Measure what tiptoe's own parts cost, beside the alternatives
    Bench(BenchArgs),
    /// Predict how accurate a set of counters would be, and what it would cost
    #[command(after_help = PLAN_HELP)]
    Plan(PlanArgs),
}

/// `tiptoe-dev bench`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct BenchArgs {
    /// A bench with options of its own.
    #[command(subcommand)]
    pub own: Option<BenchCommand>,

    /// The bench to run; without a name, all are listed
    pub name: Option<String>,

    /// Print the rows as one line of JSON
    #[arg(long)]
    pub json: bool,

    /// Measure every case N times; the median is shown
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub rounds: Option<u16>,

    /// Run each single measurement for this long, in milliseconds
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub ms: Option<u32>,

    /// Run with 1, 2, 4 and so on up to N threads at once, or with each number of a list; each
    /// thread needs a CPU of its own
    #[arg(short = 't', long, value_name = "N[,N...]", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..=64))]
    pub threads: Vec<u32>,
}

/// Benches with options of their own.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Measure what accounting for debug registers costs
    #[command(subcommand)]
    Breakpoint(BreakpointBench),
}

/// `tiptoe-dev bench breakpoint`.
#[derive(Debug, Subcommand)]
pub enum BreakpointBench {
    /// Pairs of reserve and release: without accounting, with tiptoe's, and under one mutex
    Stress(StressArgs),
    /// Pairs of reserve and release on up to 256 CPUs, simulated from critical sections, locks and
    /// transfers between CPUs that are measured on this machine in the same run
    Queue(QueueArgs),
    /// Threads that are created and end, as in perf bench: alone, with each form of
    /// accounting, and with the kernel's breakpoints
    Thread(ThreadArgs),
    /// Disabling and enabling a kernel breakpoint, as in perf bench
    Enable(EnableArgs),
}

/// `tiptoe-dev bench breakpoint stress`.
#[derive(Debug, Args)]
pub struct StressArgs {
    /// Most threads [default: the machine's CPUs]
    #[arg(short = 't', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: Option<u32>,

    /// The percentage of pairs that reserve for a CPU [default: 0, 1 and 10]
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(0..=100))]
    pub cpu_targets: Option<u32>,

    /// Debug registers of a CPU
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=16))]
    pub slots: u32,

    /// CPUs in the accounting [default: the machine's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub cpus: Option<u32>,

    /// Run each single measurement for this long, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub ms: u32,

    /// Measure every case N times; the median is shown
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u16).range(1..))]
    pub rounds: u16,

    /// Print the rows as one line of JSON
    #[arg(long)]
    pub json: bool,
}

/// `tiptoe-dev bench breakpoint queue`.
#[derive(Debug, Args)]
pub struct QueueArgs {
    /// Most CPUs, with one thread on each
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub cpus: u32,

    /// The percentage of pairs that reserve for a CPU [default: 0, 1 and 10]
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(0..=100))]
    pub cpu_targets: Option<u32>,

    /// Debug registers of a CPU
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=16))]
    pub slots: u32,

    /// Other work of each thread before a pair, on average
    #[arg(long, value_name = "NS", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=100_000_000))]
    pub work_ns: u32,

    /// Time that a cache line takes from one CPU to another, to simulate another machine
    /// [default: measured]
    #[arg(long, value_name = "NS", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub line_ns: Option<u32>,

    /// Run each single measurement for this long, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub ms: u32,

    /// Measure everything N times; the median is used
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..))]
    pub rounds: u16,

    /// Print the rows as one line of JSON
    #[arg(long)]
    pub json: bool,
}

/// `tiptoe-dev bench breakpoint thread`.
#[derive(Debug, Args)]
pub struct ThreadArgs {
    /// Batches of threads, over all workers
    #[arg(short, long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub repeat: u32,

    /// Breakpoints of each thread
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4))]
    pub breakpoints: u32,

    /// Workers that create threads at the same time
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub parallel: u32,

    /// Threads of a batch
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: u32,

    /// Measure every case N times, alternating
    #[arg(long, value_name = "N", default_value_t = 31, value_parser = clap::value_parser!(u16).range(1..))]
    pub rounds: u16,

    /// Print the rows as one line of JSON
    #[arg(long)]
    pub json: bool,
}

/// `tiptoe-dev bench breakpoint enable`.
#[derive(Debug, Args)]
pub struct EnableArgs {
    /// How often the breakpoint is disabled and enabled
    #[arg(short, long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub repeat: u32,

    /// Threads that sleep during the measurement
    #[arg(short, long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1024))]
    pub passive: u32,

    /// Threads that run during the measurement
    #[arg(short, long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1024))]
    pub active: u32,

    /// Measure N times; the median is shown
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    pub rounds: u16,

    /// Print the rows as one line of JSON
    #[arg(long)]
    pub json: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clap_accepts_the_definition() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }
}
