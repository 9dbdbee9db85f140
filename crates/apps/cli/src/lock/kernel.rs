//! `tiptoe lock --kernel`: waits for the kernel's own locks.

use std::process::ExitCode;

use tiptoe_collector::{Request, RequestTarget};
use tiptoe_event::{Event, Via, WaitSelection};

use crate::failure::{Failure, TargetOf};
use crate::instrument::{self, InstrumentRun, ReportExtras};
use crate::lock::LockArgs;

pub(super) fn run(args: LockArgs) -> Result<ExitCode, Failure> {
    if args.common.via == Via::Agent {
        return Err(Failure::AgentOfKernelLocks);
    }
    let target = match args.common.all {
        true => RequestTarget::System,
        false => instrument::target(&args.common, TargetOf::KernelLocks)?,
    };
    let meanwhile = match args.common.all {
        true => [args.meanwhile, args.common.command.clone()].concat(),
        false => Vec::new(),
    };
    // For signals and output, a command that runs during the trace is treated like a traced command.
    let beside = RequestTarget::Command(meanwhile.clone());
    let shape = match meanwhile.is_empty() {
        true => &target,
        false => &beside,
    };
    let common = args.common;
    let (mut run, request) = InstrumentRun::begin(shape, &common, "wait", false)?;
    let request = Request {
        events: vec![Event::KernelLocks(match (args.every, args.mmap) {
            (true, _) => WaitSelection::EveryMmap,
            (_, true) => WaitSelection::ContendedMmap,
            _ => WaitSelection::Contended,
        })],
        target,
        meanwhile: (!meanwhile.is_empty()).then_some(meanwhile),
        split: args.by.map(|by| by.split(args.kernel)).transpose()?,
        ..request
    };
    let outcome = tiptoe_collector::run(&request, &mut run.observer)?;
    let extras = ReportExtras {
        has_histograms: args.histograms,
        ..ReportExtras::default()
    };
    Ok(run.finish(outcome, &common, extras))
}
