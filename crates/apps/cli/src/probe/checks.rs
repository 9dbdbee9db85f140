//! Checks of `probe`'s options. They must run before the command is started, so that a wrong option starts nothing.

use tiptoe_collector::Split;
use tiptoe_event::{Function, Kind, ProbeSpec, Spec, SpecFault, Via};

use super::args::{ByWord, ProbeArgs};
use crate::failure::Failure;
use crate::instrument;

/// Fails if an option contradicts another or an event. Returns the function of `--under`.
pub fn check<'a>(
    args: &'a ProbeArgs,
    probes: &[ProbeSpec<'_>],
) -> Result<Option<ProbeSpec<'a>>, Failure> {
    if args.histograms && !args.latency {
        return Err(Failure::HistogramsUntimed);
    }
    if args.slower.is_some() && !args.latency {
        return Err(Failure::SlowerUntimed);
    }
    if let Some(option) = by_value(args).filter(|_| args.record) {
        return Err(Failure::WithRecord(option));
    }
    if let Some(option) = in_process(args).filter(|_| args.common.via == Via::Kernel) {
        return Err(Failure::WithViaKernel(option));
    }
    let under = args.under.as_deref().map(parse_under).transpose()?;
    let mut specs = probes.iter().map(|probe| &probe.spec);
    specs.try_for_each(|spec| check_spec(spec, args))?;
    Ok(under)
}

fn in_process(args: &ProbeArgs) -> Option<&'static str> {
    let given = instrument::given([
        (args.latency, "--latency"),
        (args.record, "--record"),
        (args.under.is_some(), "--under"),
    ]);
    given.or_else(|| by_value(args))
}

fn by_value(args: &ProbeArgs) -> Option<&'static str> {
    split_and_option(args.by?).1
}

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
    if args.latency && (spec.kind != Kind::Uprobe || spec.offset != 0) {
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
    split_and_option(word).0
}

/// Returns the split, and the option's text if the split needs tiptoe's library in the target and a function's
/// entry.
fn split_and_option(word: ByWord) -> (Split, Option<&'static str>) {
    let argument = |number, option| (Split::Argument(number), Some(option));
    match word {
        ByWord::Thread => (Split::Thread, None),
        ByWord::Comm => (Split::Comm, None),
        ByWord::Arg0 => argument(0, "--by arg0"),
        ByWord::Arg1 => argument(1, "--by arg1"),
        ByWord::Arg2 => argument(2, "--by arg2"),
        ByWord::Arg3 => argument(3, "--by arg3"),
        ByWord::Arg4 => argument(4, "--by arg4"),
        ByWord::Arg5 => argument(5, "--by arg5"),
        ByWord::Scope => (Split::Scope, Some("--by scope")),
    }
}
