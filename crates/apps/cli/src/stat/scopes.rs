//! `tiptoe stat --by scope`. It needs an agent (tiptoe's library in the program), because only an agent sees which
//! scopes (named parts of its work) the program enters.

use std::process::ExitCode;

use tiptoe_collector::{Request, RequestTarget};
use tiptoe_event::{Event, Via};

use super::{StatArgs, StatRun};
use crate::counters;
use crate::failure::{Failure, TargetOf};
use crate::instrument;
use crate::target_names;

const DEFAULT: &str = "context-switches,page-faults";

pub(super) fn run(args: StatArgs) -> Result<ExitCode, Failure> {
    check(&args)?;
    let form = super::form(&args)?;
    let target = match (args.pids.is_empty(), args.command.is_empty()) {
        (true, true) => return Err(Failure::NoTarget(TargetOf::Scopes)),
        (true, false) => RequestTarget::Command(args.command.clone()),
        (false, _) => RequestTarget::Pids(instrument::without_repeats(&args.pids)),
    };
    let events = match args.events.is_empty() {
        true => vec![DEFAULT.to_owned()],
        false => args.events.clone(),
    };
    let counted = counters::events(&events)?;
    let (mut run, request) =
        StatRun::begin(&args, form, &target, target_names::one(&target), "scope")?;
    let request = Request {
        events: counted.into_iter().chain([Event::Scopes]).collect(),
        via: Via::Agent,
        ..request
    };
    let outcome = tiptoe_collector::run(&request, &mut run.printer)?;
    Ok(run.finish(outcome))
}

fn check(args: &StatArgs) -> Result<(), Failure> {
    let others = [
        (args.all, "-a"),
        (!args.for_each_cgroup.is_empty(), "--for-each-cgroup"),
        (args.per_cpu, "--per-cpu"),
        (args.repeat.is_some(), "-r"),
        (args.separator.is_some(), "-x"),
        (
            !args.pids.is_empty() && !args.command.is_empty(),
            "-p together with -- CMD",
        ),
    ];
    instrument::given(others).map_or(Ok(()), |option| Err(Failure::WithByScope(option)))
}
