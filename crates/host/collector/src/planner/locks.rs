//! Where threads wait for locks: the futex calls of the C library and of whoever makes
//! such calls himself, and the frames between them and the user.

use std::collections::{BTreeMap, BTreeSet};

use tiptoe_patch::{Body, FutexSite, Notice, Shape, futex_sites, transfers};
use tiptoe_symbol::depths;
use tiptoe_wire::futex::frames;

use super::{Draft, Planned, again, body_hash, is_libc, planned};
use crate::module::Module;

/// The number of futex calls, as an operand.
const NUMBER: [u8; 4] = [0xca, 0, 0, 0];
/// How libc begins a call that may be cancelled, from version 2.41 on: the number is pushed.
const CANCELLABLE: [u8; 5] = [0x68, 0xca, 0, 0, 0];
/// The return addresses that are kept at most: more would not all find room.
const MOST_FRAMES: usize = frames::ROOM as usize * 3 / 4;

const BEHIND: Body = Body::Futex(Notice::BEHIND);

/// What is planned for locks.
#[derive(Default)]
pub struct Locks {
    /// In front of futex calls and behind them.
    pub sites: Vec<Planned>,
    /// Return addresses in libc, and how far above the stack pointer the frames begin.
    pub frames: Vec<(u64, u64)>,
    /// Calls that cannot be told of, or not whether they are over, each with the reason.
    pub left_out: Vec<(String, String)>,
}

/// The futex calls of one module.
pub(super) struct Calls<'a> {
    module: &'a Module,
    /// Each with the index of its function.
    sites: Vec<(usize, FutexSite)>,
    /// Where calls begin that go another way.
    unknown: Vec<u64>,
}

impl<'a> Calls<'a> {
    /// Finds them.
    pub(super) fn of(module: &'a Module) -> Calls<'a> {
        let (mut sites, mut unknown) = (Vec::new(), Vec::new());
        for (index, function) in module.object.image.functions().iter().enumerate() {
            let Some(code) = module.object.code(function, module.bias) else {
                continue;
            };
            let may = code.bytes.windows(4).any(|four| four == NUMBER);
            let found = if may { futex_sites(&code) } else { Vec::new() };
            sites.extend(found.into_iter().map(|site| (index, site)));
            if may && is_libc(module) {
                let pushes = code.bytes.windows(5).enumerate();
                let pushes = pushes.filter(|(_, five)| *five == CANCELLABLE);
                unknown.extend(pushes.map(|(at, _)| code.address + at as u64));
            }
        }
        Calls {
            module,
            sites,
            unknown,
        }
    }

    fn depths(&self, at: impl Iterator<Item = u64>) -> Vec<Option<u16>> {
        let linked: Vec<u64> = at.map(|at| at.wrapping_sub(self.module.bias)).collect();
        depths(self.module.object.bytes(), &linked)
    }

    /// The return addresses of the module's calls that may lead to a wait, nearest first.
    fn frames(&self) -> Vec<(u64, u64)> {
        let (image, bias) = (&self.module.object.image, self.module.bias);
        let functions = image.functions();
        let mut callers: BTreeMap<usize, Vec<(usize, Option<u64>)>> = BTreeMap::new();
        for (index, function) in functions.iter().enumerate() {
            let Some(code) = self.module.object.code(function, bias) else {
                continue;
            };
            for (target, returns_to) in transfers(&code) {
                let target = target.wrapping_sub(bias);
                let callee = functions.partition_point(|f| f.address < target);
                if functions.get(callee).is_some_and(|f| f.address == target) && callee != index {
                    let calls = callers.entry(callee).or_default();
                    calls.push((index, returns_to));
                }
            }
        }
        let mut level: BTreeSet<usize> = self.sites.iter().map(|(index, _)| *index).collect();
        let mut seen = level.clone();
        let mut returns = Vec::new();
        while !level.is_empty() && returns.len() < MOST_FRAMES {
            let of_level = level
                .iter()
                .filter_map(|callee| callers.get(callee))
                .flatten();
            let calls: Vec<_> = of_level.copied().collect();
            returns.extend(calls.iter().filter_map(|(_, returns_to)| *returns_to));
            level = calls.into_iter().map(|(caller, _)| caller).collect();
            level.retain(|caller| seen.insert(*caller));
        }
        returns.truncate(MOST_FRAMES);
        let depths = self.depths(returns.iter().copied());
        let pairs = returns.into_iter().zip(depths);
        pairs
            .filter_map(|(at, depth)| Some((at, depth?.into())))
            .collect()
    }
}

/// What stands at an address, in the event grammar.
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

impl Draft<'_> {
    /// Plans what tells of the futex calls of all modules.
    pub(super) fn locks(&mut self, modules: &[Module], locks: &mut Locks) {
        for module in modules {
            let calls = Calls::of(module);
            let at = calls.sites.iter().map(|(_, site)| site.call.address);
            let depths = calls.depths(at);
            for ((_, site), depth) in calls.sites.iter().zip(depths) {
                self.lock_site(module, site, depth.unwrap_or(0), locks);
            }
            const WHY: &str = "waits that can be cancelled (conditions, semaphores, joins) are not \
                               seen: they take a path of their own in this libc";
            let unknown = calls.unknown.iter();
            let unknown = unknown.map(|at| (name(module, *at), WHY.to_owned()));
            locks.left_out.extend(unknown);
            if is_libc(module) {
                locks.frames.extend(calls.frames());
            }
        }
    }

    fn lock_site(&mut self, module: &Module, site: &FutexSite, depth: u16, locks: &mut Locks) {
        // Behind the call first: what is noted in front of it has to be taken back.
        let behind = site.behind.as_ref();
        let timed = behind.is_some_and(|shape| self.lock_half(module, shape, &BEHIND, locks));
        let before = Body::Futex(Notice::before(depth, timed));
        self.lock_half(module, &site.call.shape, &before, locks);
    }

    /// Whether it is planned.
    fn lock_half(
        &mut self,
        module: &Module,
        shape: &Shape,
        body: &Body,
        locks: &mut Locks,
    ) -> bool {
        let known = self.known_at(shape).copied();
        let same = known.filter(|known| known.body == body_hash(body));
        let found = match same {
            Some(known) => Ok(again(&known)),
            None => {
                let linked = shape.site().wrapping_sub(module.bias);
                let islands = || module.object.paddings_near(linked, module.bias);
                let patch = self.planner.place(shape, body, islands);
                patch.map(|patch| planned(patch, 0, body))
            }
        };
        let is_planned = found.is_ok();
        match found {
            Ok(planned) => locks.sites.push(planned),
            Err(why) => {
                let what = match *body == BEHIND {
                    true => "its waits are counted, not timed",
                    false => "its calls are not seen",
                };
                let place = name(module, shape.site());
                locks.left_out.push((place, format!("{what}: {why}")));
            }
        }
        is_planned
    }

    /// What libc's function `syscall` tells of futex calls, where locks are watched; what
    /// stands behind its call becomes one of the `locks`.
    pub(super) fn any_notice(
        &mut self,
        module: &Module,
        site: &FutexSite,
        locks: &mut Locks,
    ) -> Option<Notice> {
        if !self.ground.locks {
            return None;
        }
        let linked = site.call.address.wrapping_sub(module.bias);
        let depth = depths(module.object.bytes(), &[linked])[0];
        let behind = site.behind.as_ref();
        let timed = behind.is_some_and(|shape| self.lock_half(module, shape, &BEHIND, locks));
        Some(Notice::before(depth.unwrap_or(0), timed))
    }
}
