//! Finds the requested variables in a process.

use tiptoe_event::store::AccessValues;
use tiptoe_event::{Access, Memory, Store};
use tiptoe_kernel::watchpoints::{Hits, Snapshot, Watchpoint};
use tiptoe_symbol::variable::{
    LoadedFile, Plan, Root, Start, Type, ValueKind, VariableError, Watch, check_alignment,
};
use tiptoe_sys::host::perf;

use super::begin::Target;
use super::pointer_path::PointerPath;
use super::thread::{OfThread, Owner};
use super::variable_lifetime::VariableLifetime;
use crate::error::Error;
use crate::resolve;

/// A page that no program may map.
pub(super) const NOWHERE: u64 = 0x1000;

pub(super) struct RequestedVariable {
    watch: Watch,
    is_pinned: bool,
}

pub(super) struct WatchedVariable {
    pub(super) name: String,
    pub(super) address: u64,
    /// Where the variable's breakpoint is before the pointers are set, and after the variable's end. Each variable
    /// has its own address, because hits are identified by address.
    nowhere: u64,
    pub(super) len: u8,
    access: Access,
    pub(super) is_pinned: bool,
    pub(super) of_thread: Option<Owner>,
    pub(super) lifetime: VariableLifetime,
    value: Type,
    /// Whether the variable may be in an allocator's memory: requested by address or through pointers, and in no file's
    /// data.
    pub(super) is_object: bool,
    pub(super) way: Option<PointerPath>,
}

/// Must run before anything is started, so that a bad name starts nothing.
pub(super) fn parse_all<'a>(
    variables: impl Iterator<Item = Memory<'a>>,
) -> Result<Vec<RequestedVariable>, Error> {
    let variable = |memory: Memory<'a>| {
        let watch = Watch::of(&memory).map_err(|error| Error::BadVariable {
            text: memory.text.to_owned(),
            error,
        })?;
        Ok(RequestedVariable {
            watch,
            is_pinned: memory.is_pinned,
        })
    };
    variables.map(variable).collect()
}

impl Target {
    /// Thread-local variables are those of `thread`, an id or a name.
    pub(super) fn find(
        &self,
        variables: &[RequestedVariable],
        thread: Option<&str>,
    ) -> Result<Vec<WatchedVariable>, Error> {
        let thread = thread
            .map(|thread| OfThread::find(thread, self))
            .transpose()?;
        let places: Vec<WatchedVariable> = variables
            .iter()
            .enumerate()
            .map(|(index, variable)| self.find_one(index, variable, thread.as_ref()))
            .collect::<Result<_, _>>()?;
        if thread.is_some() && places.iter().all(|place| place.of_thread.is_none()) {
            let names = places.iter().map(|place| place.name.clone());
            return Err(Error::SharedByThreads(names.collect()));
        }
        for (index, place) in places.iter().enumerate() {
            // Two variables must not share an address.
            let mut others = places[..index].iter();
            if let Some(same) = others.find(|other| other.is_where(place)) {
                let (one, other) = (same.name.clone(), place.name.clone());
                return Err(Error::SameAddress { one, other });
            }
        }
        Ok(places)
    }

    fn find_one(
        &self,
        index: usize,
        variable: &RequestedVariable,
        thread: Option<&OfThread>,
    ) -> Result<WatchedVariable, Error> {
        let watch = &variable.watch;
        let plain = matches!(watch.expression.root, Root::Address(_)) && watch.binary.is_none();
        let binary = watch.binary.as_deref();
        let mut modules = self.names.modules.iter();
        let chosen = modules.find(|module| resolve::matches(binary, self.process, module));
        let module = match chosen {
            Some(module) => module,
            None if plain => return Err(Error::NoProgram),
            None => {
                let mut error = resolve::no_binary(binary, self.process, &self.names.modules);
                if let Error::NoBinary { is_new, .. } = &mut error {
                    *is_new = self.is_new;
                }
                return Err(error);
            }
        };
        let plan = module.object.variables(|variables| variables.plan(watch))?;
        let thread = thread.filter(|_| matches!(plan.start, Start::ThreadLocal(_)));
        let thread_block = thread.map(|thread| thread.block(module, self));
        let here = LoadedFile {
            bias: module.bias,
            thread_block: thread_block.transpose()?,
        };
        let len = plan.length(watch.length)?;
        let mut way = PointerPath::new(&plan, here);
        let nowhere = NOWHERE + (index as u64 + 1) * 8;
        let address = match (self.locate(&plan, &here, len), &mut way) {
            (Err(LocateFailure { is_unset: true, .. }), Some(way)) => {
                way.is_unset = true;
                nowhere
            }
            (located, _) => located.map_err(|unlocated| unlocated.error)?,
        };
        let name = match (&plan.start, thread) {
            (Start::Absolute(_), _) => plan.expression.clone(),
            (_, None) => format!("{}:{}", module.name, plan.expression),
            (_, Some(thread)) => format!(
                "{}:{} of thread {}",
                module.name, plan.expression, thread.label
            ),
        };
        Ok(WatchedVariable {
            of_thread: thread.map(|thread| thread.owner),
            lifetime: VariableLifetime::default(),
            name,
            address,
            nowhere,
            len,
            access: watch.access,
            is_pinned: variable.is_pinned,
            is_object: (plain || way.is_some()) && self.is_object(address),
            way,
            value: plan.value,
        })
    }
}

