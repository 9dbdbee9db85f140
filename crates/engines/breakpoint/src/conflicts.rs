//! Finds holders that block a request. The caller must hold the lock of CPUs; for a CPU's request, all locks.

use crate::constraints::{Constraints, DenyReason, ResolvedRequest, ResolvedTarget, task_slots};
use crate::error::{Conflict, Error, Holder};
use crate::tasks::Task;

impl Constraints<'_> {
    #[cold]
    pub(crate) fn explain_locked(&self, resolved: &ResolvedRequest, denied: DenyReason) -> Error {
        match denied {
            DenyReason::NoSlot(cpu) => Error::NoSlot(self.conflict(resolved, cpu)),
            DenyReason::Full => Error::Full,
        }
    }

    fn conflict(&self, resolved: &ResolvedRequest, cpu: u32) -> Conflict {
        let mut conflict = Conflict::new(resolved.request, cpu);
        let task = match &resolved.target {
            ResolvedTarget::Task { task, .. } => Some(*task),
            ResolvedTarget::Cpu(_) => self.task_with_most(cpu, resolved.file),
        };
        conflict.task = task.map(|task| task.id);
        for task in task.iter() {
            let entries = task.all(resolved.file);
            let covers = |on: Option<u32>| on.is_none_or(|on| on == cpu);
            entries
                .filter(|entry| covers(entry.cpu()))
                .for_each(|entry| {
                    conflict.add(Holder {
                        id: entry.holder,
                        is_wide: false,
                    });
                });
        }
        for id in self.cpu(cpu, resolved.file).holders() {
            conflict.add(Holder { id, is_wide: true });
        }
        conflict
    }

    fn task_with_most(&self, cpu: u32, file: usize) -> Option<Task<'_>> {
        let most = self.most(cpu, file);
        let mut buckets = self.buckets.iter().filter(|_| most > 0);
        buckets.find_map(|bucket| {
            let mut entries = self.entries.chain(bucket);
            entries.find_map(|entry| {
                let (_, task) = self.task(entry.task)?;
                (task_slots(&task, file, Some(cpu)) == most).then_some(task)
            })
        })
    }
}
