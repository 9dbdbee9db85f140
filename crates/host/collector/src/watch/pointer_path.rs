//! The path of pointers that leads to a watched variable.

use tiptoe_symbol::variable::{LoadedFile, Plan, Step, check_alignment};

use super::begin::Target;

/// After this many looks in a row that found no memory, the pointers are reported as lost.
const MOST_LOST: u32 = 3;

pub(super) struct PointerPath {
    plan: Plan,
    here: LoadedFile,
    pub(super) moves: u32,
    pub(super) is_unset: bool,
    pub(super) is_late: bool,
    /// Whether the path has led to the address of another watched variable.
    pub(super) is_alias: bool,
    lost: u32,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Change {
    Moved(u64),
    Lost,
}

impl PointerPath {
    /// Returns the path of a plan (the steps to a variable); `None` if the plan follows no pointer, so that the
    /// variable never moves.
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

    pub(super) fn is_same(&self, other: &PointerPath) -> bool {
        let [one, two] = [self, other].map(|way| (way.here, way.plan.start, &way.plan.steps));
        one == two
    }

    pub(super) fn look(&mut self, address: u64, len: u8, target: &Target) -> Option<Change> {
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
            // Another note reports the process's end or exec.
            None if target.has_given_up_memory() => None,
            None => {
                self.lost = self.lost.saturating_add(1);
                // A program may clear a pointer for a moment, while it replaces the object.
                (self.lost == MOST_LOST && !self.is_unset).then_some(Change::Lost)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use tiptoe_attach::Attached;
    use tiptoe_symbol::variable::{Start, Type, ValueKind};

    use super::super::variables::NOWHERE;
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
