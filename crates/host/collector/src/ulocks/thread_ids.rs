//! The ids of a process's threads. In a nested PID namespace, such as a container's, locks and slabs (threads'
//! counters) contain other ids than tiptoe's /proc.

use std::collections::{BTreeMap, BTreeSet};

use tiptoe_sys::host::procfs::Process;

#[derive(Default)]
pub struct ThreadIds {
    /// The ids of threads in tiptoe's /proc, by their ids in the nested namespace. Ended threads remain. `None` without
    /// a nested namespace.
    outer: Option<BTreeMap<u32, u32>>,
    has_looked: bool,
}

impl ThreadIds {
    pub fn of(process: Process) -> ThreadIds {
        let mut ids = ThreadIds::default();
        ids.look(process, &process.threads().unwrap_or_default());
        ids
    }

    pub fn look(&mut self, process: Process, threads: &[u32]) {
        if !self.has_looked {
            let is_nested = process.status().is_ok_and(|s| s.ns_pids.len() > 1);
            self.outer = is_nested.then(BTreeMap::new);
            self.has_looked = true;
        }
        let Some(outer) = &mut self.outer else { return };
        let known: BTreeSet<u32> = outer.values().copied().collect();
        for tid in threads.iter().filter(|tid| !known.contains(*tid)) {
            // A thread that has just ended has no status.
            let status = process.thread_status(*tid).ok();
            outer.extend(status.and_then(|status| Some((status.own_pid()?, *tid))));
        }
    }

    /// `own` is the thread's id in its namespace. `None` if no look has seen the thread.
    pub fn outer(&self, own: u32) -> Option<u32> {
        match &self.outer {
            Some(outer) => outer.get(&own).copied(),
            None => Some(own),
        }
    }

    pub fn label(&self, own: u32, comm: &str) -> String {
        match self.outer(own) {
            Some(tid) => format!("{tid} {comm}"),
            None => format!("{own} {comm} (its id in the container)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_reported_by_the_ids_of_proc() {
        let same = ThreadIds::default();
        assert_eq!((same.outer(7), &*same.label(7, "me")), (Some(7), "7 me"));
        let nested = ThreadIds {
            outer: Some(BTreeMap::from([(7, 4107)])),
            has_looked: true,
        };
        assert_eq!(nested.outer(7), Some(4107));
        assert_eq!(nested.label(7, "me"), "4107 me");
        assert_eq!(nested.outer(8), None);
        assert_eq!(nested.label(8, "it"), "8 it (its id in the container)");
    }
}
