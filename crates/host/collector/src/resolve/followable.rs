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

/// Returns what a spec (the user's word for an event) records of each hit; `entries` is what the request records of
/// each entry.
pub fn wanted(spec: &Spec, entries: Follow) -> Follow {
    match (spec.kind, entries) {
        (_, timed) if timed.is_timed() && spec.offset != 0 => timed.entries(),
        (Kind::Uretprobe, Follow::No | Follow::Values) => Follow::Returns,
        _ => entries,
    }
}

pub struct Limits<'m> {
    module: &'m Module,
    readers: Readers<'m>,
    /// Link-time addresses of unwinders, and of their callees, which may begin a stack walk at the unwinder's frame.
    unwinders: OnceCell<HashSet<u64>>,
    is_described: OnceCell<bool>,
}

impl<'m> Limits<'m> {
    pub fn new(module: &'m Module, modules: &'m [Module]) -> Limits<'m> {
        Limits {
            module,
            readers: Readers::new(modules),
            unwinders: OnceCell::new(),
            is_described: OnceCell::new(),
        }
    }

    /// Returns what can be recorded of the requested `follow`. If not all of it can be, adds the reason to `refused`.
    pub fn allowed(
        &self,
        function: &Function,
        follow: Follow,
        event: &str,
        refused: &mut Vec<(String, Reason)>,
    ) -> Option<Follow> {
        let why = follow.is_followed().then(|| self.against(function));
        let Some(why) = why.flatten() else {
            return Some(follow);
        };
        // A function that tiptoe itself hooks has no room for a probe of its entries.
        let (left, why) = match follow.is_timed() && !matches!(why, Reason::Intercepted) {
            true => (Some(follow.entries()), Reason::EntriesOnly(Box::new(why))),
            false => (None, why),
        };
        refused.push((event.to_owned(), why));
        left
    }

    fn unwinders(&self) -> &HashSet<u64> {
        let object = &self.module.object;
        self.unwinders.get_or_init(|| {
            let all = object.image.functions().iter();
            let own = all.filter(|function| function.is_unwinder);
            let with_callees = own.flat_map(|function| {
                let code = object.code(function, 0);
                let callees = code.map(|code| direct_calls(&code)).into_iter().flatten();
                callees.chain([function.address])
            });
            with_callees.collect()
        })
    }

    fn against(&self, function: &Function) -> Option<Reason> {
        let any = |test: &dyn Fn(&str) -> bool| function.names.iter().any(|name| test(name));
        if any(&is_intercepted) {
            Some(Reason::Intercepted)
        } else if any(&|name| TWICE.contains(&name)) {
            Some(Reason::ReturnsTwice)
        } else if function.is_outermost || begins_elsewhere(self.module, function) {
            Some(Reason::NoCaller)
        } else if any(&|name| LOOKERS.contains(&name))
            || any(&|name| name.starts_with("_Unwind_") || name.starts_with("uw_"))
            || self.unwinders().contains(&function.address)
        {
            Some(Reason::UsesReturnAddress)
        } else {
            let entered = self.is_entered_otherwise(function);
            entered.or_else(|| self.readers.why(self.module, function))
        }
    }

    /// Returns why a function may be entered without its return address on top of the stack. The linkage table, for
    /// example, pushes two more words before it enters the loader's resolver.
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

/// Returns whether a function begins by switching to another stack (`mov %rbx,%rsp`). Such code is not called, but the
/// first function of a ucontext returns to it.
fn begins_elsewhere(module: &Module, function: &Function) -> bool {
    let code = module.object.code(function, 0);
    match code.map(|code| code.bytes) {
        Some([0x48 | 0x4c, 0x89, operands, ..]) => operands & 0xc7 == 0xc4,
        Some([0x48 | 0x49, 0x8b, operands, ..]) => operands & 0xf8 == 0xe0,
        _ => false,
    }
}
