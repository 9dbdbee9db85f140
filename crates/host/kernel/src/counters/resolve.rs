//! Translates an event's name to what perf_event_open(2) takes.

use tiptoe_event::counter::Modifiers;
use tiptoe_event::{Counter, CounterKind};
use tiptoe_sys::host::perf::{self, Attr, CountedOn, abi};

use super::{pmu, tracepoint};
use crate::Error;

/// A resolved event.
#[derive(Clone, Debug)]
pub struct KernelEvent {
    /// The name, with its group's modifiers.
    pub name: String,
    /// The factor from a count to the unit.
    pub scale: f64,
    /// The unit; empty for plain events, ns for clocks.
    pub unit: String,
    pub(crate) attr: Attr,
    pub(super) is_pinned: bool,
    pub(super) is_exclusive: bool,
    /// Whether the request names a PMU (`PMU/EVENT/`), and no modifier selects guests or the host.
    pub(super) is_of_own_pmu: bool,
    /// The CPUs that count, each for its socket; `None` if each CPU counts for itself.
    pub(super) cpus: Option<Vec<u32>>,
}

impl KernelEvent {
    /// Returns whether the event is a tracepoint.
    pub fn is_tracepoint(&self) -> bool {
        self.attr.type_ == abi::PERF_TYPE_TRACEPOINT
    }

    pub(super) fn is_counted_on(&self, on: CountedOn) -> bool {
        match (&self.cpus, on) {
            (Some(cpus), CountedOn::Cpu(cpu)) => cpus.contains(&cpu),
            // A socket's event belongs to no cgroup.
            (Some(_), CountedOn::Cgroup { .. }) => false,
            _ => true,
        }
    }
}

pub(crate) fn resolve(counter: &Counter<'_>) -> Result<KernelEvent, Error> {
    let mut resolved = KernelEvent {
        name: match counter.is_modified_by_group {
            true => format!("{}:{}", counter.name, counter.modifiers),
            false => counter.text.to_owned(),
        },
        scale: 1.0,
        unit: String::new(),
        attr: Attr::default(),
        is_pinned: counter.modifiers.pinned,
        is_exclusive: counter.modifiers.exclusive,
        is_of_own_pmu: matches!(counter.kind, CounterKind::Pmu { .. })
            && !(counter.modifiers.guest || counter.modifiers.host),
        cpus: None,
    };
    resolved.attr = match counter.kind {
        CounterKind::Hardware(config) => with_config(abi::PERF_TYPE_HARDWARE, config),
        CounterKind::Cache(config) => with_config(abi::PERF_TYPE_HW_CACHE, config),
        CounterKind::Raw(config) => with_config(abi::PERF_TYPE_RAW, config),
        CounterKind::Software(config) => {
            if config <= u64::from(abi::PERF_COUNT_SW_TASK_CLOCK) {
                resolved.unit = "ns".into();
            }
            with_config(abi::PERF_TYPE_SOFTWARE, config)
        }
        CounterKind::Tracepoint { group, name } => {
            with_config(abi::PERF_TYPE_TRACEPOINT, tracepoint::id(group, name)?)
        }
        CounterKind::Pmu { pmu, terms } => {
            let found = pmu::Pmu::find(pmu)?.terms(terms)?;
            (resolved.scale, resolved.unit, resolved.cpus) = (found.scale, found.unit, found.cpus);
            found.attr
        }
    };
    modify(&mut resolved.attr, &counter.modifiers);
    Ok(resolved)
}

fn with_config(kind: u32, config: u64) -> Attr {
    let mut attr = perf::attr(kind, 0);
    attr.config = config;
    attr
}

fn modify(attr: &mut Attr, modifiers: &Modifiers) {
    let not = |counts: bool| u64::from(!counts);
    attr.set_exclude_user(not(modifiers.counts_user()));
    attr.set_exclude_kernel(not(modifiers.counts_kernel()));
    attr.set_exclude_hv(not(modifiers.counts_hypervisor()));
    attr.set_exclude_idle(u64::from(modifiers.not_idle));
    let is_named = modifiers.guest || modifiers.host;
    attr.set_exclude_guest(u64::from(!modifiers.guest));
    attr.set_exclude_host(u64::from(is_named && !modifiers.host));
    attr.set_precise_ip(u64::from(modifiers.precise));
}
