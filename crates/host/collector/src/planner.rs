//! Plans the patches of probes: the address and the bytes of each. A patched place is a *site*. Its patch leads to a
//! *trampoline* (code that counts and runs the displaced instructions) in an *arena* (memory near the code). Sites of
//! earlier sessions are reused, so that a thousand attaches need no more memory than one.

use std::collections::HashMap;
use std::ops::Range;

use tiptoe_patch::{
    Abi, Arena, Body, CallerArena, Hits, Patch, Planner, Refusal, Shape, Strategy, shape,
    signal_return,
};
use tiptoe_sys::host::attach_progress;
use tiptoe_sys::host::procfs::Mapping;
use tiptoe_wire::arena;
use tiptoe_wire::calls::intercepted;
use tiptoe_wire::{Geometry, Site, SiteFlags};

use crate::error::Reason;
use crate::module::Module;
use crate::probe_slots::{ProbeSlots, SlotKey};
use crate::resolve::Probe;

mod follow;
mod holds;
mod hooks;
mod intercept;
mod lock_sites;
mod own_mappings;
mod room;
mod standard;
mod unhooked_code;
mod wrappers;

pub use follow::{Follow, MOST_BY_VALUE};
pub use intercept::is_intercepted;
pub use lock_sites::{Locks, name_of, owners};
pub use standard::{Extent, standard_rows};
pub use unhooked_code::{blocks_signals, replaces_block};
pub use wrappers::{is_of_libc, wrappers};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookLocation {
    Libc,
    /// In other code. The agent (tiptoe's library) works without this hook.
    Elsewhere,
    /// In other code, at a call that may give a thread another thread-local block.
    Storage,
}

pub struct PlannedSite {
    pub site: Site,
    /// The bytes to write before the site is patched, by address; empty if they were written earlier.
    pub writes: Vec<(u64, Vec<u8>)>,
    /// Whether the agent's table has the site from an earlier session.
    pub is_in_table: bool,
    /// The address after the hooked system call; 0 for other sites.
    pub after_syscall: u64,
    pub location: HookLocation,
    /// Whether the agent's table has other sites at this address. If so, `Link::recall` must select this site before
    /// the address is patched again.
    pub has_others: bool,
    /// Where the trampoline saves return addresses; 0 if it saves none.
    pub callers: u64,
    /// Why only entries are counted, although times were requested.
    pub untimed: Option<Reason>,
}

impl PlannedSite {
    pub fn is_trap(&self) -> bool {
        self.site.flags.has(SiteFlags::TRAP)
    }

    pub fn has_room(&self, lost: &[u64]) -> bool {
        let at = [self.site.trampoline, self.callers].map(arena::base);
        !at.iter().any(|base| lost.contains(base))
    }
}

#[derive(Default)]
pub struct PatchPlan {
    pub ranges: Vec<Range<u64>>,
    pub arenas: Vec<Arena>,
    pub callers: Vec<CallerArena>,
    pub new_callers: Vec<u64>,
    pub hooks: Vec<PlannedSite>,
    /// Code that may give a thread another thread-local block but has no room for a hook.
    pub unhooked: Option<String>,
    pub restorer: Option<u64>,
    /// For each intercepted unwinder, the address of the function by which the agent reads a frame's address.
    pub unwinders: Vec<u64>,
    pub locks: Locks,
    pub probes: Vec<Result<PlannedSite, Reason>>,
}

pub struct ProcessState<'a> {
    pub maps: &'a [Mapping],
    pub agent_sites: &'a [Site],
    /// The ranges where this session's trampolines are mapped.
    pub mapped: Vec<Range<u64>>,
    pub callers: &'a [CallerArena],
    pub probe_slots: &'a ProbeSlots,
    pub geometry: Geometry,
    pub first_slot: u32,
    pub unwinders: &'a [u64],
    pub follows: bool,
    pub locks: bool,
    pub hold: Option<u64>,
    /// The function that the loader calls when its list of libraries changes.
    pub changed: Option<u64>,
    pub abi: Abi,
    pub hits: Hits,
    /// The %fs offset of [`tiptoe_wire::tls::RECALL`].
    pub recall: i32,
}

