//! Recognises functions of standard libraries that are compiled into the program: C++ templates and inline functions,
//! and Rust's static libraries, parking_lot included.
//!
//! C++ names are compared mangled, because a large program has too many to demangle. Library functions that only call
//! a function of the program (`std::thread::_State_impl::_M_run`, Rust's `__rust_begin_short_backtrace`) are
//! excluded. Compilers inline the program's function into them.

use crate::demangle::rust_name;
use crate::function::Function;

/// C++'s abbreviations of `std` and its members.
const STD: [&str; 7] = ["St", "Sa", "Sb", "Ss", "Si", "So", "Sd"];
/// The standard library's other namespaces.
const BESIDE: [&str; 2] = ["9__gnu_cxx", "10__cxxabiv1"];
/// Parts of the names of C++ functions that only call the program's functions.
const CALLS_BACK: [&str; 12] = [
    "_State_impl",
    "_Function_handler",
    "__invoke",
    "_Invoker",
    "_Bind",
    "_Task_state",
    "_Task_setter",
    "_Async_state",
    "_Deferred_state",
    "_Prepare_execution",
    "__thread_proxy",
    "10__function",
];
/// Rust's crates; those with the prefix [`PARKING_LOT`] count, too.
const CRATES: [&str; 4] = ["std", "core", "alloc", "lock_api"];
const PARKING_LOT: &str = "parking_lot";
/// As [`CALLS_BACK`], for Rust.
const RUST_CALLS_BACK: [&str; 6] = [
    "ops::function::",
    "short_backtrace",
    "panicking::",
    "panic::",
    "spawn_unchecked",
    "lang_start",
];

impl Function {
    /// Returns whether a name belongs to C++'s or Rust's standard library.
    pub fn is_of_standard_library(&self) -> bool {
        let mut names = self.names.iter();
        names.any(|name| is_cpp(name) || is_rust(name))
    }
}

fn is_cpp(name: &str) -> bool {
    let Some(name) = name.strip_prefix("_Z") else {
        return false;
    };
    // The name of an entity inside a function begins with the function's name.
    let name = name.trim_start_matches('Z');
    let begins = |with: &str| name.starts_with(with);
    let is_std = match name.strip_prefix('N') {
        Some(nested) => {
            let bare = nested.trim_start_matches(['r', 'V', 'K', 'R', 'O']);
            let mut all = STD.iter().chain(&BESIDE);
            all.any(|with| bare.starts_with(with))
        }
        None => begins("St") || is_of_threads(name),
    };
    is_std && !CALLS_BACK.iter().any(|part| name.contains(part))
}

/// Returns whether this is a wrapper by which libstdc++'s headers call a pthread function.
fn is_of_threads(name: &str) -> bool {
    let digits = |c: char| c.is_ascii_digit();
    let bare = name.trim_start_matches('L').trim_start_matches(digits);
    bare.starts_with("__gthread_")
}

fn is_rust(name: &str) -> bool {
    let Some(name) = rust_name(name) else {
        return false;
    };
    // `<core::cell::Ref<T> as core::ops::drop::Drop>::drop` is core's, `<prog::Guard as …>::drop` is the program's.
    let first = name.trim_start_matches(['<', '&', '(', '[', '*']);
    let krate = first.split_once("::").map_or("", |(krate, _)| krate);
    let is_std = CRATES.contains(&krate) || krate.starts_with(PARKING_LOT);
    is_std && !RUST_CALLS_BACK.iter().any(|part| name.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standard_library_in_the_program_is_not_the_users() {
        for name in [
            "_ZSt20__throw_system_errori",
            "_ZNSt13__atomic_baseIiE4waitEiSt12memory_order",
            "_ZNKSt6atomicIlE4waitElSt12memory_order",
            "_ZNSt5mutex4lockEv.isra.0",
            "_ZZNSt12__tree_barrierISt18__empty_completionE4waitEONS1_5PhaseENKUlvE_clEv",
            "_ZN9__gnu_cxx7__mutex4lockEv",
            "_ZNSs6appendEPKc",
            "_ZL20__gthread_mutex_lockP15pthread_mutex_t",
            "_ZN3std4sync5mutex14Mutex$LT$T$GT$4lock17h0123456789abcdefE",
            "_ZN79_$LT$std..sync..mutex..MutexGuard$LT$T$GT$$u20$as$u20$core..ops..drop..Drop$GT$4drop17h0123456789abcdefE",
            "_ZN16parking_lot_core11parking_lot4park17h0123456789abcdefE.llvm.42",
            "_RNvMNtNtCsgzz_3std4sync4onceNtB2_4Once4wait",
        ] {
            assert!(is_cpp(name) || is_rust(name), "{name}");
        }
        for name in [
            "main",
            "std",
            "_Z4mainv",
            "_ZN2ns1fESt6vectorIiSaIiEE",
            // A C++ namespace with a Rust crate's name.
            "_ZN4core3runEv",
            "_ZN4core3run17hurriedE",
            "_ZN4prog4main17h0123456789abcdefE",
            "_ZN53_$LT$prog..Guard$u20$as$u20$core..ops..drop..Drop$GT$4drop17h0123456789abcdefE",
            // Standard library functions that call functions of the program.
            "_ZNSt6thread11_State_implINS_8_InvokerISt5tupleIJZ4mainEUlvE_EEEEE6_M_runEv",
            "_ZNSt17_Function_handlerIFvvEZ4mainEUlvE_E9_M_invokeERKSt9_Any_data",
            "_ZN3std3sys9backtrace28__rust_begin_short_backtrace17h0123456789abcdefE",
        ] {
            assert!(!is_cpp(name) && !is_rust(name), "{name}");
        }
    }
}
