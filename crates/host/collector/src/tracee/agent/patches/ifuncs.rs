//! The functions that IFUNCs chose.

use std::collections::BTreeMap;

use tiptoe_attach::link::Link;
use tiptoe_session::EventNote;

use crate::error::{Error, Reason};
use crate::module::Module;
use crate::resolve::{Limits, Probe};

/// Returns probes of the chosen implementations. Adds the IFUNCs without a probe to `refused`.
pub fn chosen(
    link: &Link,
    modules: &[Module],
    ifuncs: Vec<Probe>,
    refused: &mut Vec<(String, Reason)>,
) -> Result<Vec<Probe>, Error> {
    let resolvers: Vec<u64> = ifuncs.iter().map(Probe::address).collect();
    let chosen = link.resolve(&resolvers)?;
    let mut probes = Vec::new();
    for (ifunc, address) in ifuncs.into_iter().zip(chosen) {
        let home = modules.iter().find(|module| module.contains(address));
        let function = home.and_then(|module| {
            let image = &module.object.image;
            let found = image.function_containing(address.wrapping_sub(module.bias))?;
            let here = found.address.wrapping_add(module.bias) == address;
            here.then(|| (module, found.clone()))
        });
        match function {
            Some((module, function)) => {
                let limits = Limits::new(module, modules);
                let allowed = limits.allowed(&function, ifunc.follow, &ifunc.event, refused);
                let Some(follow) = allowed else {
                    continue;
                };
                let selected = EventNote::Selected {
                    function: function.display_name().into_owned(),
                };
                let notes = vec![selected.into()];
                let object = module.object.clone();
                probes.push(Probe {
                    notes,
                    object,
                    bias: module.bias,
                    function,
                    follow,
                    ..ifunc
                });
            }
            None => {
                refused.push((ifunc.event, Reason::UnknownChoice));
            }
        }
    }
    Ok(probes)
}

/// Adds `more` probes. If a probe is already at the same address, that probe only gets the names of the new probe.
pub fn merge(probes: &mut Vec<Probe>, more: Vec<Probe>) {
    let mut places: BTreeMap<u64, usize> = probes
        .iter()
        .enumerate()
        .map(|(index, probe)| (probe.address(), index))
        .collect();
    for probe in more {
        match places.get(&probe.address()) {
            Some(index) => {
                let known = &mut probes[*index].names;
                let name = probe
                    .event
                    .rsplit(':')
                    .next()
                    .unwrap_or_default()
                    .to_owned();
                known.extend([name].into_iter().chain(probe.names));
                known.sort();
                known.dedup();
            }
            None => {
                places.insert(probe.address(), probes.len());
                probes.push(probe);
            }
        }
    }
}
