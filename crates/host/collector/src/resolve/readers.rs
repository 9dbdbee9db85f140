//! Finds functions whose return address is read: by themselves, by a function that they jump to, or by a function
//! that they call. During a followed call, the return address is that of a stub that tiptoe generated (the thunk),
//! which `dladdr`, for example, does not know. So calls of these functions are counted, not followed
//! (`tiptoe_patch::return_reads`).
//!
//! A jump or call through a linkage table is resolved by name, in all files that the process has
//! mapped. Functions reached through a pointer are not checked.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use tiptoe_patch::{Callee, Cfa, ReturnReads, return_reads, stub_slot};
use tiptoe_stack::{Frame, Rule};
use tiptoe_symbol::Function;

use crate::error::Reason;
use crate::module::Module;
use crate::planner::is_intercepted;

/// The index of a function's module, and the function's link-time address.
type FunctionAddress = (usize, u64);

/// The most functions to check because another function jumps to them.
const MOST_JUMPS: usize = 64;

pub struct Readers<'m> {
    modules: &'m [Module],
    reads: RefCell<HashMap<FunctionAddress, Rc<ReturnReads>>>,
    /// For each word of a module, the functions whose address the word may contain.
    slots: RefCell<HashMap<FunctionAddress, Rc<[FunctionAddress]>>>,
    /// For each module and each of its words, the symbol whose address the loader writes to the word.
    names: RefCell<HashMap<usize, Rc<HashMap<u64, &'m str>>>>,
}

impl<'m> Readers<'m> {
    pub fn new(modules: &'m [Module]) -> Readers<'m> {
        Readers {
            modules,
            reads: RefCell::default(),
            slots: RefCell::default(),
            names: RefCell::default(),
        }
    }

    /// `None` if nothing reads the function's return address.
    pub fn why(&self, module: &Module, function: &Function) -> Option<Reason> {
        let mut known = module.object.read_returns.borrow_mut();
        let look = || self.look(module, function);
        known.entry(function.address).or_insert_with(look).clone()
    }

    fn look(&self, module: &Module, function: &Function) -> Option<Reason> {
        let is_home = |other: &Module| std::ptr::eq(other, module);
        let home = self.modules.iter().position(is_home)?;
        let reads = self.reads((home, function.address));
        if reads.levels & 1 != 0 {
            Some(Reason::ReadsReturnAddress)
        } else if self.any_reads(home, &reads.jumps, 1) {
            Some(Reason::JumpsToReader)
        } else if self.any_reads(home, &reads.calls, 2) {
            Some(Reason::CallsReader)
        } else {
            None
        }
    }

    /// Returns whether a function of `first`, or a function reached from it by jumps, reads a return address of these
    /// `levels`. Bit 0 is the function's own return address, bit 1 its caller's.
    fn any_reads(&self, home: usize, first: &[Callee], levels: u8) -> bool {
        let mut seen = Vec::new();
        for to in first {
            self.add_places(home, *to, &mut seen);
        }
        let most = seen.len() + MOST_JUMPS;
        let mut next = 0;
        while let Some(&(module, address)) = seen.get(next).filter(|_| next < most) {
            let reads = self.reads((module, address));
            if reads.levels & levels != 0 {
                return true;
            }
            for to in &reads.jumps {
                self.add_places(module, *to, &mut seen);
            }
            next += 1;
        }
        false
    }

    fn reads(&self, (home, address): FunctionAddress) -> Rc<ReturnReads> {
        let look = || {
            let object = &self.modules[home].object;
            let function = object.image.function_containing(address);
            let code = function.and_then(|function| object.code(function, 0));
            let table = object.unwind_table();
            let found = code.map(|code| return_reads(&code, |at| cfa(table.rule(at))));
            Rc::new(found.unwrap_or_default())
        };
        let mut reads = self.reads.borrow_mut();
        reads.entry((home, address)).or_insert_with(look).clone()
    }

    fn add_places(&self, home: usize, to: Callee, seen: &mut Vec<FunctionAddress>) {
        let mut add = |place: FunctionAddress| {
            if !seen.contains(&place) {
                seen.push(place);
            }
        };
        let object = &self.modules[home].object;
        let slot = match to {
            Callee::Slot(slot) => Some(slot),
            Callee::Code(at) if object.image.layout().in_plt(at) => {
                let bytes = object.code_from(at);
                bytes.and_then(|bytes| stub_slot(bytes, at))
            }
            Callee::Code(at) => {
                let functions = object.image.functions();
                let found = functions.binary_search_by_key(&at, |function| function.address);
                return found.iter().for_each(|_| add((home, at)));
            }
        };
        if let Some(slot) = slot {
            self.slot_targets(home, slot)
                .iter()
                .for_each(|place| add(*place));
        }
    }

    /// Returns the functions with the symbol of a module's word.
    fn slot_targets(&self, home: usize, slot: u64) -> Rc<[FunctionAddress]> {
        let look = || {
            let name = self.names(home).get(&slot).copied();
            let named = |(index, module): (usize, &'m Module)| {
                let functions = name.map(|name| module.object.image.with_symbol(name));
                let plain = functions.into_iter().flatten().filter(is_readable);
                plain.map(move |function| (index, function.address))
            };
            self.modules.iter().enumerate().flat_map(named).collect()
        };
        let mut slots = self.slots.borrow_mut();
        slots.entry((home, slot)).or_insert_with(look).clone()
    }

    fn names(&self, home: usize) -> Rc<HashMap<u64, &'m str>> {
        let mut names = self.names.borrow_mut();
        let image = &self.modules[home].object.image;
        let imports = || Rc::new(image.imports().map(|(name, slot)| (slot, name)).collect());
        names.entry(home).or_insert_with(imports).clone()
    }
}

/// Returns whether a function's code shows what it reads. An IFUNC's code is unknown. Intercepted functions get their
/// true return address from the agent (tiptoe's library).
fn is_readable(function: &&Function) -> bool {
    let intercepted = function.names.iter().any(|name| is_intercepted(name));
    !function.is_ifunc && !intercepted
}

fn cfa(rule: Rule) -> Option<Cfa> {
    if rule == Rule::OUTERMOST {
        return Some(Cfa::Nowhere);
    }
    let bytes = rule.cfa(&Frame::default())?.cast_signed();
    Some(match rule.is_by_sp() {
        true => Cfa::AboveSp(bytes),
        false => Cfa::AboveBp(bytes),
    })
}
