//! `tiptoe-dev bench schedule`: simulates switches of cgroups under two policies. A switch deletes and adds all events
//! (`everything`), or only those of the cgroups left and entered (`changed`). Not every machine can measure how long an
//! operation on a CPU's counters (PMU) takes, so each of [`OPERATION_NS`] is simulated.

use std::time::Instant;

use tiptoe_schedule::simulate::{Cpu, GroupRequest, Machine, Outcome, Synthetic};
use tiptoe_schedule::{Label, Policy, Priority, Target, Tree};

use crate::error::Error;
use crate::options::Options;
use crate::table::{Table, TableRow};

const CPUS: u64 = 256;
const CGROUPS: u32 = 1000;
const PARENTS: u32 = 10;
const EVENTS: u32 = 20;
/// The counters of a CPU. The first number is enough for the events of a leaf cgroup, its parent and the system; the
/// second is not.
const SLOTS: [u32; 2] = [60, 4];
/// The simulated times of an operation on the PMU; the second is usual. A result's spread is half its range over them.
const OPERATION_NS: [u64; 3] = [40, 80, 160];
const POLICIES: [(Policy, &str); 2] = [
    (Policy::Everything, "everything"),
    (Policy::Changed, "changed"),
];
const MEAN_NS: u64 = 200_000;

pub(crate) fn run(options: &Options) -> Result<Table, Error> {
    let mut tree = Tree::new();
    let parents = (0..PARENTS).filter_map(|_| tree.create(Label::ROOT));
    let parents: Vec<Label> = parents.collect();
    let leaves = parents.iter().cycle().take((CGROUPS - PARENTS) as usize);
    let leaves: Vec<Label> = leaves.filter_map(|parent| tree.create(*parent)).collect();
    let groups = group_requests(parents.iter().chain(&leaves));
    // 10 simulated ms for each requested ms: by default, 400 switches of each CPU.
    let end_ns = u64::from(options.ms) * 10_000_000;
    let mut table_rows = Vec::new();
    for slots in SLOTS {
        let mut seen = POLICIES.map(|_| OPERATION_NS.map(|_| PolicyResults::default()));
        for (nth, operation_ns) in OPERATION_NS.into_iter().enumerate() {
            let machine = Machine {
                tree: &tree,
                groups: &groups,
                slots,
                turn_ns: 4_000_000,
                operation_ns,
            };
            let cpus = POLICIES.map(|(policy, _)| machine.cpu(policy));
            for at in 0..CPUS {
                for (cpu, seen) in cpus.iter().zip(&mut seen) {
                    let cpu = cpu.as_ref().map_err(|_| Error::Numbers)?;
                    let switches = Synthetic::new(&leaves, MEAN_NS, at);
                    seen[nth].run(cpu.clone(), switches, end_ns, at);
                }
            }
        }
        for ((_, policy), seen) in POLICIES.iter().zip(&seen) {
            table_rows.extend(rows(&format!("{policy}, {slots} slots"), seen));
        }
    }
    let about = format!(
        "{CPUS} CPUs, {CGROUPS} cgroups of which {PARENTS} are parents of the others, {EVENTS} events for each and for the system, a switch each {} us",
        MEAN_NS / 1000
    );
    Ok(Table {
        bench: "schedule".into(),
        rows: table_rows,
        notes: vec![
            about,
            format!(
                "a simulation; assumed: an operation on the PMU lasts {OPERATION_NS:?} ns, a turn 4 ms; medians of these, ± half \
                 their range, and for the simulator's own speed ± half the distance between the quartiles"
            ),
        ],
        ..Table::default()
    })
}

/// Makes a group of each event, as `perf stat --for-each-cgroup` does.
fn group_requests<'a>(labels: impl Iterator<Item = &'a Label>) -> Vec<GroupRequest> {
    let request = |target| GroupRequest {
        target,
        priority: Priority::Flexible,
        events: 1,
        needs_slots: true,
    };
    let of_cgroups = labels.map(|label| Target::Label(*label));
    let targets = [Target::System].into_iter().chain(of_cgroups);
    targets
        .flat_map(|target| (0..EVENTS).map(move |_| request(target)))
        .collect()
}

#[derive(Default)]
struct PolicyResults {
    all: Outcome,
    /// Millions of switches per second of each CPU.
    switches_per_s: Vec<f64>,
}

impl PolicyResults {
    fn run(&mut self, mut cpu: Cpu<'_>, switches: Synthetic<'_>, end_ns: u64, seed: u64) {
        let begin = Instant::now();
        cpu.run(switches, end_ns, seed);
        let seconds = begin.elapsed().as_secs_f64();
        let outcome = cpu.outcome();
        self.switches_per_s
            .push(outcome.switches as f64 / seconds / 1e6);
        self.all += &outcome;
    }

    /// Returns the PMU operations per switch, and the percentages of time in which the system's events are removed at
    /// switches, and in which they have no slot.
    fn results(&self) -> [f64; 3] {
        let switches = self.all.switches.max(1) as f64;
        let system = self.all.groups.iter().take(EVENTS as usize);
        let (blind, missed, enabled) = system.fold((0, 0, 0), |(blind, missed, enabled), group| {
            (
                blind + group.blind_ns,
                missed + group.times.missed_ns(),
                enabled + group.times.enabled_ns,
            )
        });
        let percent = |part: u64| 100.0 * part as f64 / enabled.max(1) as f64;
        [
            self.all.operations() as f64 / switches,
            percent(blind),
            percent(missed),
        ]
    }
}

fn rows(case: &str, all: &[PolicyResults]) -> [TableRow; 4] {
    let row = |nth: usize, unit| {
        let results = all.iter().map(|one| one.results()[nth]);
        TableRow::of_range(case, &results.collect::<Vec<f64>>(), unit)
    };
    let speeds = all
        .iter()
        .flat_map(|one| one.switches_per_s.iter().copied());
    [
        row(0, "PMU operations a switch"),
        row(
            1,
            "% of the time the system's events are out because of switches",
        ),
        row(2, "% of the time they have no slot"),
        TableRow::new(
            case,
            &speeds.collect::<Vec<f64>>(),
            "million switches simulated a second",
        ),
    ]
}
