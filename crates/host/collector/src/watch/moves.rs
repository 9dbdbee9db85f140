//! Moves the watch of a variable if the pointers to it lead to another object.

use tiptoe_session::{Note, WatchNote};

use super::Run;
use super::begin::Target;
use super::pointer_path::Change;
use super::variables::WatchedVariable;
use crate::drive::{Targets, Turn};
use crate::error::Error;

impl WatchedVariable {
    pub(super) fn moves(&self) -> u32 {
        self.way.as_ref().map_or(0, |way| way.moves)
    }

    pub(super) fn is_alias(&self) -> bool {
        self.way.as_ref().is_some_and(|way| way.is_alias)
    }

    /// Returns a note the first time that the pointers lead to the address of another variable.
    fn meet(&mut self, other: String) -> Option<WatchNote> {
        let is_known = std::mem::replace(&mut self.way.as_mut()?.is_alias, true);
        let variable = self.name.clone();
        (!is_known).then_some(WatchNote::SameAddress { variable, other })
    }

    /// A removed variable keeps its address only for the report.
    fn is_watched_at(&self, address: u64) -> bool {
        self.address == address && !self.lifetime.has_ended()
    }

    fn look(&mut self, target: &Target) -> Option<Change> {
        let (address, len) = (self.address, self.len);
        let way = self.way.as_mut().filter(|_| !self.lifetime.has_ended())?;
        way.look(address, len, target)
    }
}

impl Run<'_> {
    pub(super) fn follow_pointers(&mut self, turn: &mut Turn<'_>) -> Result<(), Error> {
        for index in 0..self.variables.len() {
            let note = match self.variables[index].look(&self.target) {
                Some(Change::Moved(to)) => self.move_to(index, to, turn)?,
                Some(Change::Lost) => Some(WatchNote::PointersLost {
                    variable: self.variables[index].name.clone(),
                    address: self.variables[index].address,
                    after_ns: turn.clock.elapsed().as_nanos() as u64,
                }),
                None => None,
            };
            if let Some(note) = note.map(Note::from) {
                turn.observer.note(&note);
                self.notes.push(note);
            }
        }
        Ok(())
    }

    /// Refuses if another variable is at the address, because hits are identified by address. Returns a note at the
    /// first move, and at the first refusal.
    fn move_to(
        &mut self,
        index: usize,
        to: u64,
        turn: &Turn<'_>,
    ) -> Result<Option<WatchNote>, Error> {
        let mut others = self.variables.iter();
        if let Some(other) = others.find(|variable| variable.is_watched_at(to)) {
            let other = other.name.clone();
            return Ok(self.variables[index].meet(other));
        }
        let was_unset = self.variables[index].is_unset();
        let from = self.variables[index].move_to(to);
        self.move_from(from, index, turn.at)?;
        let after_ns = turn.clock.elapsed().as_nanos() as u64;
        let variable = self.variables[index].name.clone();
        if was_unset {
            self.variables[index].is_object = self.target.is_object(to);
            return Ok(Some(WatchNote::PointersSet { variable, after_ns }));
        }
        Ok(
            (self.variables[index].moves() == 1).then_some(WatchNote::Moved {
                variable,
                from,
                to,
                after_ns,
            }),
        )
    }

    /// Moves the breakpoint only if the variable has a debug register.
    pub(super) fn move_from(&mut self, from: u64, index: usize, at: &Targets) -> Result<(), Error> {
        let mut serving = self.turns.serving().iter();
        if let Some(slot) = serving.position(|served| *served == index) {
            let point = self.variables[index].watchpoint();
            let window = self.form.serve(slot, index, &point, at, &self.target)?;
            self.rested |= window.rested;
        }
        self.form.forget(from)
    }

    pub(super) fn move_notes(&self) -> Vec<Note> {
        let unset = self.variables.iter().filter(|variable| variable.is_unset());
        let unset = unset
            .filter(|variable| !variable.is_alias())
            .map(|variable| WatchNote::NeverFound {
                variable: variable.name.clone(),
            });
        let moved = self
            .variables
            .iter()
            .filter(|variable| variable.moves() > 0);
        let moved = moved.map(|variable| WatchNote::MovedTimes {
            variable: variable.name.clone(),
            times: variable.moves().into(),
        });
        unset.chain(moved).map(Note::from).collect()
    }
}
