//! `tiptoe lock --kernel`: waits for the kernel's own locks.

use std::process::ExitCode;

use tiptoe_collector::{LockBy, LockRequest, RequestTarget, WaitSelection};
use tiptoe_event::Via;

use crate::args::Common;
use crate::failure::Failure;
use crate::lock::{LockArgs, LockByWord};
use crate::probe::{self, InstrumentRun, ReportExtras};

const NO_TARGET_HINT: &str = "-a, -p PID, --comm NAME or -- CMD chooses whose waits count";

pub(super) fn run(args: LockArgs) -> Result<ExitCode, Failure> {
    if args.common.via == Via::Agent {
        let what = "--via agent does not go with --kernel: only the kernel sees its own locks";
        return Err(Failure::new(what).hint("leave out --via"));
    }
    let target = target(&args.common)?;
    let meanwhile = match args.common.all {
        true => [args.meanwhile, args.common.command.clone()].concat(),
        false => Vec::new(),
    };
    // A command beside the whole system gets signals and the terminal as a traced one.
    let outside = match meanwhile.is_empty() {
        true => RequestTarget::Pids(Vec::new()),
        false => RequestTarget::Command(meanwhile.clone()),
    };
    let shape = target.as_ref().unwrap_or(&outside);
    let common = args.common;
    let (mut run, options) = InstrumentRun::begin(shape, &common, "wait", false)?;
    let request = LockRequest {
        watched: match (args.every, args.mmap) {
            (true, _) => WaitSelection::EveryMmap,
            (_, true) => WaitSelection::ContendedMmap,
            _ => WaitSelection::Contended,
        },
        target,
        meanwhile: (!meanwhile.is_empty()).then_some(meanwhile),
        by: args.by.map(by).transpose()?,
        options,
    };
    let outcome = tiptoe_collector::locks(&request, &mut run.observer)?;
    let extras = ReportExtras {
        has_histograms: args.histograms,
        ..ReportExtras::default()
    };
    Ok(run.finish(outcome, &common, extras))
}

/// Returns the processes whose waits are counted; `None` for the whole system.
fn target(common: &Common) -> Result<Option<RequestTarget>, Failure> {
    match common.all {
        true => Ok(None),
        false => probe::target(common, NO_TARGET_HINT).map(Some),
    }
}

fn by(word: LockByWord) -> Result<LockBy, Failure> {
    Ok(match word {
        LockByWord::Callsite => LockBy::Callsite,
        LockByWord::Type => LockBy::Type,
        LockByWord::Lock => LockBy::Lock,
        LockByWord::Thread => LockBy::Thread,
        LockByWord::Process => LockBy::Process,
        LockByWord::Cgroup => LockBy::Cgroup,
        LockByWord::Scope => {
            let what = "--by scope with --kernel: the kernel does not know a program's scopes";
            return Err(
                Failure::new(what).hint("leave out --kernel: scopes are for the program's locks")
            );
        }
    })
}
