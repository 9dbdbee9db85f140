//! `tiptoe-dev plan`: predicts how accurate a set of counters would be, without opening a counter.

mod cgroups;
mod events;
mod print;
mod reading;
mod rows;
mod simulate;
mod trace;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::failure::{Failure, NotTime};
use crate::print as print_report;

pub const PLAN_HELP: &str = "\
Nothing is traced or counted. The schedule of the events is simulated, for cgroups that are \
given by name or number and need not exist.
  tiptoe-dev plan -e cycles,instructions,cache-misses --for-each-cgroup web,db -a
  tiptoe-dev plan -e '{cycles,instructions},branch-misses:D' --for-each-cgroup 200
  tiptoe-dev plan -e cycles,cs --for-each-cgroup a,a/b --trace switches.txt

Events, by perf's names: hardware events, `rNNN` and `cpu/…/` need one of the CPU's counters \
(--slots); software events and tracepoints do not. {…} is a group, whose events count together \
or not at all; :D pins an event, which then always counts or is in error.

counted: the share of its possible time that an event counted, by which its count is scaled. \
least: this share in the cgroup where it is smallest. error: how far scaled counts are off if \
rates vary by half from switch to switch, as the median over cgroups; worst: the largest.

Cost: adding an event to the CPU's counters, or deleting it, takes 80 ns (--op-ns; measured \
for software events in a virtual machine; hardware counters take longer). Two ways to switch \
from one cgroup to another are compared: all events out and the next cgroup's in, as the \
kernel does, and only what changes. blind: the share of time in which an event of the whole \
system was out because of that; no count shows it.

The third way is that of `tiptoe stat --for-each-cgroup`: each CPU has one set of events, \
which stays where it is at switches. It is read there, and charged to the cgroup that ran. So \
only few events share the counters, however many cgroups there are. This takes 50 ns a switch \
(--charge-ns) and 60 ns for each event that is read (--read-ns), as `tiptoe-dev bench cgroup` \
measured in a virtual machine. Time, switches, faults and migrations are not read, because the \
kernel keeps them for each task: without other events, switches take no longer. Switches \
between tasks of one cgroup are not simulated; if events are read, these take 30 to 50 ns too.

All of this is estimated, not measured: other load and caches are left out.";

/// The most simulated switches, so that a plan takes at most some minutes.
const MOST_SWITCHES: f64 = 1e8;

/// `tiptoe-dev plan`.
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// Events, by perf's names; more than one, {groups} and :modifiers
    #[arg(short = 'e', long = "event", value_name = "EVENTS", required = true)]
    pub events: Vec<String>,

    /// Count each event for each of these cgroups, or for N made-up ones
    #[arg(long, value_name = "NAMES|N")]
    pub for_each_cgroup: Option<String>,

    /// Also count each event for the whole system; without cgroups, this is always done
    #[arg(short = 'a', long = "all")]
    pub all: bool,

    /// Counters of a CPU
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub slots: u32,

    /// CPUs [default: this machine's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub cpus: Option<u32>,

    /// How many times a second each CPU switches to another cgroup
    #[arg(long, value_name = "N", default_value_t = 5000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub switches: u32,

    /// Simulate for this long [default: 1s, or as long as the trace is]
    #[arg(long, value_name = "TIME", value_parser = time, allow_negative_numbers = true)]
    pub time: Option<Duration>,

    /// The length of a turn if there are more events than counters
    #[arg(long, value_name = "TIME", default_value = "4ms", value_parser = time, allow_negative_numbers = true)]
    pub turn: Duration,

    /// The time to add an event to the CPU's counters, or to delete it
    #[arg(long, value_name = "NS", default_value_t = 80, value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    pub op_ns: u32,

    /// The time that `tiptoe stat` takes at a switch from one cgroup to another
    #[arg(long, value_name = "NS", default_value_t = 50, value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    pub charge_ns: u32,

    /// The time for each event that it reads at the switch
    #[arg(long, value_name = "NS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    pub read_ns: u32,

    /// Take switches from this file, not made-up ones; each line is `SECONDS CPU CGROUP`
    #[arg(long, value_name = "FILE", conflicts_with_all = ["switches", "cpus"])]
    pub trace: Option<PathBuf>,

    /// The seed of the made-up switches
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Print the report as one line of JSON
    #[arg(long)]
    pub json: bool,
}

pub fn run(args: &PlanArgs) -> Result<(), Failure> {
    let groups = events::parse(&args.events)?;
    let mut cgroups = cgroups::Cgroups::named(args.for_each_cgroup.as_deref())?;
    let trace = args.trace.as_deref();
    let trace = trace.map(|path| trace::read(path, &mut cgroups));
    let cpus = args.cpus.unwrap_or_else(simulate::cpus);
    let time = args.time.unwrap_or(Duration::from_secs(1));
    let switches = f64::from(cpus) * f64::from(args.switches) * time.as_secs_f64();
    if trace.is_none() && switches > MOST_SWITCHES {
        return Err(Failure::ManySwitches(switches));
    }
    let setting = simulate::Setting {
        groups: &groups,
        cgroups: &cgroups,
        is_of_system: args.all || args.for_each_cgroup.is_none(),
        slots: args.slots,
        turn_ns: args.turn.as_nanos() as u64,
        operation_ns: u64::from(args.op_ns),
        charge_ns: u64::from(args.charge_ns),
        read_ns: u64::from(args.read_ns),
        seed: args.seed,
    };
    let report = match trace.transpose()? {
        Some(trace) => setting.recorded(&trace, args.time)?,
        None => setting.made_up(cpus, args.switches, time)?,
    };
    let text = if args.json {
        print::json(&report)?
    } else {
        tiptoe_report::printable_lines(&print::text(&report))
    };
    print_report(&text)
}

fn time(text: &str) -> Result<Duration, NotTime> {
    tiptoe_event::time(text).ok_or(NotTime)
}
