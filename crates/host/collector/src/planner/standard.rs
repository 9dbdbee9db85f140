//! The functions of the standard libraries of C++ and Rust. A stack walk from a wait to the user's call site must skip
//! them.

use std::ops::Range;

use tiptoe_patch::call_returns;
use tiptoe_symbol::Function;

use super::{is_libc, is_runtime};
use crate::module::Module;

/// A table without room for all functions gets those whose names contain one of these words, because they may wait.
const MAY_WAIT: [&str; 20] = [
    "wait",
    "notify",
    "mutex",
    "lock",
    "Lock",
    "semaphore",
    "latch",
    "barrier",
    "once",
    "Once",
    "cond",
    "future",
    "thread",
    "park",
    "sync",
    "mpsc",
    "mpmc",
    "atomic",
    "recv",
    "join",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    All,
    MayWait,
}

/// Returns a module's functions of a standard library, by address: all functions of a C++ runtime, and none of libc or
/// Go.
fn standard_functions(module: &Module, extent: Extent) -> impl Iterator<Item = &Function> {
    let functions = match is_libc(module) || module.is_go() {
        true => &[],
        false => module.object.image.functions(),
    };
    let mut functions = functions.iter().filter(move |function| {
        let mut names = function.names.iter();
        let may_wait = |name: &str| MAY_WAIT.iter().any(|word| name.contains(word));
        extent == Extent::All || names.any(|name| may_wait(name))
    });
    let is_all = is_runtime(module);
    std::iter::from_fn(move || functions.find(|f| is_all || f.is_of_standard_library()))
}

/// Returns the unwind rows of [`standard_functions`], and the range of their link-time addresses.
pub fn standard_rows(module: &Module, extent: Extent) -> Option<(Vec<u64>, Range<u64>)> {
    let mut end = 0;
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for function in standard_functions(module, extent) {
        let start = function.address.max(end);
        end = end.max(function.end());
        if start < end {
            ranges.push(start..end);
        }
    }
    let all = ranges.first()?.start..end;
    Some((module.object.unwind_table().rows_within(ranges), all))
}

/// Returns at most `most` return addresses in standard functions, first those in functions that may wait.
pub fn standard_returns(module: &Module, most: usize) -> Vec<u64> {
    let of = |extent| {
        standard_functions(module, extent).filter_map(|f| module.object.code(f, module.bias))
    };
    let mut found: Vec<u64> = Vec::new();
    for extent in [Extent::MayWait, Extent::All] {
        for code in of(extent) {
            if found.len() >= most {
                break;
            }
            found.extend(call_returns(&code));
        }
    }
    found.truncate(most);
    found
}
