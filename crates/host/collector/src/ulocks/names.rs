//! Names addresses of code and of locks.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use tiptoe_patch::transfers;
use tiptoe_symbol::{Function, variable_name};
use tiptoe_sys::host::procfs::{Mapping, Process};
use tiptoe_wire::Site;
use tiptoe_wire::futex::{OPERATION_SHIFT, REPORTED, REPORTED_MODE_SHIFT};

use super::LockKind;
use crate::error::Error;
use crate::module::{Cache, Module};
use crate::planner::is_of_libc;

/// The bits of a wait's `via` ([`Names::kind`]) that are an address.
const ADDRESS: u64 = (1 << 47) - 1;

#[derive(Clone, Debug, Default)]
pub struct Stacks {
    /// An address in each stack, with the name of the stack's thread.
    frames: BTreeMap<u64, String>,
    /// The stack pointer of each living thread whose stack was found, by thread id.
    looked_at: BTreeMap<u32, u64>,
}

impl Stacks {
    /// Adds the stacks of sleeping threads. Running threads are looked at again later, because the kernel does not
    /// report their stack pointers.
    pub fn look(&mut self, process: Process, threads: &[u32], maps: &[Mapping]) {
        let living: BTreeSet<u32> = threads.iter().copied().collect();
        self.looked_at.retain(|tid, _| living.contains(tid));
        for tid in living {
            if self.looked_at.contains_key(&tid) {
                continue;
            }
            if let Ok(Some(sp)) = process.thread_stack_pointer(tid) {
                let comm = process.thread_comm(tid).unwrap_or_default();
                self.forget_those_in(sp, maps);
                self.add(sp, &format!("{tid} {comm}"));
                self.looked_at.insert(tid, sp);
            }
        }
    }

    /// Forgets the stacks of ended threads, because other memory may be mapped at their addresses.
    pub fn forget_ended(&mut self, threads: &[u32]) {
        self.looked_at.retain(|tid, _| threads.contains(tid));
        let kept: BTreeSet<u64> = self.looked_at.values().copied().collect();
        self.frames.retain(|frame, _| kept.contains(frame));
    }

    /// Forgets stacks of ended threads in the mapping of `sp`, because a new thread reuses that mapping.
    fn forget_those_in(&mut self, sp: u64, maps: &[Mapping]) {
        let after = maps.partition_point(|mapping| mapping.start <= sp);
        let mapping = after.checked_sub(1).map(|index| &maps[index]);
        let Some(mapping) = mapping.filter(|mapping| mapping.path.is_none()) else {
            return;
        };
        let here = self.frames.range(mapping.start..mapping.end);
        let is_of_living = |frame: &u64| self.looked_at.values().any(|sp| sp == frame);
        let ended: Vec<u64> = here.map(|(frame, _)| *frame).collect();
        for frame in ended.iter().filter(|frame| !is_of_living(frame)) {
            self.frames.remove(frame);
        }
    }

    pub fn add(&mut self, frame: u64, thread: &str) {
        self.frames.insert(frame, thread.to_owned());
    }

    fn whose(&self, mapping: &Mapping) -> Option<&str> {
        // Other mappings, such as the heap, may contain the stacks of several threads.
        let is_stack = mapping.path.as_deref().is_none_or(|path| path == "[stack]");
        let mut within = self.frames.range(mapping.start..mapping.end);
        let (_, thread) = within.next().filter(|_| is_stack)?;
        Some(thread)
    }
}

#[derive(Default)]
pub struct Names {
    pub modules: Vec<Module>,
    pub maps: Vec<Mapping>,
    pub sites: Vec<Site>,
    /// Names for a module's nameless functions, by the module's bias and the function.
    pub jumps: RefCell<BTreeMap<u64, BTreeMap<u64, String>>>,
    pub stacks: Stacks,
}

impl Names {
    pub fn of(process: Process, cache: &mut Cache) -> Result<Names, Error> {
        let maps = process.maps()?;
        Ok(Names {
            modules: cache.modules(process, &maps)?,
            maps,
            ..Names::default()
        })
    }

