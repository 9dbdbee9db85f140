//! The contended locks of all processes of a run.

use tiptoe_session::{Cost, Locks};

use super::Run;
use crate::calibrate::wait_and_wake;
use crate::request::Error;
use crate::ulocks;

impl Run<'_> {
    /// Keeps what is needed to call locks and code by their names: a process may be no more
    /// when they are told.
    pub(super) fn look_for_names(&mut self) {
        if !self.plan.locks {
            return;
        }
        for tracee in &mut self.tracees {
            // Where it cannot be looked at it is as it was.
            let _ = tracee.look_for_names(&mut self.cache);
        }
    }

    /// Puts a price on what was noted of them; whether they are what this run is about.
    pub(super) fn price_locks(&mut self) -> bool {
        let Some(locks) = &self.session.locks else {
            return false;
        };
        let [wait, wake] = wait_and_wake();
        let cost = wait.times(locks.waits).plus(wake.times(locks.wakes));
        let calls = locks.waits.saturating_add(locks.wakes);
        self.session.cost = Cost::estimated(calls, cost, self.session.cpu_ns);
        true
    }

    /// Writes down what was seen of them.
    pub(super) fn tell_locks(&mut self) -> Result<(), Error> {
        let Some(by) = self.request.locks else {
            return Ok(());
        };
        let mut all = Locks::default();
        for tracee in &self.tracees {
            if let Some((noted, names)) = tracee.noted()? {
                let mut told = noted.tell(names, by);
                if self.tracees.len() > 1 {
                    let pid = tracee.process.pid();
                    let rows = told.rows.iter_mut();
                    rows.for_each(|row| row.lock += &format!(" (process {pid})"));
                }
                ulocks::add(&mut all, told);
            }
        }
        all.by = by.word().to_owned();
        self.session.locks = Some(all);
        Ok(())
    }
}