struct Draft<'a> {
    planner: Planner,
    state: &'a ProcessState<'a>,
    /// The agent's sites by address, the latest last.
    sites_by_address: HashMap<u64, Vec<&'a Site>>,
    next_slot: u32,
    /// The number of the next probe whose calls are followed ([`Follow`]). The number of an earlier probe is never
    /// reused.
    next_call: u32,
}

pub fn first_free_slot(known: &[Site]) -> u32 {
    let ends = known
        .iter()
        .map(|site| site.slot.saturating_add(site.width()));
    ends.max().unwrap_or(0).max(Geometry::FIRST_SLOT)
}

pub fn plan(state: &ProcessState, modules: &[Module], probes: &[Probe]) -> PatchPlan {
    let mut draft = Draft {
        planner: Planner::new(state.abi, room::space(state)),
        state,
        sites_by_address: by_address(state.agent_sites),
        next_slot: first_free_slot(state.agent_sites).max(state.first_slot),
        next_call: known_calls(state.agent_sites),
    };
    let mut plan = PatchPlan {
        unwinders: state.unwinders.to_vec(),
        ..PatchPlan::default()
    };
    for module in modules.iter().filter(|module| is_libc(module)) {
        let hooks = draft.hooks(module, &mut plan.locks);
        plan.hooks.extend(hooks);
        plan.restorer = plan.restorer.or_else(|| restorer(module));
    }
    for module in modules.iter().filter(unhooked_code::makes_own_calls) {
        draft.hooks_elsewhere(module, probes, &mut plan);
    }
    plan.hooks.extend(draft.changed(modules));
    if state.follows {
        draft.interceptions(modules, true, &mut plan);
    }
    if state.locks {
        draft.locks(modules, &mut plan.locks);
    }
    if let Some(lock) = state.hold {
        draft.holds(modules, lock, &mut plan.locks);
    }
    attach_progress::begin(probes.len());
    let probes = probes.iter().inspect(|_| attach_progress::advance(1));
    let draw = |probe| match attach_progress::is_broken_off() {
        true => Err(Reason::BrokenOff),
        false => draft.probe(probe),
    };
    plan.probes = probes.map(draw).collect();
    if !state.follows {
        // These hooks must be planned after the probes, because probes need the room near the code more.
        draft.interceptions(modules, false, &mut plan);
    }
    plan.ranges = draft.planner.new_ranges();
    plan.arenas = draft.planner.new_arenas();
    plan.callers = draft.planner.caller_arenas().to_vec();
    let known = |arena: &&CallerArena| state.callers.iter().any(|c| c.base == arena.base);
    let new = plan.callers.iter().filter(|arena| !known(arena));
    plan.new_callers = new.map(|arena| arena.base).collect();
    plan
}

impl PatchPlan {
    pub fn callers_but(&self, lost: &[u64]) -> Vec<CallerArena> {
        let mut callers = self.callers.clone();
        callers.retain(|arena| !lost.contains(&arena.base));
        callers
    }

    /// Returns the ranges of code that must get their own mappings before the sites selected by `will_be` are patched.
    pub fn ranges_of_own_mappings(
        &self,
        maps: &[Mapping],
        will_be: impl Fn(&Site) -> bool,
    ) -> Vec<Range<u64>> {
        let own = self.hooks.iter().chain(&self.locks.sites);
        let all = own.chain(self.probes.iter().flatten());
        let sites = all.map(|planned| &planned.site);
        own_mappings::ranges(maps, sites.filter(|site| will_be(site)))
    }
}

fn by_address(known: &[Site]) -> HashMap<u64, Vec<&Site>> {
    let mut sites: HashMap<u64, Vec<&Site>> = HashMap::new();
    for site in known {
        sites.entry(site.address).or_default().push(site);
    }
    sites
}

fn known_calls(known: &[Site]) -> u32 {
    known
        .iter()
        .filter(|site| site.flags.has(SiteFlags::CALL))
        .count() as u32
}

pub fn is_libc(module: &Module) -> bool {
    const NAMES: &[&str] = &["libc.so", "libc-", "ld-musl", "libc.musl", "libpthread"];
    NAMES.iter().any(|name| module.name.starts_with(name))
}

/// Returns whether a module belongs to the runtime of C or C++.
pub fn is_runtime(module: &Module) -> bool {
    const OTHERS: &[&str] = &["ld-linux", "librt.", "libstdc++", "libc++", "libgcc_s"];
    is_libc(module) || OTHERS.iter().any(|name| module.name.starts_with(name))
}