    /// Returns the kind of an awaited lock. `via` has the outermost address in libc, and the operation. `itself` is
    /// whether the caller knows that the system call was made at this address. An address in a trampoline (the
    /// generated code of a patch) or after a `syscall` also proves this.
    pub fn kind(&self, via: u64, itself: bool) -> LockKind {
        let (address, operation) = (via & ADDRESS, (via >> OPERATION_SHIFT) as u32);
        if operation == REPORTED {
            return LockKind::reported(via >> REPORTED_MODE_SHIFT & 0xff);
        }
        let ours = self.patched(address);
        let address = ours.unwrap_or(address);
        let name = self.entered(address.wrapping_sub(1)).unwrap_or_default();
        let itself = itself || ours.is_some() || self.is_after_a_call(address);
        let kind = LockKind::of(&name, operation, itself);
        match self.function(address.wrapping_sub(1)) {
            Some((module, function)) if !is_of_libc(module, function) => kind.of_the_users(),
            None if self.is_in_go(address) => LockKind::PARKED,
            _ => kind,
        }
    }

    fn is_in_go(&self, address: u64) -> bool {
        let mut modules = self.modules.iter();
        modules.any(|m| m.is_go() && m.text.iter().any(|text| text.contains(&address)))
    }

    fn is_after_a_call(&self, address: u64) -> bool {
        let Some((module, function)) = self.function(address.wrapping_sub(1)) else {
            return false;
        };
        let code = module.object.code(function, module.bias);
        code.is_some_and(|code| {
            let end = address.wrapping_sub(code.address) as usize;
            let two = end
                .checked_sub(2)
                .and_then(|start| code.bytes.get(start..end));
            two == Some(&[0x0f, 0x05])
        })
    }

    /// Returns the name of libc's or Go's function at an address. A nameless function is named after the function that
    /// jumps to it, which the user called.
    fn entered(&self, address: u64) -> Option<String> {
        let found = self.function(address);
        let (module, function) =
            found.filter(|(module, function)| is_of_libc(module, function) || module.is_go())?;
        let name = function.display_name().to_string();
        if !function.names.is_empty() {
            return Some(name);
        }
        let mut jumps = self.jumps.borrow_mut();
        let jumps = jumps
            .entry(module.bias)
            .or_insert_with(|| jumps_to_nameless(module));
        Some(jumps.get(&function.address).cloned().unwrap_or(name))
    }

    pub(super) fn function(&self, address: u64) -> Option<(&Module, &Function)> {
        let mut modules = self.modules.iter();
        let module = modules.find(|m| m.text.iter().any(|text| text.contains(&address)))?;
        let linked = address.wrapping_sub(module.bias);
        let function = module.object.image.function_containing(linked)?;
        Some((module, function))
    }

    /// Returns the address after the first byte of the site (patched place) whose trampoline contains `address`, as
    /// if that byte were a call.
    fn patched(&self, address: u64) -> Option<u64> {
        let ours = self.sites.iter().find(|site| {
            let code = site.trampoline..=site.trampoline + u64::from(site.code_len);
            code.contains(&address)
        });
        ours.map(|site| site.address + 1)
    }

    /// Names the call site whose return address is `address`.
    pub fn code(&self, address: u64) -> String {
        let address = self.patched(address).unwrap_or(address);
        self.format_address(address, self.function(address.wrapping_sub(1)))
    }

    pub fn instruction(&self, address: u64) -> String {
        self.format_address(address, self.function(address))
    }

    fn format_address(&self, address: u64, function: Option<(&Module, &Function)>) -> String {
        match function {
            Some((module, function)) => {
                let offset = address.wrapping_sub(module.bias) - function.address;
                format!("{}:{}+{offset:#x}", module.name, function.display_name())
            }
            None => match self.mapping(address) {
                Some((path, offset)) => format!("{path}+{offset:#x}"),
                None => format!("{address:#x}"),
            },
        }
    }

