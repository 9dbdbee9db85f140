//! Names the inlined functions and source lines of instructions.

use std::collections::{BTreeSet, HashMap};

use tiptoe_kernel::watchpoints::WatchHits;
use tiptoe_session::{Note, WatchNote};
use tiptoe_symbol::Origin;

use super::begin::Target;
use super::variables::WatchedVariable;

pub(super) struct InstructionOrigins {
    known: HashMap<u64, Origin>,
    /// Files whose debug information takes too long to read.
    unread: Vec<String>,
}

impl InstructionOrigins {
    pub(super) fn of(
        found: &[WatchHits],
        variables: &[WatchedVariable],
        target: &Target,
    ) -> InstructionOrigins {
        let mut addresses = BTreeSet::new();
        for row in found {
            let variable = variables.get(row.key.variable as usize);
            addresses.extend(variable.map(|variable| variable.within(row.key.ip)));
            let mut callers = row.callers.clone();
            if row.is_partial {
                callers.extend(target.unwind(row.key.ip, &row.first));
            }
            addresses.extend(callers.iter().map(|back| back.wrapping_sub(1)));
        }
        let (mut known, mut unread) = (HashMap::new(), Vec::new());
        for module in &target.names.modules {
            let is_here = |at: &u64| module.text.iter().any(|text| text.contains(at));
            let here: Vec<u64> = addresses.iter().copied().filter(is_here).collect();
            if here.is_empty() {
                continue;
            }
            module.object.origins(|origins| {
                for at in here {
                    let Ok(origin) = origins.of(at.wrapping_sub(module.bias)) else {
                        return unread.push(module.name.clone());
                    };
                    known.insert(at, origin);
                }
            });
        }
        InstructionOrigins { known, unread }
    }

    pub(super) fn notes(&self) -> impl Iterator<Item = Note> {
        let unread = self.unread.iter().cloned();
        unread.map(|file| WatchNote::SourcesUnread { file }.into())
    }

    /// Returns a suffix such as ` (f < g inlined, file.c:12)`; empty if the origin is unknown.
    pub(super) fn source_suffix(&self, at: u64) -> String {
        let Some(origin) = self.known.get(&at) else {
            return String::new();
        };
        let inlined = match origin.inlined[..] {
            [] => None,
            _ => Some(format!("{} inlined", origin.inlined.join(" < "))),
        };
        let line = origin.line.as_ref();
        let line = line.map(|(file, line)| format!("{file}:{line}"));
        let all: Vec<String> = inlined.into_iter().chain(line).collect();
        match all.is_empty() {
            true => String::new(),
            false => format!(" ({})", all.join(", ")),
        }
    }

    /// Returns the functions inlined at the call that returns to `back`, innermost first.
    pub(super) fn inlined(&self, back: u64) -> impl Iterator<Item = String> {
        let origin = self.known.get(&back.wrapping_sub(1));
        let inlined = origin.into_iter().flat_map(|origin| &origin.inlined);
        inlined.map(|name| format!("{name} (inlined)"))
    }
}