impl Draft<'_> {
    fn changed(&mut self, modules: &[Module]) -> Option<PlannedSite> {
        let address = self.state.changed?;
        let body = Body::Intercept {
            what: intercepted::CHANGED,
            stay: false,
        };
        modules.iter().find_map(|module| {
            let function = &module.object.image.functions()[module.function_at(address)?];
            self.interception(module, function, &body)
        })
    }

    fn known_at(&self, address: u64) -> impl Iterator<Item = &Site> {
        let known = self.sites_by_address.get(&address).into_iter().flatten();
        known.rev().copied()
    }

    fn reusable_at(&self, address: u64, wanted: impl Fn(&Site) -> bool) -> Option<PlannedSite> {
        let has_others = self.known_at(address).nth(1).is_some();
        let site = self.known_at(address).find(|site| wanted(site))?;
        Some(PlannedSite {
            site: *site,
            writes: Vec::new(),
            is_in_table: true,
            callers: 0,
            after_syscall: 0,
            location: HookLocation::Libc,
            has_others,
            untimed: None,
        })
    }

    /// Returns the latest `wanted` site for `shape`. The site must have the shape's original bytes, because another
    /// library may have been mapped at the address since.
    fn reusable(&self, shape: &Shape, wanted: impl Fn(&Site) -> bool) -> Option<PlannedSite> {
        self.reusable_at(shape.site(), |site| {
            site.original == shape.original() && wanted(site)
        })
    }

    fn lock_site(
        &mut self,
        module: &Module,
        shape: &Shape,
        body: &Body,
    ) -> Result<PlannedSite, Refusal> {
        if let Some(known) = self.reusable(shape, |known| known.body == body_hash(body)) {
            return Ok(known);
        }
        let linked = shape.site().wrapping_sub(module.bias);
        let islands = || module.object.paddings_near(linked, module.bias);
        let patch = self.planner.plan(shape, body, islands)?;
        Ok(planned(patch, 0, body))
    }

    /// If a probe's calls cannot be timed, plans to count only its entries.
    fn probe(&mut self, probe: &Probe) -> Result<PlannedSite, Reason> {
        match self.probe_as_requested(probe) {
            Err(why) if probe.follow.is_timed() => {
                let entries = self.probe_as_requested(&probe.clone().of_entries());
                entries.map_err(|_| why.clone()).map(|planned| PlannedSite {
                    untimed: Some(why),
                    ..planned
                })
            }
            planned => planned,
        }
    }

    fn probe_as_requested(&mut self, probe: &Probe) -> Result<PlannedSite, Reason> {
        let code = probe.object.code(&probe.function, probe.bias);
        let code = code.ok_or(Reason::NoCode)?;
        let mut shape = shape(&code, probe.offset as usize)?;
        if probe.function.is_cold {
            // A cold part is entered by a jump from the middle of its function, so any register may be live.
            shape = shape.preserving_everything();
        }
        let whole = Hits {
            by: None,
            ..self.state.hits
        };
        let body = |slot, number| match probe.follow {
            Follow::Values => Body::Count {
                slot,
                hits: self.state.hits,
            },
            Follow::No => Body::Count { slot, hits: whole },
            Follow::Record => Body::Record {
                slot,
                ring: self.state.geometry.ring_offset() as u32,
                hits: whole,
            },
            Follow::Gate => Body::Gate {
                slot,
                probe: number,
            },
            follow => Body::Call {
                slot,
                probe: number,
                timed: follow.is_timed(),
                hits: match follow {
                    Follow::TimedValues => self.state.hits,
                    _ => whole,
                },
            },
        };
        let own = self.state.probe_slots.slot(&SlotKey::of(probe));
        let fits = |known: &Site| match own {
            Some(slot) => known.slot == slot,
            None => !self.state.probe_slots.has(known.slot),
        };
        let same = |known: &Site| fits(known) && known.body == body_hash(&body(0, 0));
        if let Some(known) = self.reusable(&shape, same) {
            return Ok(known);
        }
        let width = probe.follow.width();
        let of_its_size = |known: &Site| fits(known) && known.width() == width;
        let of_its_size = self.reusable(&shape, of_its_size);
        let had = own.or(of_its_size.map(|known| known.site.slot));
        let slot = had.unwrap_or(self.next_slot);
        if slot.saturating_add(width) > self.state.geometry.slots {
            return Err(Reason::NoCounters);
        }
        let body = body(slot, self.next_call);
        let site = shape.site() - probe.bias;
        let islands = || probe.object.paddings_near(site, probe.bias);
        let patch = self.planner.plan(&shape, &body, islands)?;
        if had.is_none() {
            self.next_slot += width;
        }
        self.next_call += u32::from(probe.follow.is_followed());
        Ok(planned(patch, slot, &body))
    }
}

