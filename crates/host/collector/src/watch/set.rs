//! The breakpoints of a watch: in the kernel, with a BPF program of ours, or in the program's own
//! threads.

use tiptoe_event::{Cost, Via};
use tiptoe_kernel::Watchpoints;
use tiptoe_kernel::watchpoints::{
    Access, Attached, Drops, Form, Hits, WatchRow, Watchpoint, Window,
};
use tiptoe_session::{EndCause, Reservations};

use super::begin::Target;
use super::foresee;
use super::form::reservations;
use super::inside::InProcessWatch;
use super::learn::LearnedCode;
use super::variables::WatchedVariable;
use crate::request::Error;

pub(super) enum Set {
    /// The kernel's.
    Kernel {
        process: Box<tiptoe_attach::Attached>,
        set: Box<Watchpoints>,
        learned: LearnedCode,
        form: Form,
        attached: Option<Attached>,
    },
    /// The agent's.
    Agent(Box<InProcessWatch>),
}

impl Set {
    pub(super) fn of_kernel(process: tiptoe_attach::Attached, set: Watchpoints, form: Form) -> Set {
        Set::Kernel {
            process: Box::new(process),
            attached: set.attached(),
            set: Box::new(set),
            learned: LearnedCode::default(),
            form,
        }
    }

    pub(super) fn process(&mut self) -> &mut tiptoe_attach::Attached {
        match self {
            Set::Kernel { process, .. } => process,
            Set::Agent(inside) => inside.process(),
        }
    }

    pub(super) fn via(&self) -> Via {
        match self {
            Set::Kernel { .. } => Via::Kernel,
            Set::Agent(_) => Via::Agent,
        }
    }

    /// Supplies the BPF program with what it needs before the first hit.
    pub(super) fn foresee(
        &mut self,
        target: &Target,
        places: &[WatchedVariable],
    ) -> Result<(), Error> {
        match self {
            Set::Kernel { set, learned, .. } => foresee::foresee(learned, set, target, places),
            Set::Agent(_) => {
                // Built now, because unwind tables take long and the first hits may come all at
                // once.
                for module in &target.names.modules {
                    module.object.unwind_table();
                }
                Ok(())
            }
        }
    }

    /// Supplies the BPF program with what it needs of the code that hit; returns whether anything
    /// was new.
    pub(super) fn learn(&mut self, target: &mut Target) -> Result<bool, Error> {
        match self {
            Set::Kernel { set, learned, .. } => learned.learn(set, target),
            Set::Agent(_) => Ok(false),
        }
    }

    /// Reads the recorded hits; returns whether more will follow soon.
    pub(super) fn take(&mut self, target: &mut Target) -> bool {
        match self {
            Set::Kernel { .. } => false,
            Set::Agent(inside) => inside.take(target),
        }
    }

    pub(super) fn start(&mut self, target: &Target) -> Result<(), Error> {
        match self {
            Set::Kernel { set, .. } => Ok(set.start()?),
            Set::Agent(inside) => inside.start(target),
        }
    }

    pub(super) fn stop(&mut self, target: &mut Target) {
        match self {
            Set::Kernel { set, .. } => set.stop(),
            Set::Agent(inside) => inside.stop(target),
        }
    }

    pub(super) fn allowance(&self) -> Option<u64> {
        match self {
            Set::Kernel { set, .. } => set.allowance(),
            Set::Agent(inside) => inside.allowance(),
        }
    }

    /// Returns the cost of a hit, including its BPF program.
    pub(super) fn hit_cost(&self) -> Result<Cost, Error> {
        match self {
            Set::Kernel { set, .. } => {
                let times = set.times()?;
                let own = times.run_ns.checked_div(times.runs).unwrap_or(0) as f64;
                Ok(set.hit_cost().plus(Cost::between(own, own, own)))
            }
            Set::Agent(inside) => Ok(inside.hit_cost()),
        }
    }

    pub(super) fn refresh(&mut self) -> Result<Window, Error> {
        match self {
            Set::Kernel { set, .. } => Ok(set.refresh()?),
            Set::Agent(inside) => Ok(inside.refresh()),
        }
    }

