//! Supplies the BPF program with facts about code: where a store's value is from, and the unwind rule at an address.

use std::collections::HashSet;
use std::iter::once;

use tiptoe_event::Store;
use tiptoe_kernel::Watchpoints;
use tiptoe_kernel::watchpoints::WatchHits;
use tiptoe_patch::store_before;

use super::begin::Target;
use crate::error::Error;
use crate::module::Module;

/// The BPF maps have room for this many stores, and for as many rules.
const MOST: usize = 12_000;

#[derive(Default)]
pub(super) struct LearnedCode {
    /// The ends of store instructions.
    stores: HashSet<u64>,
    pub(super) rules: HashSet<u64>,
}

impl LearnedCode {
    /// Returns whether any store or rule was new.
    pub(super) fn learn(
        &mut self,
        set: &mut Watchpoints,
        target: &mut Target,
    ) -> Result<bool, Error> {
        let before = self.stores.len() + self.rules.len();
        for row in set.read()? {
            let ip = row.key.ip;
            target.know(ip);
            if !row.key.in_kernel
                && !self.stores.contains(&ip)
                && let Some(module) = target.module(ip.wrapping_sub(1))
            {
                self.add_store(set, module, ip)?;
            }
            if row.is_partial {
                self.add_rules(set, target, &row)?;
            }
        }
        Ok(self.stores.len() + self.rules.len() > before)
    }

    /// Adds the store whose instruction ends at `end`. Returns false if this store is known, or there is none.
    pub(super) fn add_store(
        &mut self,
        set: &mut Watchpoints,
        module: &Module,
        end: u64,
    ) -> Result<bool, Error> {
        if self.stores.len() >= MOST || !self.stores.insert(end) {
            return Ok(false);
        }
        let Some(store) = store(module, end) else {
            return Ok(false);
        };
        set.insert_store(end, &store)?;
        Ok(true)
    }

    /// Supplies rules for the address where a walk ended, and for all possible return addresses on the stack, so that
    /// the next walk does not end there.
    fn add_rules(
        &mut self,
        set: &mut Watchpoints,
        target: &mut Target,
        row: &WatchHits,
    ) -> Result<(), Error> {
        // A return address's rule is looked up one byte earlier, in the call. The hit's address is no return address,
        // so it is looked up as it is.
        let (last, back) = row
            .callers
            .last()
            .map_or((row.key.ip, 0), |last| (*last, 1));
        target.know(last);
        let words = row.first.stack.iter().copied();
        let words = words.filter(|word| target.module(*word).is_some());
        for (at, back) in once((last, back)).chain(words.map(|word| (word, 1))) {
            if let Some(module) = target.module(at.wrapping_sub(back)) {
                self.add_rule_in(set, module, at, back)?;
            }
        }
        Ok(())
    }

    pub(super) fn add_rule_in(
        &mut self,
        set: &mut Watchpoints,
        module: &Module,
        at: u64,
        distance_back: u64,
    ) -> Result<(), Error> {
        if self.rules.len() >= MOST || !self.rules.insert(at) {
            return Ok(());
        }
        let linked = at.wrapping_sub(distance_back).wrapping_sub(module.bias);
        let rule = module.object.unwind_table().rule(linked);
        Ok(set.insert_rule(at, rule.bits())?)
    }
}

pub(super) fn store(module: &Module, end: u64) -> Option<Store> {
    let linked = end.wrapping_sub(module.bias);
    let image = &module.object.image;
    let function = image.function_containing(linked.wrapping_sub(1))?;
    let code = module.object.code(function, module.bias)?;
    store_before(&code, end)
}
