//! Follows variables to which pointers lead: if the pointers lead to another object, the watch
//! moves there. Until the pointers are first set, the breakpoint is at an address that no program
//! may map.

use tiptoe_session::{Note, WatchNote};
use tiptoe_symbol::variable::{LoadedFile, Plan, Step, check_alignment};

use super::Run;
use super::begin::Target;
use super::variables::WatchedVariable;
use crate::drive::{RunClock, Targets, Turn};
use crate::error::Error;

/// The looks in a row that must find no memory before the pointers are reported as lost.
const MOST_LOST: u32 = 3;

pub(super) struct PointerPath {
    plan: Plan,
    here: LoadedFile,
    /// How often the path has led to another address.
    pub(super) moves: u32,
    /// The path has led nowhere so far.
    pub(super) is_unset: bool,
    /// The path led nowhere when the watch began.
    pub(super) is_late: bool,
    /// The path has led to the address of another watched variable.
    is_alias: bool,
    /// The looks in a row that found no memory.
    lost: u32,
}

#[derive(Debug, PartialEq, Eq)]
enum Change {
    /// The path now leads to this address.
    Moved(u64),
    /// The path no longer leads anywhere.
    Lost,
}

impl PointerPath {
    /// Returns the path. `None` if it follows no pointer: then the variable never moves.
    pub(super) fn new(plan: &Plan, here: LoadedFile) -> Option<PointerPath> {
        let mut steps = plan.steps.iter();
        let follows = steps.any(|step| matches!(step, Step::Load { .. }));
        follows.then(|| PointerPath {
            plan: plan.clone(),
            here,
            moves: 0,
            is_unset: false,
            is_late: false,
            is_alias: false,
            lost: 0,
        })
    }

    /// Returns whether both paths always lead to the same address.
    pub(super) fn is_same(&self, other: &PointerPath) -> bool {
        let [one, two] = [self, other].map(|way| (way.here, way.plan.start, &way.plan.steps));
        one == two
    }

    /// Follows the pointers; returns what has changed for a variable of this length, watched at
    /// this address.
    fn look(&mut self, address: u64, len: u8, target: &Target) -> Option<Change> {
        let found = self
            .plan
            .locate(&self.here, &mut |at, bytes| target.read(at, bytes));
        let can_be_watched =
            |at: &u64| check_alignment(*at, len).is_ok() && target.read(*at, &mut [0]);
        match found.ok().filter(can_be_watched) {
            Some(now) => {
                self.lost = 0;
                (now != address).then_some(Change::Moved(now))
            }
            // A note says that the process has ended, or that it runs another program.
            None if target.has_given_up_memory() => None,
            None => {
                self.lost = self.lost.saturating_add(1);
                // A program may clear a pointer for a moment, while it replaces the object.
                (self.lost == MOST_LOST && !self.is_unset).then_some(Change::Lost)
            }
        }
    }
}

impl WatchedVariable {
    /// Returns how often the variable moved.
    pub(super) fn moves(&self) -> u32 {
        self.way.as_ref().map_or(0, |way| way.moves)
    }

    /// Returns whether the pointers have led to the address of another watched variable.
    pub(super) fn is_alias(&self) -> bool {
        self.way.as_ref().is_some_and(|way| way.is_alias)
    }

    /// Records that the pointers lead to the address of another variable; returns a note the first time.
    fn meet(&mut self, other: String) -> Option<WatchNote> {
        let is_known = std::mem::replace(&mut self.way.as_mut()?.is_alias, true);
        let variable = self.name().to_owned();
        (!is_known).then_some(WatchNote::SameAddress { variable, other })
    }

    /// Returns whether the variable is watched at this address. One that has ended is not, although
    /// it keeps its address for the report.
    fn is_watched_at(&self, address: u64) -> bool {
        self.address() == address && !self.lifetime.has_ended()
    }

    fn look(&mut self, target: &Target) -> Option<Change> {
        let (address, len) = (self.address(), self.len());
        let way = self.way.as_mut().filter(|_| !self.lifetime.has_ended())?;
        way.look(address, len, target)
    }
}

