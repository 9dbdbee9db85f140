//! The options of calls that are followed from entry to return, and checks of `probe`'s options.
//!
//! The checks must run before the command is started, so that a wrong option starts nothing.

use clap::Args;
use tiptoe_collector::Split;
use tiptoe_event::{Function, Kind, ProbeSpec, ShellWord, Spec, SpecFault, Via};

use crate::args::{ByWord, ProbeArgs};
use crate::failure::Failure;
use crate::values;

/// The options that time calls.
#[derive(Debug, Args)]
pub struct LatencyArgs {
    /// Time calls from entry to return
    ///
    /// The report has percentiles, and a line of blocks from short to long.
    #[arg(long)]
    pub latency: bool,

    /// Draw each event's histogram above the tables
    #[arg(long)]
    pub histograms: bool,

    /// Time only calls that take longer: 1ms, 500us, 2s
    #[arg(long, value_name = "TIME", value_parser = values::slower_ns)]
    pub slower: Option<u64>,

    /// Count only hits inside a call of this function
    ///
    /// On the same thread, at any depth.
    #[arg(long, value_name = "FUNC")]
    pub under: Option<String>,
}

/// Fails if an option contradicts another one or an event. Returns the function of `--under`.
pub fn check<'a>(
    args: &'a ProbeArgs,
    probes: &[ProbeSpec<'_>],
) -> Result<Option<ProbeSpec<'a>>, Failure> {
    let LatencyArgs {
        latency,
        histograms,
        slower,
        under,
    } = &args.timing;
    if *histograms && !latency {
        return Err(
            Failure::new("--histograms without --latency: no call is timed")
                .hint("--latency --histograms draws the times of each event"),
        );
    }
    if slower.is_some() && !latency {
        return Err(Failure::new("--slower without --latency: no call is timed")
            .hint("--latency --slower 1ms times the calls that take longer than 1 ms"));
    }
    if let Some(option) = by_value(args).filter(|_| args.record) {
        let what = format!("{option} does not go with --record, which prints single calls");
        return Err(Failure::new(what).hint("leave out one of the two"));
    }
    if let Some(option) = in_process(args).filter(|_| args.common.via == Via::Kernel) {
        let what = format!("{option} does not go with --via kernel, which only counts");
        return Err(Failure::new(what).hint("--via agent or --via auto"));
    }
    let under = under.as_deref().map(parse_under).transpose()?;
    let mut specs = probes.iter().map(|probe| &probe.spec);
    specs.try_for_each(|spec| check_spec(spec, args))?;
    Ok(under)
}

/// Returns the first option that needs the agent, if one is given. The kernel's probes only count.
fn in_process(args: &ProbeArgs) -> Option<&'static str> {
    let options = [
        (args.timing.latency, "--latency"),
        (args.record, "--record"),
        (args.timing.under.is_some(), "--under"),
        (by_value(args).is_some(), by_value(args).unwrap_or_default()),
    ];
    let given = options.into_iter().find(|(given, _)| *given);
    given.map(|(_, option)| option)
}

/// Returns `--by argN` or `--by scope` if one of them is given.
fn by_value(args: &ProbeArgs) -> Option<&'static str> {
    const WORDS: [&str; 6] = [
        "--by arg0",
        "--by arg1",
        "--by arg2",
        "--by arg3",
        "--by arg4",
        "--by arg5",
    ];
    match args.by.map(by) {
        Some(Split::Argument(argument)) => WORDS.get(usize::from(argument)).copied(),
        Some(Split::Scope) => Some("--by scope"),
        _ => None,
    }
}

/// Parses a function of `--under`: one function, by its name or its offset.
fn parse_under(text: &str) -> Result<ProbeSpec<'_>, Failure> {
    let failure = |why: String| {
        let what = format!("--under '{}': {why}", text.escape_debug());
        Failure::new(what).hint("--under [BINARY:]FUNCTION, such as redis-server:serverCron")
    };
    let not_one = || failure("not one function".into());
    let probe = ProbeSpec::parse(text).map_err(|error| match error.fault {
        SpecFault::NoSuchOption | SpecFault::NotAProbe(_) => not_one(),
        _ => failure(error.to_string()),
    })?;
    let plain = probe.spec.kind == Kind::Uprobe && probe.spec.offset == 0;
    match probe.spec.function {
        Function::Name(_) | Function::Offset(_) if plain => Ok(probe),
        _ => Err(not_one()),
    }
}

/// Fails if an option needs the entry of a function, or arguments, and the event has none.
fn check_spec(spec: &Spec, args: &ProbeArgs) -> Result<(), Failure> {
    if args.timing.latency && (spec.kind != Kind::Uprobe || spec.offset != 0) {
        let what = format!("'{spec}' is not an entry, and --latency times from entry to return");
        let entry = Spec::uprobe(spec.binary, spec.function);
        return Err(Failure::new(what).hint(format!(
            "--latency {}",
            ShellWord(entry.to_string().as_bytes())
        )));
    }
    let arguments = by_value(args)
        .or(args.record.then_some("--record"))
        .or(args.filter.map(|_| "--filter"));
    match arguments {
        Some(option) if spec.kind == Kind::Uretprobe => {
            let what = match option {
                "--by scope" => format!("'{spec}' is a return, and {option} needs an entry"),
                // When a function returns, it may have overwritten the registers of its arguments.
                _ => format!("'{spec}' is a return, which has no arguments for {option}"),
            };
            let entry = Spec::uprobe(spec.binary, spec.function);
            Err(Failure::new(what).hint(format!("'{entry}' is the entry")))
        }
        _ => Ok(()),
    }
}

/// Returns whether counts are split by the values of an argument.
pub fn has_arguments(word: Option<ByWord>) -> bool {
    matches!(word.map(by), Some(Split::Argument(_)))
}

pub fn by(word: ByWord) -> Split {
    match word {
        ByWord::Thread => Split::Thread,
        ByWord::Comm => Split::Comm,
        ByWord::Arg0 => Split::Argument(0),
        ByWord::Arg1 => Split::Argument(1),
        ByWord::Arg2 => Split::Argument(2),
        ByWord::Arg3 => Split::Argument(3),
        ByWord::Arg4 => Split::Argument(4),
        ByWord::Arg5 => Split::Argument(5),
        ByWord::Scope => Split::Scope,
    }
}
