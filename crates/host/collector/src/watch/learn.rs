//! What the program at the breakpoints is told of the code that hits: where a store's value comes from, and how to
//! step from a place to its caller. Both are read from the program's files, once for each place.
//!
//! Instructions that name a variable's address are found before the watch begins, others after their first hit.

use std::collections::HashSet;

use tiptoe_event::Store;
use tiptoe_kernel::Watchpoints;
use tiptoe_kernel::watchpoints::WatchRow;
use tiptoe_patch::store_before;

use super::begin::Target;
use super::place::Place;
use crate::module::Module;
use crate::request::Error;

/// More than this is never told: there is no room for it.
const MOST: usize = 12_000;
/// Bytes of an address in an instruction, and how many may follow it: an immediate value.
const ADDRESS: usize = 4;
const BEHIND: [usize; 4] = [0, 1, 2, 4];

/// What was told already.
#[derive(Default)]
pub(super) struct Learned {
    /// Behind which instructions.
    stores: HashSet<u64>,
    /// How to leave which places.
    rules: HashSet<u64>,
}

impl Learned {
    /// Tells of all instructions that have the address of one of these in them, relative to their own.
    pub(super) fn foresee(
        &mut self,
        set: &mut Watchpoints,
        target: &Target,
        places: &[Place],
    ) -> Result<(), Error> {
        for module in &target.names.modules {
            for (start, code) in module.object.code_sections() {
                let start = start.wrapping_add(module.bias);
                for place in places {
                    for end in naming(place.address(), start, code) {
                        self.tell_store(set, module, end)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Tells what the rows that there are by now show to be missing; whether anything was.
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
                self.tell_store(set, module, ip)?;
            }
            if row.is_partial {
                self.tell_rules(set, target, &row)?;
            }
        }
        Ok(self.stores.len() + self.rules.len() > before)
    }

    fn tell_store(
        &mut self,
        set: &mut Watchpoints,
        module: &Module,
        end: u64,
    ) -> Result<(), Error> {
        if self.stores.len() >= MOST || !self.stores.insert(end) {
            return Ok(());
        }
        match store(module, end) {
            Some(store) => Ok(set.tell_store(end, &store)?),
            None => Ok(()),
        }
    }

    /// Rules for the place that a walk ended at, and for all that its stack looks as if it led to, as
    /// the next walk would end there.
    fn tell_rules(
        &mut self,
        set: &mut Watchpoints,
        target: &mut Target,
        row: &WatchRow,
    ) -> Result<(), Error> {
        match row.callers.last() {
            Some(last) => self.tell_rule(set, target, *last, 1)?,
            // Not where it returns to but where it stands.
            None => self.tell_rule(set, target, row.key.ip, 0)?,
        }
        for word in &row.first.stack {
            if target.module(*word).is_some() {
                self.tell_rule(set, target, *word, 1)?;
            }
        }
        Ok(())
    }

    fn tell_rule(
        &mut self,
        set: &mut Watchpoints,
        target: &mut Target,
        at: u64,
        behind: u64,
    ) -> Result<(), Error> {
        target.know(at);
        let at_rule = at.wrapping_sub(behind);
        let Some(module) = target.module(at_rule) else {
            return Ok(());
        };
        if self.rules.len() >= MOST || !self.rules.insert(at) {
            return Ok(());
        }
        let linked = at_rule.wrapping_sub(module.bias);
        let rule = module.object.unwind_table().rule(linked);
        Ok(set.tell_rule(at, rule.bits())?)
    }
}

/// What the instruction that ends at an address stores.
pub(super) fn store(module: &Module, end: u64) -> Option<Store> {
    let linked = end.wrapping_sub(module.bias);
    let image = &module.object.image;
    let function = image.function_containing(linked.wrapping_sub(1))?;
    let code = module.object.code(function, module.bias)?;
    store_before(&code, end)
}

/// Where instructions may end that have an address in them, relative to their end: the code begins at `start`.
fn naming(address: u64, start: u64, code: &[u8]) -> Vec<u64> {
    let mut found = Vec::new();
    for (at, bytes) in code.windows(ADDRESS).enumerate() {
        let relative = i32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        for behind in BEHIND {
            let end = start.wrapping_add((at + ADDRESS + behind) as u64);
            if end.wrapping_add_signed(relative.into()) == address {
                found.push(end);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_that_name_an_address() {
        // movq $5,0x100(%rip); nop; mov %rax,0xf8(%rip)
        let code = [
            0x48, 0xc7, 0x05, 0, 1, 0, 0, 5, 0, 0, 0, 0x90, 0x48, 0x89, 0x05, 0xf8, 0, 0, 0,
        ];
        let start = 0x40_1000;
        assert_eq!(
            naming(start + 11 + 0x100, start, &code),
            [start + 11, start + 19]
        );
        assert_eq!(naming(start, start, &code), [] as [u64; 0]);
    }
}
