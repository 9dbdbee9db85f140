//! Which functions' calls can be followed to their return.

use std::collections::HashSet;

use tiptoe_event::spec::{Kind, Spec};
use tiptoe_patch::direct_calls;
use tiptoe_symbol::Function;

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
/// Functions that look at whom they return to.
const LOOKERS: [&str; 8] = [
    "mcount",
    "_mcount",
    "__fentry__",
    "__morestack",
    "_start",
    "_dl_runtime_resolve",
    "__interceptor_dlsym",
    "__gnu_mcount_nc",
];

/// What a spec wants of each hit, where that is wanted of entries.
pub fn wanted(spec: &Spec, entries: Follow) -> Follow {
    match (spec.kind, entries) {
        (_, timed) if timed.is_timed() && spec.offset != 0 => timed.entries(),
        (Kind::Uretprobe, Follow::No | Follow::Values) => Follow::Returns,
        _ => entries,
    }
}

/// How far a function can be followed.
pub enum Limit {
    /// To its return.
    None,
    /// Its entries alone.
    Entries(&'static str),
    /// Not at all.
    Nothing(&'static str),
}

/// What is known of a module's functions.
pub struct Limits {
    /// Unwinders, and what they call, which may be told where its caller's frame is:
    /// link-time addresses.
    unwinders: HashSet<u64>,
}

impl Limits {
    /// Looks through a module's functions.
    pub fn new(module: &Module) -> Limits {
        let mut unwinders = HashSet::new();
        let all = module.object.image.functions().iter();
        for function in all.filter(|function| function.is_unwinder) {
            unwinders.insert(function.address);
            if let Some(code) = module.object.code(function, 0) {
                unwinders.extend(direct_calls(&code));
            }
        }
        Limits { unwinders }
    }

    /// How far this function can be followed.
    pub fn of(&self, module: &Module, function: &Function) -> Limit {
        let any = |test: &dyn Fn(&str) -> bool| function.names.iter().any(|name| test(name));
        if any(&is_intercepted) {
            Limit::Nothing("tiptoe stands there itself while calls are followed")
        } else if any(&|name| TWICE.contains(&name)) {
            Limit::Entries("it returns twice from one call")
        } else if function.is_outermost || begins_elsewhere(module, function) {
            Limit::Entries("it returns to nobody, and may be entered without a call")
        } else if any(&|name| LOOKERS.contains(&name))
            || any(&|name| name.starts_with("_Unwind_") || name.starts_with("uw_"))
            || self.unwinders.contains(&function.address)
        {
            Limit::Entries("it looks at whom it returns to")
        } else {
            Limit::None
        }
    }
}

/// Whether a function begins by leaving the stack that it was entered on (`mov %rbx,%rsp`), as
/// the one does to which the first function of a ucontext returns.
fn begins_elsewhere(module: &Module, function: &Function) -> bool {
    let code = module.object.code(function, 0);
    match code.map(|code| code.bytes) {
        Some([0x48 | 0x4c, 0x89, operands, ..]) => operands & 0xc7 == 0xc4,
        Some([0x48 | 0x49, 0x8b, operands, ..]) => operands & 0xf8 == 0xe0,
        _ => false,
    }
}
