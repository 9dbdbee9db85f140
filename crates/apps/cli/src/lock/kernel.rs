//! `tiptoe lock --kernel`: waits for the kernel's own locks.

use std::process::ExitCode;

use tiptoe_collector::{LockBy, LockRequest, RequestTarget, WaitSelection};
use tiptoe_event::Via;

use crate::args::Common;
use crate::failure::{Failure, TargetOf};
use crate::lock::{LockArgs, LockByWord};
use crate::probe::{self, InstrumentRun, ReportExtras};

pub(super) fn run(args: LockArgs) -> Result<ExitCode, Failure> {
    if args.common.via == Via::Agent {
        return Err(Failure::AgentOfKernelLocks);
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
        false => probe::target(common, TargetOf::KernelLocks).map(Some),
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
        LockByWord::Scope => return Err(Failure::KernelByScope),
    })
}
