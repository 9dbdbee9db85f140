//! Ends the watch of a variable that no longer exists. Notices that the process runs another program.

use std::time::Duration;

use tiptoe_session::{Accesses, EndCause, Note, ProcessNote, VariableEnd, WatchNote};

use super::Run;
use super::begin::Target;
use super::variables::WatchedVariable;
use crate::drive::Turn;
use crate::error::Error;
use crate::words::session_target;

impl WatchedVariable {
    /// `None` if the variable exists, or the process is ending or runs another program.
    fn removal_reason(&self, target: &Target) -> Option<VariableEnd> {
        if self
            .of_thread
            .is_some_and(|owner| owner.has_ended(target.process))
        {
            return Some(VariableEnd::Thread);
        }
        if target.read(self.address, &mut [0]) || target.has_given_up_memory() {
            return None;
        }
        let maps = target.process.maps().unwrap_or_default();
        let is_gone =
            !maps.is_empty() && !maps.iter().any(|mapping| mapping.contains(self.address));
        is_gone.then_some(VariableEnd::Unmapped)
    }
}

impl Run<'_> {
    pub(super) fn has_execed(&mut self, turn: &Turn<'_>) -> Option<Note> {
        let cause = self.form.ended_by(turn.at)?;
        let process = session_target(turn.at.counted().next()?);
        let after_ns = turn.clock.elapsed().as_nanos() as u64;
        Some(match cause {
            EndCause::Exec => WatchNote::Exec { process, after_ns }.into(),
            cause => ProcessNote::TraceEnded {
                process,
                cause,
                after_ns,
            }
            .into(),
        })
    }

    /// Returns whether no variable is left.
    pub(super) fn end_gone(&mut self, turn: &mut Turn<'_>) -> Result<bool, Error> {
        for index in 0..self.variables.len() {
            // Must be read before the look, because the variable may be removed right after the look.
            let now = turn.clock.elapsed();
            let variable = &self.variables[index];
            let cause = match variable.lifetime.has_ended() || variable.is_unset() {
                true => continue,
                false => variable.removal_reason(&self.target),
            };
            let is_gone = self.variables[index].lifetime.look(cause.is_none(), now);
            let Some(cause) = cause.filter(|_| is_gone) else {
                continue;
            };
            let watched_ns = self.turns.watched_ns(index, turn.clock.elapsed());
            self.variables[index].lifetime.ended = Some(watched_ns);
            let ended = WatchNote::Ended {
                variable: self.variables[index].name.clone(),
                cause,
                after_ns: now.as_nanos() as u64,
            };
            let note = Note::from(ended);
            if self
                .variables
                .iter()
                .any(|variable| !variable.lifetime.has_ended())
            {
                self.move_from(self.variables[index].address, index, turn.at)?;
                // Must be reported after the move, because the note promises that later accesses do not count.
                turn.observer.note(&note);
            }
            self.notes.push(note);
        }
        Ok(self
            .variables
            .iter()
            .all(|variable| variable.lifetime.has_ended()))
    }
}

/// Returns a note if other threads accessed a thread's variable after the thread was last seen. The memory may then
/// belong to another thread, because stacks are reused.
pub(super) fn note(variable: &WatchedVariable, rows: &[Accesses], target: &Target) -> Option<Note> {
    let owner = variable.of_thread?;
    let is_first = owner.tid == target.process.pid();
    if is_first || !variable.lifetime.has_ended() && !owner.has_ended(target.process) {
        return None;
    }
    let (name, seen) = (&variable.name, variable.lifetime.seen);
    is_accessed_later(rows, name, owner.tid, seen).then(|| {
        let (variable, seen_ns) = (name.to_owned(), seen.as_nanos() as u64);
        WatchNote::StackReused { variable, seen_ns }.into()
    })
}

fn is_accessed_later(rows: &[Accesses], name: &str, tid: u32, seen: Duration) -> bool {
    let mut others = rows
        .iter()
        .filter(|row| row.variable == name && row.tid != Some(tid));
    others.any(|row| u128::from(row.last_ns) > seen.as_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn accesses_of_others_after_the_end_of_a_thread() {
        let later = |variable: &str, tid, last: u64| {
            let row = Accesses {
                variable: variable.to_owned(),
                tid,
                last_ns: MS(last).as_nanos() as u64,
                ..Accesses::default()
            };
            is_accessed_later(&[row], "own", 7, MS(100))
        };
        assert!(later("own", Some(8), 101));
        assert!(later("own", None, 101), "threads of one name");
        assert!(!later("own", Some(7), 101), "its own");
        assert!(!later("own", Some(8), 99));
        assert!(!later("total", Some(8), 101));
    }
}
