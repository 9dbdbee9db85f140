//! Derives from a request what to do in each process.

use std::cell::OnceCell;

use tiptoe_attach::link::Terms;
use tiptoe_event::{Kind, ProbeSpec};
use tiptoe_patch::{GroupValue, Hits};
use tiptoe_price::{KernelCosts, PriceCache, TrapAlternatives, clock, kernel_costs};
use tiptoe_sys::host::procfs::Process;
use tiptoe_wire::{Clock, Layout, Needs};

use crate::error::{AgentOption, AgentSubstitute, Error};
use crate::module::Module;
use crate::planner::Follow;
use crate::request::{Request, Split};
use crate::resolve::{self, Resolution};

const UNLIMITED_CREDIT: u64 = u64::MAX >> 1;
pub const INITIAL_CREDIT: u64 = 1000;

pub struct Plan<'a> {
    pub request: &'a Request<'a>,
    pub probes: Vec<ProbeSpec<'a>>,
    pub wants_calls: bool,
    trap_alternatives: OnceCell<Option<TrapAlternatives>>,
}

impl<'a> Plan<'a> {
    pub fn of(request: &'a Request<'a>, wants_calls: bool) -> Plan<'a> {
        Plan {
            request,
            probes: request.probes().collect(),
            wants_calls,
            trap_alternatives: OnceCell::new(),
        }
    }

    pub fn hits(&self) -> Hits {
        Hits {
            filter: self.request.calls.filter,
            under: self.request.calls.under.is_some(),
            by: match self.request.hit_split() {
                Some(Split::Argument(arg)) => Some(GroupValue::Argument(arg)),
                Some(Split::Scope) => Some(GroupValue::Scope),
                _ => None,
            },
        }
    }

    pub fn locks(&self) -> bool {
        self.request.user_locks().is_some()
    }

    pub fn has_hits(&self) -> bool {
        !self.probes.is_empty() || self.request.reports_scopes() || !self.locks()
    }

    pub fn hold(&self) -> Option<&'a str> {
        self.request.user_locks()?.held
    }

    pub fn lock_threads(&self) -> bool {
        self.locks() && self.request.user_lock_split() == Split::Thread
    }

    pub fn breakpoints(&self) -> bool {
        self.request.variables().next().is_some()
    }

    /// With `may_wait`, a spec that only a later library may match is no error.
    pub fn resolve(
        &self,
        process: Process,
        modules: &[Module],
        may_wait: bool,
    ) -> Result<Resolution, Error> {
        let probes = resolve::resolve(&self.probes, self.entries(), process, modules, may_wait)?;
        match self.request.calls.under {
            Some(function) => resolve::below(probes, function, process, modules),
            None => Ok(probes),
        }
    }

    pub fn against_kernel(&self) -> Option<AgentOption> {
        let options = [
            (self.request.calls.record, AgentOption::Record),
            (self.request.calls.filter.is_some(), AgentOption::Filter),
            (self.request.calls.under.is_some(), AgentOption::Under),
        ];
        let given = options.into_iter().find(|(given, _)| *given);
        given.map(|(_, option)| option)
    }

    /// Returns what a trap and a uprobe cost here; `None` if that cannot be measured. Measuring takes tens of ms, once
    /// after a boot.
    pub fn fetch_trap_alternatives(&self) -> Option<TrapAlternatives> {
        let fetch = || TrapAlternatives::fetch(&PriceCache::of_this_user());
        *self.trap_alternatives.get_or_init(fetch)
    }

    pub fn fetch_kernel_costs(&self) -> KernelCosts {
        let known = self.trap_alternatives.get().copied().flatten();
        known.map_or_else(
            || kernel_costs(&PriceCache::of_this_user()),
            |known| known.kernel,
        )
    }

    pub fn agent_substitute(&self) -> AgentSubstitute {
        match (self.locks(), self.breakpoints()) {
            (true, _) => AgentSubstitute::Locks,
            (_, true) => AgentSubstitute::Variables,
            _ => AgentSubstitute::Functions,
        }
    }

    /// Returns the time in ns below which timed calls are not counted; `None` if calls are not timed.
    fn timed_ns(&self) -> Option<u64> {
        let calls = &self.request.calls;
        calls.latency.then_some(calls.slower_ns.unwrap_or(0))
    }

    pub fn entries(&self) -> Follow {
        match (self.timed_ns(), self.hits().by) {
            (Some(_), None) => Follow::Times,
            (Some(_), Some(_)) => Follow::TimedValues,
            (None, _) if self.request.calls.record => Follow::Record,
            (None, Some(_)) => Follow::Values,
            (None, None) => Follow::No,
        }
    }

    /// Returns the most detailed recording of any probe.
    pub fn follow(&self) -> Follow {
        let is_return = |probe: &ProbeSpec<'_>| probe.spec.kind == Kind::Uretprobe;
        let returns = || self.probes.iter().any(is_return);
        match self.entries() {
            Follow::No if returns() => Follow::Returns,
            entries => entries,
        }
    }

    /// `known` is the number of counters that an earlier session's patches use.
    pub fn needs(&self, known: u32, counters: u32) -> Needs {
        Needs {
            known,
            counters,
            locks: self.locks(),
            scopes: self.request.needs_scopes(),
            rings: self.request.calls.record,
            hits: self.breakpoints(),
        }
    }

    pub fn terms(&self, layout: &Layout) -> Terms {
        Terms {
            lock_slot: layout.lock_slot,
            scope_slot: layout.scope_slot,
            // A thread's name is stored with its slab (the thread's counters), so no other thread may take the slab
            // over.
            keep_slabs: self.lock_threads()
                || matches!(self.request.hit_split(), Some(Split::Thread | Split::Comm)),
            clock: Clock {
                credit: match self.request.budget_share() {
                    Some(_) => INITIAL_CREDIT,
                    None => UNLIMITED_CREDIT,
                },
                ns_per_tick: match self.timed_ns().is_some()
                    || self.locks()
                    || self.request.needs_scopes()
                {
                    true => clock::ns_per_tick(),
                    false => 0,
                },
                slower_ns: self.timed_ns().unwrap_or(0),
            },
            // Set later, when the program's modules are known.
            trap_bytes: false,
            locked_lookups: self.request.calls.locked_lookups,
        }
    }
}