    pub(super) fn window(&mut self) -> Result<Window, Error> {
        match self {
            Set::Kernel { set, .. } => Ok(set.window()?),
            Set::Agent(inside) => Ok(inside.window()),
        }
    }

    /// Disables the threads' events if the allowance is used up; returns whether they are disabled.
    /// `None` if events disable themselves.
    pub(super) fn rest(&mut self) -> Result<Option<bool>, Error> {
        match self {
            Set::Kernel {
                set,
                form: Form::Tasks,
                ..
            } => Ok(Some(set.rest()?)),
            Set::Kernel { .. } => Ok(None),
            Set::Agent(inside) => Ok(inside.is_resting().then_some(true)),
        }
    }

    /// Watches only the process's threads from now on, if all CPUs were watched.
    pub(super) fn move_to_threads(&mut self) -> Result<(), Error> {
        if let Set::Kernel {
            set,
            form,
            attached,
            ..
        } = self
        {
            set.move_to_threads()?;
            *form = Form::Tasks;
            *attached = set.attached();
        }
        Ok(())
    }

    pub(super) fn serve(
        &mut self,
        slot: usize,
        index: usize,
        point: &Watchpoint,
        target: &Target,
    ) -> Result<Window, Error> {
        match self {
            Set::Kernel { set, .. } => Ok(set.serve(slot, index, point)?),
            Set::Agent(inside) => inside.serve(slot, index, point, target),
        }
    }

    /// Forgets an address that is no longer watched.
    pub(super) fn forget(&mut self, address: u64) -> Result<(), Error> {
        match self {
            Set::Kernel { set, .. } => Ok(set.forget(address)?),
            // The ring may still hold hits at this address.
            Set::Agent(_) => Ok(()),
        }
    }

    pub(super) fn each(&mut self) -> Vec<Access> {
        match self {
            Set::Kernel { set, .. } => set.each(),
            Set::Agent(inside) => inside.take_accesses(),
        }
    }

    pub(super) fn read(&self) -> Result<Vec<WatchRow>, Error> {
        match self {
            Set::Kernel { set, .. } => Ok(set.read()?),
            Set::Agent(inside) => Ok(inside.rows()),
        }
    }

    pub(super) fn hits(&self, variable: u32) -> Result<Hits, Error> {
        match self {
            Set::Kernel { set, .. } => Ok(set.hits(variable)?),
            Set::Agent(inside) => Ok(inside.hits(variable)),
        }
    }

    pub(super) fn drops(&self) -> Result<Drops, Error> {
        match self {
            Set::Kernel { set, .. } => Ok(set.drops()?),
            Set::Agent(inside) => Ok(inside.drops()),
        }
    }

    /// As [`InProcessWatch::missed`].
    pub(super) fn missed(&self) -> [u64; 4] {
        match self {
            Set::Kernel { .. } => [0; 4],
            Set::Agent(inside) => inside.missed(),
        }
    }

    pub(super) fn foreign(&self) -> Result<u64, Error> {
        match self {
            Set::Kernel { set, .. } => Ok(set.foreign()?),
            Set::Agent(_) => Ok(0),
        }
    }

    pub(super) fn sees_kernel(&self) -> bool {
        match self {
            Set::Kernel { set, .. } => set.sees_kernel(),
            Set::Agent(_) => false,
        }
    }

    pub(super) fn attached(&self) -> Option<Attached> {
        match self {
            Set::Kernel { attached, .. } => *attached,
            Set::Agent(inside) => Some(inside.attached()),
        }
    }

    pub(super) fn reservations(&self) -> Result<Vec<Reservations>, Error> {
        match self {
            Set::Kernel { set, .. } => Ok(reservations(set.reservations()?)),
            Set::Agent(inside) => inside.reservations(),
        }
    }

    /// Returns what the process did to end the watch.
    pub(super) fn ended_by(&self) -> Option<EndCause> {
        match self {
            Set::Kernel { set, .. } => set.has_execed().then_some(EndCause::Exec),
            Set::Agent(inside) => inside.ended_by(),
        }
    }

    /// Returns whether the program's threads have all ended while its process still exists.
    pub(super) fn is_over(&self) -> bool {
        match self {
            Set::Kernel { .. } => false,
            Set::Agent(inside) => inside.is_over(),
        }
    }
}
