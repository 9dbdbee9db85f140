//! The functions between a user's code and a futex call. To find the user's call site, the BPF programs skip these
//! functions on the stack: those of the C library, of Go's runtime, and of the standard libraries of C++ and Rust.

use std::collections::{BTreeMap, BTreeSet};

use tiptoe_kernel::futexes::Depth;
use tiptoe_patch::{any_futex_site, transfers};
use tiptoe_stack::{Frame, Rule};
use tiptoe_symbol::Function;

use super::is_runtime;
use super::lock_sites::Calls;
use super::standard::standard_returns;
use crate::module::Module;

const MOST: usize = 3000;
/// Go's only function that makes futex calls. It has no frame.
const GO_FUTEX: [&str; 2] = ["runtime.futex", "runtime.futex.abi0"];
/// Prefixes of the names of [`GO_FUTEX`]'s callers that do nothing but wait.
const GO_WRAPPERS: [&str; 6] = [
    "runtime.futex",
    "runtime.note",
    "runtime.lock",
    "runtime.unlock",
    "runtime.mPark",
    "runtime.sema",
];
/// Prefixes of the C library's functions, besides its reserved prefix `__`.
const LIBC: [&str; 17] = [
    "do_futex",
    "_IO_",
    "_int_",
    "pthread_",
    "sem_",
    "mtx_",
    "cnd_",
    "thrd_",
    "call_once",
    "syscall",
    "malloc",
    "calloc",
    "realloc",
    "free",
    "fwrite",
    "fputs",
    "puts",
];

pub fn is_of_libc(module: &Module, function: &Function) -> bool {
    let reserved = |name: &str| name.starts_with("__");
    let known = |name: &str| LIBC.iter().any(|beginning| name.starts_with(beginning));
    let mut names = function.names.iter();
    is_runtime(module)
        || names.clone().any(|name| reserved(name) || known(name))
        || module
            .object
            .linked_libc()
            .is_some_and(|from| function.address >= from)
            && !names.any(|name| is_mangled(name))
}

/// No function of a C library has a mangled name.
fn is_mangled(name: &str) -> bool {
    ["_Z", "_R"]
        .iter()
        .any(|beginning| name.starts_with(beginning))
}

/// Returns link-time return addresses in wrappers: those of futex calls, and those of calls that lead to futex calls.
/// Each address has the distance to the frame of the wrapper's caller.
pub fn wrappers(module: &Module) -> Vec<(u64, Depth)> {
    if module.is_go() {
        return of_go(module);
    }
    let functions = module.object.image.functions();
    let sites: Vec<(usize, u64)> = Calls::of(module)
        .sites
        .iter()
        .map(|site| {
            let linked = site.call.syscall.wrapping_sub(module.bias);
            let after = functions.partition_point(|function| function.address <= linked);
            (after.saturating_sub(1), site.call.syscall + 2)
        })
        .collect();
    let direct: BTreeSet<usize> = sites.iter().map(|(index, _)| *index).collect();
    let is_wrapper = |index: usize| {
        let function = &functions[index];
        is_of_libc(module, function)
            || function.is_of_standard_library()
            || function.names.is_empty() && direct.contains(&index)
    };
    let mut level: BTreeSet<usize> = direct.iter().copied().filter(|i| is_wrapper(*i)).collect();
    let sites = sites.iter().filter(|(index, _)| is_wrapper(*index));
    let mut at: Vec<u64> = sites.map(|(_, at)| *at).collect();
    for (index, function) in functions.iter().enumerate() {
        if direct.contains(&index) || !is_wrapper(index) {
            continue;
        }
        let code = module.object.code(function, module.bias);
        let code = code.filter(|code| makes_any_call(code.bytes));
        if let Some(site) = code.and_then(|code| any_futex_site(&code)) {
            at.push(site.call.syscall + 2);
            level.insert(index);
        }
    }
    at.extend(returns(module, level, is_wrapper));
    at.extend(standard_returns(module, MOST));
    let table = module.object.unwind_table();
    let at = at.into_iter().map(|at| at.wrapping_sub(module.bias));
    at.filter_map(|at| Some((at, depth(table.rule(at))?)))
        .collect()
}

/// Returns how far above the stack pointer the caller's frame begins.
fn depth(rule: Rule) -> Option<Depth> {
    // The frame pointer is 0 here, so rules that need it give no depth.
    let here = Frame {
        sp: 1 << 20,
        ..Frame::default()
    };
    let bytes = rule.cfa(&here)?.checked_sub(here.sp)?;
    let bytes = u16::try_from(bytes).ok().filter(|bytes| *bytes >= 8);
    bytes.map(Depth::Bytes)
}

/// Returns the return addresses of calls by `inner` functions: to the functions of `level`, to these callers, and so
/// on.
fn returns(module: &Module, mut level: BTreeSet<usize>, inner: impl Fn(usize) -> bool) -> Vec<u64> {
    let functions = module.object.image.functions();
    let mut callers: BTreeMap<usize, Vec<(usize, Option<u64>)>> = BTreeMap::new();
    for (index, function) in functions.iter().enumerate().filter(|(i, _)| inner(*i)) {
        let Some(code) = module.object.code(function, module.bias) else {
            continue;
        };
        for (target, returns_to) in transfers(&code) {
            let callee = module.function_at(target);
            if let Some(callee) = callee.filter(|callee| *callee != index) {
                callers.entry(callee).or_default().push((index, returns_to));
            }
        }
    }
    let mut seen = level.clone();
    let mut returns = Vec::new();
    while !level.is_empty() && returns.len() < MOST {
        let calls = level.iter().filter_map(|callee| callers.get(callee));
        let calls: Vec<_> = calls.flatten().copied().collect();
        returns.extend(calls.iter().filter_map(|(_, returns_to)| *returns_to));
        level = calls.into_iter().map(|(caller, _)| caller).collect();
        level.retain(|caller| seen.insert(*caller));
    }
    returns
}

/// Returns whether code contains a system call, and no instruction that may set its number (its caller sets the
/// number).
fn makes_any_call(code: &[u8]) -> bool {
    const MOV_EAX: u8 = 0xb8;
    const XOR_EAX_EAX: [u8; 2] = [0x31, 0xc0];
    let mut pairs = code.windows(2);
    let mut known = code.windows(2).filter(|two| *two == XOR_EAX_EAX);
    pairs.any(|two| two == [0x0f, 0x05]) && known.next().is_none() && !code.contains(&MOV_EAX)
}

/// Returns the [`wrappers`] of a Go program, whose functions keep the frame pointer.
fn of_go(module: &Module) -> Vec<(u64, Depth)> {
    let functions = module.object.image.functions();
    let only_waits = |index: usize| {
        let mut names = functions[index].names.iter();
        names.any(|name| GO_WRAPPERS.iter().any(|start| name.starts_with(start)))
    };
    let bare = |index: usize| {
        let mut names = functions[index].names.iter();
        names.any(|name| GO_FUTEX.contains(&&**name))
    };
    let mut found = Vec::new();
    let mut level = BTreeSet::new();
    for index in (0..functions.len()).filter(|index| bare(*index)) {
        let code = module.object.code(&functions[index], module.bias);
        let site = code.and_then(|code| any_futex_site(&code));
        found.extend(site.map(|site| (site.call.syscall + 2 - module.bias, Depth::Bytes(8))));
        level.insert(index);
    }
    let returns = returns(module, level, only_waits);
    let returns = returns.into_iter().map(|at| at.wrapping_sub(module.bias));
    found.extend(returns.map(|at| (at, Depth::FramePointer)));
    found
}
