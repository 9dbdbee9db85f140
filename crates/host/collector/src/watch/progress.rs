//! The progress report of a watch.

use tiptoe_session::Cost;

use super::Run;
use crate::request::{Error, Observer, Progress};

impl Run<'_> {
    /// Reports the counts so far, if the observer wants them now.
    pub(super) fn report_progress(&mut self, observer: &mut dyn Observer) -> Result<(), Error> {
        if !observer.wants_progress() {
            return Ok(());
        }
        let all = (0..).zip(&self.places);
        let all = all.map(|(index, _)| self.set.hits(index));
        let (mut wanted, mut hits) = (0_u64, 0_u64);
        for of_one in all {
            let of_one = of_one?;
            wanted = wanted.saturating_add(of_one.wanted);
            hits = hits.saturating_add(of_one.all);
        }
        let cost = self.set.hit_cost()?.times(hits);
        observer.progress(&Progress {
            hits: wanted,
            cost: Some(Cost::estimated(
                hits,
                cost,
                self.set.process().fetch_cpu_time().as_nanos() as u64,
            )),
        });
        Ok(())
    }
}
