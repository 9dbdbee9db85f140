//! Checks of `probe`'s options.
//!
//! They must run before the command is started, so that a wrong option starts nothing.

use tiptoe_collector::Split;
use tiptoe_event::{Function, Kind, ProbeSpec, Spec, SpecFault, Via};

use super::args::{ByWord, LatencyArgs, ProbeArgs};
use crate::failure::Failure;

/// Fails if an option contradicts another or an event. Returns the function of `--under`.
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
        return Err(Failure::HistogramsUntimed);
    }
    if slower.is_some() && !latency {
        return Err(Failure::SlowerUntimed);
    }
    if let Some(option) = by_value(args).filter(|_| args.record) {
        return Err(Failure::WithRecord(option));
    }
    if let Some(option) = in_process(args).filter(|_| args.common.via == Via::Kernel) {
        return Err(Failure::WithViaKernel(option));
    }
    let under = under.as_deref().map(parse_under).transpose()?;
    let mut specs = probes.iter().map(|probe| &probe.spec);
    specs.try_for_each(|spec| check_spec(spec, args))?;
    Ok(under)
}

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

/// Parses the one function of `--under`, by name or offset.
fn parse_under(text: &str) -> Result<ProbeSpec<'_>, Failure> {
    let not_one = || Failure::NotOneGate(text.to_owned());
    let probe = ProbeSpec::parse(text).map_err(|error| match error.fault {
        SpecFault::NoSuchOption | SpecFault::NotAProbe(_) => not_one(),
        _ => Failure::BadGate {
            text: text.to_owned(),
            error,
        },
    })?;
    let plain = probe.spec.kind == Kind::Uprobe && probe.spec.offset == 0;
    match probe.spec.function {
        Function::Name(_) | Function::Offset(_) if plain => Ok(probe),
        _ => Err(not_one()),
    }
}

/// Fails if an option needs a function's entry or arguments, and the event has none.
fn check_spec(spec: &Spec, args: &ProbeArgs) -> Result<(), Failure> {
    let (text, entry) = (
        spec.to_string(),
        Spec::uprobe(spec.binary, spec.function).to_string(),
    );
    if args.timing.latency && (spec.kind != Kind::Uprobe || spec.offset != 0) {
        return Err(Failure::TimedInside { spec: text, entry });
    }
    let arguments = by_value(args)
        .or(args.record.then_some("--record"))
        .or(args.filter.map(|_| "--filter"));
    match arguments {
        Some(option) if spec.kind == Kind::Uretprobe => Err(Failure::OfReturn {
            spec: text,
            option,
            entry,
        }),
        _ => Ok(()),
    }
}

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
