//! Reports each access as it happens.

use tiptoe_session::Access;

use super::Run;
use crate::clock::RunClock;
use crate::request::Observer;

pub(super) type InstructionNames = std::collections::HashMap<(u32, u64), String>;

impl Run<'_> {
    pub(super) fn report_accesses(&mut self, clock: RunClock, observer: &mut dyn Observer) {
        if !self.request.accesses.trace {
            return;
        }
        let mut hits = self.form.take_accesses();
        // The accesses are in order on each CPU only.
        hits.sort_by_key(|hit| hit.time_ns);
        for hit in &hits {
            self.target.know(hit.key.ip);
            let known = (hit.key.variable, hit.key.ip);
            if let Some(variable) = self.variables.get(hit.key.variable as usize)
                && !self.named.contains_key(&known)
            {
                let name = variable.instruction(&self.target, hit.key.ip);
                self.named.insert(known, name);
            }
        }
        let accesses = hits.iter().filter_map(|hit| {
            let variable = self.variables.get(hit.key.variable as usize)?;
            let at = self.named.get(&(hit.key.variable, hit.key.ip))?;
            Some(Access {
                at_ns: clock.until(hit.time_ns).as_nanos() as u64,
                tid: hit.tid,
                comm: &hit.key.comm,
                variable: &variable.name,
                at,
                in_kernel: hit.key.in_kernel,
                old: variable.old_value(hit.old),
                new: variable.value(hit.new),
                racy: hit.is_read_from_memory,
            })
        });
        let accesses: Vec<Access> = accesses.collect();
        if !accesses.is_empty() {
            observer.accesses(&accesses);
        }
    }
}
