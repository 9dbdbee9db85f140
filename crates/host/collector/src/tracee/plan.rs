//! The part of a request that applies to each process.

use std::cell::OnceCell;

use tiptoe_attach::link::Terms;
use tiptoe_event::Via;
use tiptoe_patch::{GroupValue, Hits};
use tiptoe_price::{KernelCosts, PriceCache, TrapAlternatives, clock, kernel_costs};
use tiptoe_sys::host::procfs::Process;
use tiptoe_wire::{Clock, futex, scopes};

use super::budget;
use crate::error::{AgentOption, AgentSubstitute, Error};
use crate::module::Module;
use crate::planner::Follow;
use crate::request::{By, ByLock, Request, RequestTarget};
use crate::resolve::{self, Resolution};

#[derive(Default)]
pub struct Plan<'a> {
    pub agent: &'static [u8],
    pub specs: &'a [String],
    pub hits: Hits,
    /// The function whose calls must enclose a hit.
    pub under: Option<&'a str>,
    pub via: Via,
    pub by: Option<By>,
    /// Enter the process even if a rule forbids it.
    pub force: bool,
    /// Shorter calls, in ns, are only counted; `None` if calls are not timed.
    pub calls: Option<u64>,
    pub record: bool,
    /// Whether each recorded call is reported; otherwise it is only counted.
    pub wants_calls: bool,
    pub locks: bool,
    /// The lock whose hold times are measured.
    pub hold: Option<&'a str>,
    /// Whether locks are reported by thread.
    pub lock_threads: bool,
    /// Whether counts, locks or times are reported by scope.
    pub scopes: bool,
    /// The events to charge to scopes; `None` if scopes' costs are not requested.
    pub charges: Option<&'a [String]>,
    /// Whether variables are watched. If so, a command must not begin before they are found.
    pub breakpoints: bool,
    /// The most that followed calls may cost, as a part of the target's CPU time.
    pub share: Option<f64>,
    /// Whether the target is a command that tiptoe starts.
    pub starts: bool,
    /// What a trap and the kernel's uprobes cost; set at the first function that would get a trap.
    pub trap_alternatives: OnceCell<Option<TrapAlternatives>>,
}

impl<'a> Plan<'a> {
    pub fn of(request: &'a Request) -> Plan<'a> {
        Plan {
            agent: request.agent,
            specs: &request.specs,
            hits: Hits {
                filter: request.filter,
                under: request.under.is_some(),
                by: match request.by {
                    Some(By::Argument(arg)) => Some(GroupValue::Argument(arg)),
                    Some(By::Scope) => Some(GroupValue::Scope),
                    _ => None,
                },
            },
            under: request.under.as_deref(),
            via: request.via,
            by: request.by,
            force: request.force,
            calls: request.latency.then_some(request.slower_ns.unwrap_or(0)),
            record: request.record,
            locks: request.locks.is_some(),
            hold: request.hold.as_deref(),
            lock_threads: request.locks == Some(ByLock::Thread),
            scopes: request.by == Some(By::Scope)
                || request.locks == Some(ByLock::Scope)
                || request.scopes.is_some(),
            charges: request.scopes.as_deref(),
            share: request.budget.share(),
            starts: matches!(request.target, RequestTarget::Command(_)),
            ..Plan::default()
        }
    }

    /// Returns the probes of a process, and the gate.
    pub fn resolve(&self, process: Process, modules: &[Module]) -> Result<Resolution, Error> {
        self.resolved(self.specs, process, modules, false)
    }

    /// As [`Plan::resolve`], but specs may also match libraries that are loaded later.
    pub fn resolve_or_wait(
        &self,
        process: Process,
        modules: &[Module],
    ) -> Result<Resolution, Error> {
        self.resolved(self.specs, process, modules, true)
    }

    fn resolved(
        &self,
        specs: &[String],
        process: Process,
        modules: &[Module],
        wait: bool,
    ) -> Result<Resolution, Error> {
        let probes = resolve::resolve(specs, self.entries(), process, modules, wait)?;
        match self.under {
            Some(function) => resolve::below(probes, function, process, modules),
            None => Ok(probes),
        }
    }

    /// Returns the option because of which the kernel cannot count for this request; `None` if it can.
    pub fn against_kernel(&self) -> Option<AgentOption> {
        let options = [
            (self.record, AgentOption::Record),
            (self.hits.filter.is_some(), AgentOption::Filter),
            (self.hits.under, AgentOption::Under),
        ];
        let given = options.into_iter().find(|(given, _)| *given);
        given.map(|(_, option)| option)
    }

    /// Returns what a trap and the kernel's uprobes cost; `None` if they cannot be measured. The first call of a boot
    /// takes tens of ms, others of a run get the value of the first.
    pub fn fetch_trap_alternatives(&self) -> Option<TrapAlternatives> {
        let fetch = || TrapAlternatives::fetch(&PriceCache::of_this_user());
        *self.trap_alternatives.get_or_init(fetch)
    }

    /// Returns what the kernel's uprobes cost.
    pub fn fetch_kernel_costs(&self) -> KernelCosts {
        let known = self.trap_alternatives.get().copied().flatten();
        known.map_or_else(
            || kernel_costs(&PriceCache::of_this_user()),
            |known| known.kernel,
        )
    }

    /// Returns what the kernel observes if the agent cannot enter.
    pub fn agent_substitute(&self) -> AgentSubstitute {
        match (self.locks, self.breakpoints) {
            (true, _) => AgentSubstitute::Locks,
            (_, true) => AgentSubstitute::Variables,
            _ => AgentSubstitute::Functions,
        }
    }

    /// Returns what is recorded of each entry.
    pub fn entries(&self) -> Follow {
        match (self.calls, self.hits.by) {
            (Some(_), None) => Follow::Times,
            (Some(_), Some(_)) => Follow::TimedValues,
            (None, _) if self.record => Follow::Record,
            (None, Some(_)) => Follow::Values,
            (None, None) => Follow::No,
        }
    }

    /// Returns the most that is recorded of any probe's hits.
    pub fn follow(&self) -> Follow {
        let returns = || self.specs.iter().any(|spec| spec.starts_with("uretprobe:"));
        match self.entries() {
            Follow::No if returns() => Follow::Returns,
            entries => entries,
        }
    }

    /// Returns the terms for an agent whose slots are free from `free_slot` on.
    pub fn terms(&self, free_slot: u32) -> Terms {
        let behind_locks = free_slot + if self.locks { futex::WIDTH } else { 0 };
        Terms {
            lock_slot: if self.locks { free_slot } else { 0 },
            scope_slot: if self.scopes { behind_locks } else { 0 },
            // A thread's name is stored with its slab, so no other thread may take the slab over.
            keep_slabs: self.lock_threads || matches!(self.by, Some(By::Thread | By::Comm)),
            clock: Clock {
                credit: self.share.map_or(budget::UNLIMITED, |_| budget::INITIAL),
                ns_per_tick: match self.calls.is_some() || self.locks || self.scopes {
                    true => clock::ns_per_tick(),
                    false => 0,
                },
                slower_ns: self.calls.unwrap_or(0),
            },
            // False until the program's modules are known.
            trap_bytes: false,
        }
    }

    /// Returns the number of slots besides those of counted events.
    pub fn own_slots(&self) -> u32 {
        let locks = if self.locks { futex::WIDTH } else { 0 };
        let scopes = if self.scopes { scopes::WIDTH } else { 0 };
        locks + scopes
    }
}
