//! `tiptoe lock --kernel`: waits for the kernel's own locks.

use std::process::ExitCode;
use std::sync::Arc;

use tiptoe_collector::{LockBy, LockRequest, RequestTarget, RunOptions, WaitSelection};
use tiptoe_event::Via;

use crate::args::Common;
use crate::failure::Failure;
use crate::interrupt;
use crate::lock::{LockArgs, LockByWord};
use crate::observer::Terminal;
use crate::probe::{self, ReportExtras};
use crate::ready::{self, ReadyLine};
use crate::status::{self, RunDescription};

const NO_TARGET_HINT: &str = "-a, -p PID, --comm NAME or -- CMD chooses whose waits count";

pub(super) fn run(args: LockArgs) -> Result<ExitCode, Failure> {
    if args.common.via == Via::Agent {
        let what = "--via agent does not go with --kernel: only the kernel sees its own locks";
        return Err(Failure::new(what).hint("leave out --via"));
    }
    let target = target(&args.common)?;
    // The whole system has no command, so its output and signals are handled as those of running
    // processes.
    let outside = RequestTarget::Pids(Vec::new());
    let shape = target.as_ref().unwrap_or(&outside);
    let output = probe::open_output(&args.common, shape, false)?;
    let notes = output.notes_to(shape);
    let (stop, hand_on) = interrupt::on_signals(shape, notes)?;
    let common = args.common;
    status::begin(RunDescription::new(shape, "wait", &common), shape, &output);
    let ready = ready::ready(
        common.ready_fd,
        ReadyLine::for_output(&output, shape, common.json),
    )?;
    let mut observer = Terminal::new(&output, notes, common.json, Arc::clone(&stop))?;
    let request = LockRequest {
        watched: match (args.every, args.mmap) {
            (true, _) => WaitSelection::EveryMmap,
            (_, true) => WaitSelection::ContendedMmap,
            _ => WaitSelection::Contended,
        },
        target,
        by: args.by.map(by).transpose()?,
        options: RunOptions {
            delay: common.delay,
            duration: common.duration,
            interval: common.interval,
            stop,
            hand_on,
            ready,
        },
    };
    let mut outcome = tiptoe_collector::locks(&request, &mut observer)?;
    outcome.session.notes.extend(interrupt::unsaid(notes));
    let extras = ReportExtras {
        has_histograms: args.histograms,
        ..ReportExtras::default()
    };
    Ok(probe::print_outcome(outcome, output, &common, extras))
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
