//! What ends a watch before its process ends: another program, or what was watched is not there any more.
//!
//! Only the report says so: it comes at once, or, of a command that goes on, once that is said.

use super::Run;

impl Run<'_> {
    /// Says it where another program runs at the addresses that were watched.
    pub(super) fn has_execed(&self) -> Option<String> {
        let (pid, comm) = (self.target.process.pid(), &self.target.comm);
        let after = self.start.elapsed().as_secs_f64();
        let (what, then) = self.set.ended_by()?;
        Some(format!(
            "process {pid} ({comm}) {what} after {after:.1} s: {then}"
        ))
    }

    /// Why there is nothing to watch any more, though the process is there.
    pub(super) fn has_gone(&mut self) -> Option<String> {
        let after = self.start.elapsed().as_secs_f64();
        let gone = self.target.gone(&self.places);
        // An exec takes the memory away just before it is told.
        let twice = std::mem::replace(&mut self.is_gone, gone.is_some());
        let (gone, why) = gone.filter(|_| twice)?;
        Some(format!(
            "the watch of `{gone}` ended after {after:.1} s: {why}"
        ))
    }
}