struct LocateFailure {
    error: Error,
    /// Whether a pointer on the path may be set later.
    is_unset: bool,
}

impl Target {
    fn locate(&self, plan: &Plan, here: &LoadedFile, len: u8) -> Result<u64, LocateFailure> {
        let refused = |error: VariableError| LocateFailure {
            is_unset: match error {
                VariableError::NullPointer { .. } => true,
                // In a held command, pointers are not relocated yet.
                VariableError::Unmapped { .. } => self.is_new,
                _ => false,
            },
            error: error.into(),
        };
        let address = plan.locate(here, &mut |at, bytes| self.read(at, bytes));
        let address = address.map_err(refused)?;
        let is_mapped = self.read(address, &mut [0]);
        let is_unset = self.is_new && !is_mapped;
        if let Err(error) = check_alignment(address, len) {
            let error = refused(error).error;
            return Err(LocateFailure { error, is_unset });
        }
        if is_mapped {
            return Ok(address);
        }
        let error = Error::Unmapped {
            expression: plan.expression.clone(),
            address,
            pid: (!self.is_new).then(|| self.process.pid()),
        };
        Err(LocateFailure { error, is_unset })
    }
}

impl WatchedVariable {
    fn is_where(&self, other: &WatchedVariable) -> bool {
        let ways = self.way.as_ref().zip(other.way.as_ref());
        self.address == other.address || ways.is_some_and(|(way, other)| way.is_same(other))
    }

    pub(super) fn move_to(&mut self, address: u64) -> u64 {
        if let Some(way) = &mut self.way {
            way.moves += u32::from(!way.is_unset);
            way.is_late |= std::mem::take(&mut way.is_unset);
        }
        std::mem::replace(&mut self.address, address)
    }

    pub(super) fn is_unset(&self) -> bool {
        self.way.as_ref().is_some_and(|way| way.is_unset)
    }

    /// Returns whether the pointers were set after the watch began.
    fn is_late(&self) -> bool {
        self.way.as_ref().is_some_and(|way| way.is_late)
    }

    pub(super) fn is_code(&self) -> bool {
        self.access == Access::Execute
    }

    pub(super) fn watchpoint(&self) -> Watchpoint {
        Watchpoint {
            name: self.name.clone(),
            is_pinned: self.is_pinned,
            at: perf::Breakpoint {
                address: match self.lifetime.has_ended() {
                    true => self.nowhere,
                    false => self.address,
                },
                len: self.len,
                access: match self.access {
                    Access::Write => perf::Access::Write,
                    Access::ReadWrite => perf::Access::ReadWrite,
                    Access::Execute => perf::Access::Execute,
                },
            },
            is_signed: match &self.value.kind {
                ValueKind::Integer { is_signed: signed }
                | ValueKind::Character { is_signed: signed }
                | ValueKind::Enumeration {
                    is_signed: signed, ..
                } => *signed,
                _ => false,
            },
        }
    }

    pub(super) fn comparable(&self) -> Result<(), Error> {
        match self.value.kind {
            ValueKind::Float => Err(Error::WhenFloat(self.name.clone())),
            _ => Ok(()),
        }
    }

    /// Fails for code, whose accesses have no values. `option` selects accesses by their values.
    pub(super) fn has_values(&self, option: &str) -> Result<(), Error> {
        if !self.is_code() {
            return Ok(());
        }
        Err(Error::ValuesOfCode {
            option: option.to_owned(),
            name: self.name.clone(),
        })
    }

    pub(super) fn values_from_registers(&self, store: &Store, after: &Snapshot) -> AccessValues {
        store.values_from_registers(&after.registers, after.flags, self.address, self.len)
    }

    pub(super) fn to_session(
        &self,
        hits: Hits,
        rested: bool,
        watched_ns: Option<u64>,
    ) -> tiptoe_session::Variable {
        tiptoe_session::Variable {
            name: self.name.clone(),
            address: match self.is_unset() {
                true => 0,
                false => self.address,
            },
            len: self.len,
            access: self.access.word().to_owned(),
            hits: hits.all,
            count: hits.wanted,
            at_least: rested
                || watched_ns.is_some()
                || self.moves() > 0
                || self.is_late()
                || self.is_alias(),
            watched_ns,
        }
    }

    pub(super) fn event(&self) -> String {
        format!("mem:{}:{}:{}", self.name, self.len, self.access)
    }

    pub(super) fn within(&self, ip: u64) -> u64 {
        match self.access {
            Access::Execute => ip,
            _ => ip.wrapping_sub(1),
        }
    }

    /// For data, `ip` is after the hit's instruction; for code, at its beginning.
    pub(super) fn instruction(&self, target: &Target, ip: u64) -> String {
        match self.access {
            Access::Execute => target.names.instruction(ip),
            _ => target.names.code(ip),
        }
    }

    pub(super) fn value(&self, value: u64) -> String {
        let bytes = value.to_le_bytes();
        let bytes = &bytes[..usize::from(self.len)];
        match self.access {
            Access::Execute => "-".to_owned(),
            _ => self.value.describe(bytes),
        }
    }

    pub(super) fn old_value(&self, value: Option<u64>) -> String {
        value.map_or_else(|| "?".to_owned(), |value| self.value(value))
    }
}