fn restorer(libc: &Module) -> Option<u64> {
    let mut functions = libc.object.image.functions().iter();
    functions.find_map(|function| signal_return(&libc.object.code(function, libc.bias)?))
}

fn body_hash(body: &Body) -> u32 {
    let text = match body {
        Body::Count { hits, .. } => format!("count {hits:?}"),
        Body::Record { ring, hits, .. } => format!("record {ring} {hits:?}"),
        Body::Call { timed, hits, .. } => format!("call {timed} {hits:?}"),
        Body::Gate { .. } => "gate".to_owned(),
        other => format!("{other:?}"),
    };
    hash(&text)
}

/// Returns the FNV-1a hash. Later versions of tiptoe with the same protocol must compute the same hash. It identifies
/// the [`Body`] of a site that an earlier session left in a target.
fn hash(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| {
        (hash ^ byte as u32).wrapping_mul(0x0100_0193)
    })
}

/// Returns the code and unwind information of a patch, and the index entry by which unwinders find that information.
fn writes(patch: Patch) -> Vec<(u64, Vec<u8>)> {
    let unit = (patch.unwind.address % arena::LEN / arena::UNIT) as u16;
    vec![
        (patch.trampoline, patch.code),
        (patch.unwind.address, patch.unwind.bytes),
        (arena::entry(patch.trampoline), unit.to_le_bytes().to_vec()),
    ]
}

fn planned(patch: Patch, slot: u32, body: &Body) -> PlannedSite {
    let mut site = Site {
        address: patch.site,
        trampoline: patch.trampoline,
        slot,
        len: patch.len,
        original: patch.original,
        patched: patch.patched,
        head_count: patch.heads.len() as u8,
        code_len: patch.code.len() as u16,
        unwind: (patch.unwind.address % arena::LEN / arena::UNIT) as u16,
        unwind_len: (patch.unwind.bytes.len() as u64 / arena::UNIT) as u8,
        body: body_hash(body),
        ..Site::default()
    };
    for (to, head) in site.heads.iter_mut().zip(&patch.heads) {
        *to = *head;
    }
    if let Some(island) = &patch.island {
        site.island = island.address;
        site.island_original[..5].copy_from_slice(&island.original);
        site.island_patched[..5].copy_from_slice(&island.patched);
    }
    site.flags = match body {
        Body::Count { .. } => SiteFlags::default(),
        Body::Record { .. } => SiteFlags::RECORDS,
        Body::Call { timed: true, .. } => SiteFlags::CALL.with(SiteFlags::TIMED),
        Body::Call { .. } | Body::Gate { .. } => SiteFlags::CALL,
        Body::Intercept { stay: true, .. } => SiteFlags::HOOK.with(SiteFlags::STAYS),
        Body::Syscall { .. } | Body::SyscallAny { .. } | Body::Intercept { .. } => SiteFlags::HOOK,
        Body::Futex(_) | Body::Hold { .. } => SiteFlags::FUTEX,
    };
    let flags = [
        (patch.needs_sigill, SiteFlags::NEEDS_SIGILL),
        (patch.strategy == Strategy::Trap, SiteFlags::TRAP),
        (
            matches!(body, Body::Count { hits, .. } | Body::Call { hits, .. } if hits.by.is_some()),
            SiteFlags::VALUED,
        ),
    ];
    for (_, flag) in flags.into_iter().filter(|(set, _)| *set) {
        site.flags = site.flags.with(flag);
    }
    PlannedSite {
        site,
        callers: patch.callers,
        writes: writes(patch),
        is_in_table: false,
        after_syscall: 0,
        location: HookLocation::Libc,
        has_others: false,
        untimed: None,
    }
}
