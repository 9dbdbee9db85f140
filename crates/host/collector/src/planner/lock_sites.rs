//! The sites (places to patch) where threads wait for locks: futex calls in all modules.

use std::collections::BTreeMap;
use std::ops::Range;

use tiptoe_patch::{Body, FutexSite, Notice, Shape, futex_sites, transfers};
use tiptoe_stack::Rule;
use tiptoe_symbol::Function;
use tiptoe_wire::futex::frames::owner;

use super::{Draft, PlannedSite, is_libc};
use crate::error::Reason;
use crate::module::Module;

const NUMBER: [u8; 4] = [0xca, 0, 0, 0];
/// The beginning of libc's cancellable futex calls since glibc 2.41: a push of the call's number.
const CANCELLABLE: [u8; 5] = [0x68, 0xca, 0, 0, 0];

#[derive(Default)]
pub struct Locks {
    pub sites: Vec<PlannedSite>,
    /// For each futex call, the address of its site, and that of the instruction that makes the system call.
    pub calls: Vec<(u64, u64)>,
    pub left_out: Vec<(String, Reason)>,
    pub in_part: Vec<(String, Reason)>,
}

pub(super) struct Calls {
    pub(super) sites: Vec<FutexSite>,
    /// Addresses of possible cancellable calls that are not in `sites`.
    unknown: Vec<u64>,
}

impl Calls {
    pub(super) fn of(module: &Module) -> Calls {
        let (mut sites, mut unknown) = (Vec::new(), Vec::new());
        let functions = module.object.image.functions();
        let other = |address: u64| {
            let function = &functions[module.function_at(address)?];
            module.object.code(function, module.bias)
        };
        for function in functions {
            let Some(code) = module.object.code(function, module.bias) else {
                continue;
            };
            if !code.bytes.windows(4).any(|four| four == NUMBER) {
                continue;
            }
            let found = futex_sites(&code, other);
            if is_libc(module) {
                let pushes = code.bytes.windows(5).enumerate();
                let pushes = pushes.filter(|(_, five)| *five == CANCELLABLE);
                let pushes = pushes.map(|(at, _)| code.address + at as u64);
                unknown.extend(pushes.filter(|at| found.iter().all(|s| s.call.address != *at)));
            }
            sites.extend(found);
        }
        Calls { sites, unknown }
    }
}

/// If either rule is unknown, returns both as unknown.
fn rules_around(module: &Module, site: &FutexSite) -> [Rule; 2] {
    let front = site.call.address;
    let after = site.after_call.as_ref().map_or(front, Shape::site);
    let table = module.object.unwind_table();
    let rules = [front, after].map(|at| table.rule(at.wrapping_sub(module.bias)));
    match rules.contains(&Rule::UNKNOWN) {
        true => [Rule::UNKNOWN; 2],
        false => rules,
    }
}

pub fn name_of(modules: &[Module], address: u64) -> String {
    let mut modules = modules.iter();
    match modules.find(|module| module.contains(address)) {
        Some(module) => name(module, address),
        None => format!("futex:{address:#x}"),
    }
}

fn name(module: &Module, address: u64) -> String {
    let linked = address.wrapping_sub(module.bias);
    match module.object.image.function_containing(linked) {
        Some(function) => {
            let offset = linked - function.address;
            format!(
                "futex:{}:{}+{offset:#x}",
                module.name,
                function.display_name()
            )
        }
        None => format!("futex:{}:{linked:#x}", module.name),
    }
}

/// Prefixes of the functions of [`owners`].
const OWNERS: [(&str, u64); 5] = [
    ("pthread_rwlock_", owner::RWLOCK),
    ("pthread_mutex_", owner::MUTEX),
    ("mtx_", owner::MUTEX),
    ("pthread_cond_", owner::CONDITION),
    ("cnd_", owner::CONDITION),
];

fn owner_by_name(function: &Function) -> Option<u64> {
    let named = |name: &str| {
        let bare = name.trim_start_matches('_');
        let found = OWNERS.iter().find(|(start, _)| bare.starts_with(start));
        // Of a condition's functions, only those that wait take its mutex.
        let (_, owner) =
            found.filter(|(_, at)| *at != owner::CONDITION || bare.contains("wait"))?;
        Some(*owner)
    };
    function.names.iter().find_map(|name| named(name))
}

