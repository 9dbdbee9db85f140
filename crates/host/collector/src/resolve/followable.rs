//! Decides which functions' calls can be followed to their return.

use std::cell::OnceCell;
use std::collections::HashSet;

use tiptoe_event::spec::{Kind, Spec};
use tiptoe_patch::direct_calls;
use tiptoe_stack::{Base, Rule};
use tiptoe_symbol::Function;

use super::readers::Readers;
use crate::error::Reason;
use crate::module::Module;
use crate::planner::{Follow, is_intercepted};

/// Functions that return twice from one call.
const TWICE: [&str; 8] = [
    "setjmp",
    "_setjmp",
    "sigsetjmp",
    "__sigsetjmp",
    "savectx",
    "vfork",
    "__vfork",
    "getcontext",
];
/// Functions whose instructions do not show how they use their return address.
const LOOKERS: [&str; 2] = ["_start", "__interceptor_dlsym"];

/// Returns what a spec records of each hit; `entries` is what the request records of each entry.
pub fn wanted(spec: &Spec, entries: Follow) -> Follow {
    match (spec.kind, entries) {
        (_, timed) if timed.is_timed() && spec.offset != 0 => timed.entries(),
        (Kind::Uretprobe, Follow::No | Follow::Values) => Follow::Returns,
        _ => entries,
    }
}

pub enum Limit {
    None,
    /// Only entries can be counted.
    Entries(Reason),
    /// Not even entries can be counted.
    Nothing(Reason),
}

impl Limit {
    /// Returns what can be recorded of the requested `follow`. Adds the reason to `refused` unless
    /// all of it can be recorded.
    pub fn of_wish(
        self,
        follow: Follow,
        event: &str,
        refused: &mut Vec<(String, Reason)>,
    ) -> Option<Follow> {
        let (left, reason) = match self {
            Limit::None => return Some(follow),
            Limit::Entries(reason) if follow.is_timed() => (
                Some(follow.entries()),
                Reason::EntriesOnly(Box::new(reason)),
            ),
            Limit::Entries(reason) | Limit::Nothing(reason) => (None, reason),
        };
        refused.push((event.to_owned(), reason));
        left
    }
}

pub struct Limits<'m> {
    module: &'m Module,
    readers: Readers<'m>,
    /// Link-time addresses of unwinders and of functions that they call, which may get their caller's frame.
    unwinders: HashSet<u64>,
    is_described: OnceCell<bool>,
}

impl<'m> Limits<'m> {
    pub fn new(module: &'m Module, modules: &'m [Module]) -> Limits<'m> {
        let mut unwinders = HashSet::new();
        let all = module.object.image.functions().iter();
        for function in all.filter(|function| function.is_unwinder) {
            unwinders.insert(function.address);
            if let Some(code) = module.object.code(function, 0) {
                unwinders.extend(direct_calls(&code));
            }
        }
        Limits {
            module,
            readers: Readers::new(modules),
            unwinders,
            is_described: OnceCell::new(),
        }
    }

    pub fn of(&self, function: &Function) -> Limit {
        let any = |test: &dyn Fn(&str) -> bool| function.names.iter().any(|name| test(name));
        if any(&is_intercepted) {
            return Limit::Nothing(Reason::Intercepted);
        }
        let why = if any(&|name| TWICE.contains(&name)) {
            Some(Reason::ReturnsTwice)
        } else if function.is_outermost || begins_elsewhere(self.module, function) {
            Some(Reason::NoCaller)
        } else if any(&|name| LOOKERS.contains(&name))
            || any(&|name| name.starts_with("_Unwind_") || name.starts_with("uw_"))
            || self.unwinders.contains(&function.address)
        {
            Some(Reason::UsesReturnAddress)
        } else {
            let entered = self.is_entered_otherwise(function);
            entered.or_else(|| self.readers.why(self.module, function))
        };
        why.map_or(Limit::None, Limit::Entries)
    }

    /// Returns why a function may be entered without its return address on top of the stack. The
    /// linkage table, for example, enters the loader's resolver with two more words there.
    fn is_entered_otherwise(&self, function: &Function) -> Option<Reason> {
        let rule = self.module.object.unwind_table().rule(function.address);
        if Some(rule) == Rule::new(Base::Sp, 8, None) {
            None
        } else if rule != Rule::UNKNOWN {
            Some(Reason::EnteredWithMore)
        } else {
            self.is_described().then_some(Reason::NoUnwindRule)
        }
    }

    /// Returns whether most of the module's functions have unwind information. If not, a missing rule says nothing
    /// about a function.
    fn is_described(&self) -> bool {
        *self.is_described.get_or_init(|| {
            let object = &self.module.object;
            let table = object.unwind_table();
            let has_rule = |f: &&Function| table.rule(f.address) != Rule::UNKNOWN;
            let all = object.image.functions();
            all.iter().filter(has_rule).count() > all.len() / 2
        })
    }
}

/// Returns whether a function begins by leaving its stack (`mov %rbx,%rsp`), as does the code to
/// which the first function of a ucontext returns.
fn begins_elsewhere(module: &Module, function: &Function) -> bool {
    let code = module.object.code(function, 0);
    match code.map(|code| code.bytes) {
        Some([0x48 | 0x4c, 0x89, operands, ..]) => operands & 0xc7 == 0xc4,
        Some([0x48 | 0x49, 0x8b, operands, ..]) => operands & 0xf8 == 0xe0,
        _ => false,
    }
}
