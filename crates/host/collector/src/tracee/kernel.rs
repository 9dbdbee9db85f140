//! What the agent cannot take, the kernel counts.

use std::collections::BTreeMap;

use tiptoe_event::Via;
use tiptoe_kernel::{KernelProbe, UprobeSet, Who};
use tiptoe_sys::host::procfs::path_of;

use super::{Counter, Plan, Source, Tracee};
use crate::request::Error;
use crate::resolve::Probe;

impl Tracee {
    pub(super) fn count_in_kernel(
        &mut self,
        plan: &Plan,
        probes: Vec<(Probe, Option<String>)>,
    ) -> Result<(), Error> {
        let refuse_all = |why: &str| {
            let reason = |own: Option<String>| own.unwrap_or_else(|| why.to_owned());
            probes
                .iter()
                .map(|(p, own)| (p.event.clone(), reason(own.clone())))
                .collect::<Vec<_>>()
        };
        if plan.via == Via::Agent {
            self.refused.extend(refuse_all("the agent cannot patch it"));
            return Ok(());
        }
        if plan.filter.is_some() {
            let why = "the kernel's uprobes cannot filter by argument";
            if self.link.is_none() {
                return Err(Error::new(why).with_hint("leave out `--filter`, or use `--via agent`"));
            }
            self.refused.extend(refuse_all(why));
            return Ok(());
        }
        let places: Vec<KernelProbe> = probes
            .iter()
            .map(|(probe, _)| KernelProbe {
                path: path_of(&probe.object.file),
                offset: probe.file_offset(),
            })
            .collect();
        let set = match UprobeSet::open(self.process, &places) {
            Ok(set) => set,
            Err(error) if self.link.is_some() => {
                self.notes
                    .push(format!("the kernel takes no probe: {error}"));
                self.refused.extend(refuse_all("the agent cannot patch it"));
                return Ok(());
            }
            Err(error) => {
                let said = Error::new(error.to_string());
                return Err(error
                    .hint()
                    .map_or(said, |hint| Error::new(error.to_string()).with_hint(hint)));
            }
        };
        let refusals: BTreeMap<usize, String> = set
            .refused()
            .iter()
            .map(|refused| (refused.probe, kernel_reason(&refused.error)))
            .collect();
        let mut left: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (index, (probe, own)) in probes.into_iter().enumerate() {
            if let Some(why) = refusals.get(&index) {
                self.refused.push((probe.event, why.clone()));
                continue;
            }
            if let Some(why) = own {
                left.entry(why).or_default().push(probe.event.clone());
            }
            self.counters.push(Counter {
                event: probe.event,
                names: probe.names,
                source: Source::Kernel(index),
            });
        }
        self.notes.extend(left.iter().map(left_to_kernel));
        if let Who::Threads(threads) = set.who() {
            self.notes.push(format!(
                "the kernel counts in the {} threads that ran when tracing began, not in later ones",
                threads.len()
            ));
        }
        self.kernel = Some(set);
        Ok(())
    }
}

/// What the agent left to the kernel, for one reason.
fn left_to_kernel((why, events): (&String, &Vec<String>)) -> String {
    const NAMED: usize = 3;
    let named = events[..events.len().min(NAMED)].join(", ");
    let more = match events.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("the kernel counts {named}{more}: {why}")
}

/// Why the kernel refuses a place, without the place: equal reasons group.
fn kernel_reason(error: &tiptoe_kernel::Error) -> String {
    match error {
        tiptoe_kernel::Error::Unprobeable { .. } => {
            "neither the agent nor the kernel can probe its first instruction".to_owned()
        }
        other => other.to_string(),
    }
}
