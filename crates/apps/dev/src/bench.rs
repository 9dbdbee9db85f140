use tiptoe_dev::{Breakpoints, Enable, Options, Queue, Stress, Table, Thread, up_to};
use tiptoe_image::AGENT;

use crate::args::{BenchArgs, BenchCommand, BreakpointBench};
use crate::failure::Failure;
use crate::print;

pub fn run(args: &BenchArgs) -> Result<(), Failure> {
    tiptoe_dev::clean_up_on_signals().map_err(Failure::NoSignals)?;
    let printed = match (&args.own, &args.name) {
        (Some(BenchCommand::Breakpoint(bench)), _) => printed(
            &tiptoe_dev::run_breakpoints(&breakpoint(bench))?,
            is_json(args),
        )?,
        (None, Some(name)) => printed(&tiptoe_dev::run(name, &options(args))?, is_json(args))?,
        (None, None) => list(),
    };
    print(&printed)
}

fn is_json(args: &BenchArgs) -> bool {
    match &args.own {
        None => args.json,
        Some(BenchCommand::Breakpoint(bench)) => match bench {
            BreakpointBench::Stress(args) => args.json,
            BreakpointBench::Queue(args) => args.json,
            BreakpointBench::Thread(args) => args.json,
            BreakpointBench::Enable(args) => args.json,
        },
    }
}

fn printed(table: &Table, is_json: bool) -> Result<String, Failure> {
    if !is_json {
        return Ok(table.to_string());
    }
    let json = serde_json::to_string(table);
    let json = json.map_err(|error| Failure::NoJson("rows have", error))?;
    Ok(json + "\n")
}

fn breakpoint(bench: &BreakpointBench) -> Breakpoints {
    match bench {
        BreakpointBench::Stress(args) => {
            let usual = Options::new(AGENT);
            let threads = args.threads.unwrap_or(usual.most_threads());
            let stress = Stress::new(usize::from(args.rounds), args.ms, threads);
            let stress = Stress {
                cpu_targets: args.cpu_targets,
                slots: args.slots,
                cpus: args.cpus.unwrap_or(stress.cpus),
                ..stress
            };
            Breakpoints::Stress(stress)
        }
        BreakpointBench::Queue(args) => {
            let queue = Queue {
                cpus: args.cpus,
                cpu_targets: args.cpu_targets,
                slots: args.slots,
                work_ns: args.work_ns,
                line_ns: args.line_ns.map(f64::from),
                rounds: usize::from(args.rounds),
                ms: args.ms,
            };
            Breakpoints::Queue(queue)
        }
        BreakpointBench::Thread(args) => {
            let thread = Thread {
                repeat: args.repeat,
                breakpoints: args.breakpoints,
                parallel: args.parallel,
                threads: args.threads,
                rounds: usize::from(args.rounds),
            };
            Breakpoints::Thread(thread)
        }
        BreakpointBench::Enable(args) => {
            let enable = Enable {
                repeat: args.repeat,
                passive: args.passive,
                active: args.active,
                rounds: usize::from(args.rounds),
            };
            Breakpoints::Enable(enable)
        }
    }
}

fn options(args: &BenchArgs) -> Options {
    let usual = Options::new(AGENT);
    Options {
        rounds: args.rounds.map_or(usual.rounds, usize::from),
        pairs: args.rounds.map_or(usual.pairs, usize::from),
        ms: args.ms.unwrap_or(usual.ms),
        threads: match args.threads[..] {
            [] => usual.threads,
            [most] => up_to(most),
            _ => {
                let mut threads = args.threads.clone();
                threads.sort_unstable();
                threads
            }
        },
        ..usual
    }
}

fn list() -> String {
    let benches = tiptoe_dev::list().iter();
    benches
        .map(|bench| format!("{:<10}  {}\n", bench.name, bench.about))
        .collect()
}