/// Returns glibc's functions that wait for a lock which records its holder, with the lock's kind. A
/// nameless function, which the compiler has split off, has the kind of the function that jumps to
/// it.
pub fn owners(module: &Module) -> Vec<(Range<u64>, u64)> {
    if !is_libc(module) || module.name.contains("musl") {
        return Vec::new();
    }
    let functions = module.object.image.functions();
    let mut found: BTreeMap<usize, u64> = BTreeMap::new();
    for (at, function) in functions.iter().enumerate() {
        let Some(owner) = owner_by_name(function) else {
            continue;
        };
        found.insert(at, owner);
        let code = module.object.code(function, module.bias);
        let jumps = code.map(|code| transfers(&code)).unwrap_or_default();
        for (target, _) in jumps.into_iter().filter(|(_, returns)| returns.is_none()) {
            if let Some(target) = module.function_at(target)
                && functions[target].names.is_empty()
            {
                found.entry(target).or_insert(owner);
            }
        }
    }
    let mut ranges: Vec<(Range<u64>, u64)> = Vec::new();
    let mut last = usize::MAX;
    for (at, owner) in found {
        let Function { address, size, .. } = functions[at];
        let [start, end] = [address, address + size].map(|linked| linked.wrapping_add(module.bias));
        match ranges.last_mut() {
            // Neighbours are one range, because the agent (tiptoe's library) has room for few ranges.
            Some((range, same)) if last.wrapping_add(1) == at && *same == owner => range.end = end,
            _ => ranges.push((start..end, owner)),
        }
        last = at;
    }
    ranges
}

impl Draft<'_> {
    pub(super) fn locks(&mut self, modules: &[Module], locks: &mut Locks) {
        for module in modules {
            let calls = Calls::of(module);
            let owners = owners(module);
            for site in &calls.sites {
                let notice = self.notice(module, site, &owners, locks);
                let call = (site.call.shape.site(), site.call.syscall);
                locks.calls.push(call);
                self.lock_half(module, &site.call.shape, notice, locks);
            }
            let unknown = calls.unknown.iter();
            let unknown = unknown.map(|at| (name(module, *at), Reason::CancellableWaits));
            locks.left_out.extend(unknown);
        }
    }

    /// Plans the site after a call. Returns the notice (what the generated code passes to the agent) for the site
    /// before the call. The notice says whether the wait is timed, which needs both sites.
    fn notice(
        &mut self,
        module: &Module,
        site: &FutexSite,
        owners: &[(Range<u64>, u64)],
        locks: &mut Locks,
    ) -> Notice {
        let [front, after] = rules_around(module, site).map(Rule::bits);
        let shape = site.after_call.as_ref();
        let after = Notice::after_call(site, after);
        let timed = shape.is_some_and(|shape| self.lock_half(module, shape, after, locks));
        let notice = Notice::before_call(front, timed);
        let mut owners = owners.iter();
        match owners.find(|(range, _)| range.contains(&site.call.address)) {
            Some((_, owner::RWLOCK)) => notice.of_rwlock(),
            Some((_, owner::MUTEX)) => notice.of_mutex(),
            _ => notice,
        }
    }

    /// Plans the site before or after a call, unless an earlier call has the same site. Returns whether the site is
    /// planned.
    fn lock_half(
        &mut self,
        module: &Module,
        shape: &Shape,
        notice: Notice,
        locks: &mut Locks,
    ) -> bool {
        let mut sites = locks.sites.iter();
        if sites.any(|planned| planned.site.address == shape.site()) {
            return true;
        }
        let why = match self.lock_site(module, shape, &Body::Futex(notice)) {
            Ok(planned) => {
                locks.sites.push(planned);
                return true;
            }
            Err(why) => why,
        };
        let place = name(module, shape.site());
        match notice.is_after_call() {
            true => locks.in_part.push((place, Reason::WaitsUntimed(why))),
            false => locks.left_out.push((place, why.into())),
        }
        false
    }

    /// Plans the site after the call in libc's function `syscall`, which may be a futex call. Returns the notice for
    /// the site before the call; `None` if locks are not watched.
    pub(super) fn any_notice(
        &mut self,
        module: &Module,
        site: &FutexSite,
        locks: &mut Locks,
    ) -> Option<Notice> {
        if !self.state.locks {
            return None;
        }
        let call = (site.call.shape.site(), site.call.syscall);
        locks.calls.push(call);
        Some(self.notice(module, site, &[], locks))
    }
}