    /// Names the lock or the C++ atomic that `site` waits for at an address.
    pub(super) fn awaited(&self, at: u64, site: u64, kind: &LockKind, stacks: &Stacks) -> String {
        let atomic = self.atomic(at, site);
        atomic.unwrap_or_else(|| self.lock(at, kind, stacks))
    }

    /// Threads' stacks are searched in `stacks` and `self.stacks`.
    pub fn lock(&self, waited_at: u64, kind: &LockKind, stacks: &Stacks) -> String {
        let address = kind.object(waited_at);
        if let Some(variable) = self.variable(address, |offset| kind.within(offset)) {
            return variable;
        }
        if let Some(module) = self.module_of(address) {
            let linked = address.wrapping_sub(module.bias);
            return format!("{}:{linked:#x}", module.name);
        }
        let mapping = self.maps.iter().find(|mapping| mapping.contains(address));
        let known = [stacks, &self.stacks].into_iter();
        let whose = mapping.and_then(|mapping| known.filter_map(|s| s.whose(mapping)).next());
        match (whose, self.mapping(address)) {
            (Some(thread), _) => format!("{address:#x} stack of thread {thread}"),
            (None, Some((path, _))) => format!("{address:#x} {path}"),
            (None, None) => format!("{address:#x}"),
        }
    }

    pub(super) fn module_of(&self, address: u64) -> Option<&Module> {
        let mut modules = self.modules.iter();
        modules.find(|module| self.is_of(module, address))
    }

    /// `within` turns the offset in the variable into the reported offset.
    pub(super) fn variable(&self, address: u64, within: impl Fn(u64) -> u64) -> Option<String> {
        let module = self.module_of(address)?;
        let linked = address.wrapping_sub(module.bias);
        let (name, offset) = module.object.image.variable_at(linked)?;
        let name = format!("{}:{}", module.name, variable_name(name));
        Some(match within(offset) {
            0 => name,
            offset => format!("{name}+{offset:#x}"),
        })
    }

    /// Returns whether an address is in a mapping of a module's file, or in zeroed memory right after such a mapping.
    fn is_of(&self, module: &Module, address: u64) -> bool {
        if self.maps.is_empty() {
            // The process ended before its maps were read.
            let layout = module.object.image.layout();
            return module.has_its_place() && layout.has_memory(address);
        }
        let after = self
            .maps
            .partition_point(|mapping| mapping.start <= address);
        let Some((here, before)) = self.maps[..after].split_last() else {
            return false;
        };
        let of_file = |mapping: &Mapping| mapping.file() == Some(&module.path);
        let zeroed = here.path.is_none()
            && before
                .last()
                .is_some_and(|m| m.end == here.start && of_file(m));
        here.contains(address) && (of_file(here) || zeroed)
    }

    fn mapping(&self, address: u64) -> Option<(String, u64)> {
        let mapping = self.maps.iter().find(|mapping| mapping.contains(address))?;
        let name = match mapping.path.as_deref() {
            // This is the kernel's name for anonymous memory that processes share.
            Some(path) if path.starts_with("/dev/zero") => "[shared memory]".to_owned(),
            Some(path) if mapping.inode != 0 => name(path),
            Some(path) => path.display().to_string(),
            None => "[anonymous]".to_owned(),
        };
        Some((name, address - mapping.start))
    }
}

fn jumps_to_nameless(module: &Module) -> BTreeMap<u64, String> {
    let functions = module.object.image.functions();
    let named = functions
        .iter()
        .filter(|function| !function.names.is_empty());
    let mut found = BTreeMap::new();
    for function in named {
        let Some(code) = module.object.code(function, module.bias) else {
            continue;
        };
        let jumps = transfers(&code)
            .into_iter()
            .filter(|(_, returns)| returns.is_none());
        for linked in jumps.map(|(target, _)| target.wrapping_sub(module.bias)) {
            let at = functions.binary_search_by_key(&linked, |function| function.address);
            if at.is_ok_and(|at| functions[at].names.is_empty()) {
                let name = function.display_name().to_string();
                found.entry(linked).or_insert(name);
            }
        }
    }
    found
}

fn name(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str());
    name.to_string_lossy().into_owned()
}