impl Run<'_> {
    /// Reads the pointers, and moves the watches to where they lead.
    pub(super) fn follow_pointers(&mut self, turn: &mut Turn<'_>) -> Result<(), Error> {
        for index in 0..self.variables.len() {
            let note = match self.variables[index].look(&self.target) {
                Some(Change::Moved(to)) => self.move_to(index, to, turn)?,
                Some(Change::Lost) => Some(self.has_lost(index, turn.clock)),
                None => None,
            };
            if let Some(note) = note.map(Note::from) {
                turn.observer.note(&note);
                self.notes.push(note);
            }
        }
        Ok(())
    }

    /// Watches a variable at another address, unless another variable is there, because hits are
    /// identified by address. Returns a note the first time that either happens.
    fn move_to(
        &mut self,
        index: usize,
        to: u64,
        turn: &Turn<'_>,
    ) -> Result<Option<WatchNote>, Error> {
        let mut others = self.variables.iter();
        if let Some(other) = others.find(|variable| variable.is_watched_at(to)) {
            let other = other.name().to_owned();
            return Ok(self.variables[index].meet(other));
        }
        let was_unset = self.variables[index].is_unset();
        let from = self.variables[index].move_to(to);
        self.move_from(from, index, turn.at)?;
        let after_ns = turn.clock.elapsed().as_nanos() as u64;
        let variable = self.variables[index].name().to_owned();
        if was_unset {
            self.variables[index].look_for_object(&self.target);
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

    /// Moves a variable's breakpoint from an address to the present one, if the variable has a
    /// register.
    pub(super) fn move_from(&mut self, from: u64, index: usize, at: &Targets) -> Result<(), Error> {
        let mut serving = self.turns.serving().iter();
        if let Some(slot) = serving.position(|served| *served == index) {
            let point = self.variables[index].watchpoint();
            let window = self.form.serve(slot, index, &point, at, &self.target)?;
            self.rested |= window.rested;
        }
        self.form.forget(from)
    }

    fn has_lost(&self, index: usize, clock: RunClock) -> WatchNote {
        let variable = &self.variables[index];
        WatchNote::PointersLost {
            variable: variable.name().to_owned(),
            address: variable.address(),
            after_ns: clock.elapsed().as_nanos() as u64,
        }
    }

    /// Returns notes at the end about variables that moved, or were never found.
    pub(super) fn move_notes(&self) -> Vec<Note> {
        let unset = self.variables.iter().filter(|variable| variable.is_unset());
        let unset = unset
            .filter(|variable| !variable.is_alias())
            .map(|variable| WatchNote::NeverFound {
                variable: variable.name().to_owned(),
            });
        let moved = self
            .variables
            .iter()
            .filter(|variable| variable.moves() > 0);
        let moved = moved.map(|variable| WatchNote::MovedTimes {
            variable: variable.name().to_owned(),
            times: variable.moves().into(),
        });
        unset.chain(moved).map(Note::from).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use tiptoe_attach::Attached;
    use tiptoe_symbol::variable::{Start, Type, ValueKind};

    use super::super::lifetimes::NOWHERE;
    use super::*;
    use crate::module::Cache;

    fn path_to_nowhere() -> PointerPath {
        let pointer = "lost".to_owned();
        let plan = Plan {
            expression: "*lost".to_owned(),
            start: Start::Absolute(NOWHERE),
            steps: vec![Step::Load { pointer }],
            value: Type {
                name: "int".to_owned(),
                size: Some(4),
                kind: ValueKind::Integer { is_signed: true },
            },
            word: 8,
        };
        PointerPath::new(&plan, LoadedFile::default()).expect("a pointer")
    }

    /// An ending process gives up its memory before its end is reported, so each look failed.
    #[test]
    fn pointers_of_an_ended_process_are_not_lost() {
        let mut command = Command::new("cat");
        let mut child = command.stdin(Stdio::piped()).spawn().expect("cat");
        let attached = Attached::to(child.id()).expect("attached");
        let target = Target::of(&attached, Cache::default()).expect("its memory");
        let looks = || {
            let mut path = path_to_nowhere();
            [(); 4].map(|()| path.look(0x2000, 4, &target))
        };
        assert_eq!(looks(), [None, None, Some(Change::Lost), None]);
        child.kill().expect("killed");
        child.wait().expect("ended");
        assert_eq!(looks(), [None, None, None, None]);
    }
}
