//! `tiptoe lock --kernel`: waits for the kernel's own locks.

use std::process::ExitCode;

use tiptoe_collector::{Request, RequestTarget, Split};
use tiptoe_event::{Event, Via, WaitSelection};

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
        split: args.by.map(by).transpose()?,
        ..request
    };
    let outcome = tiptoe_collector::run(&request, &mut run.observer)?;
    let extras = ReportExtras {
        has_histograms: args.histograms,
        ..ReportExtras::default()
    };
    Ok(run.finish(outcome, &common, extras))
}

/// Returns the processes whose waits are counted.
fn target(common: &Common) -> Result<RequestTarget, Failure> {
    match common.all {
        true => Ok(RequestTarget::System),
        false => probe::target(common, NO_TARGET_HINT),
    }
}

fn by(word: LockByWord) -> Result<Split, Failure> {
    Ok(match word {
        LockByWord::Callsite => Split::Callsite,
        LockByWord::Type => Split::Type,
        LockByWord::Lock => Split::Lock,
        LockByWord::Thread => Split::Thread,
        LockByWord::Process => Split::Process,
        LockByWord::Cgroup => Split::Cgroup,
        LockByWord::Scope => {
            let what = "--by scope with --kernel: the kernel does not know a program's scopes";
            return Err(
                Failure::new(what).hint("leave out --kernel: scopes are for the program's locks")
            );
        }
    })
}
