//! Demangles C++ and Rust names. A short mangled name may refer back to its parts and expand exponentially, so a name
//! that exceeds a limit stays mangled.

use std::borrow::Cow;
use std::fmt::{self, Write};

use cpp_demangle::{DemangleOptions, ParseOptions, Symbol};

const MAX_MANGLED: usize = 8 << 10;
const MAX_TEXT: usize = 32 << 10;
/// The deepest recursion of demangling, which must not overflow the stack.
const MAX_DEPTH: u32 = 96;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DemangledName {
    /// `ns::f`, without Rust's hash.
    pub(crate) bare: String,
    /// `ns::f(int)` in C++; `ns::f::h0123456789abcdef` in Rust.
    pub(crate) full: String,
}

pub(crate) fn demangle(name: &str) -> Option<DemangledName> {
    if !is_mangled(name) || name.len() > MAX_MANGLED {
        return None;
    }
    rust(name).or_else(|| cpp(name))
}

/// Returns a demangled name without parameters; other names are unchanged.
pub(crate) fn shown(name: &str) -> Cow<'_, str> {
    match demangle(name) {
        Some(form) => Cow::Owned(form.bare),
        None => Cow::Borrowed(name),
    }
}

pub(crate) fn is_mangled(name: &str) -> bool {
    name.starts_with("_Z") || name.starts_with("_R")
}

pub(crate) fn variable_name(name: &str) -> Option<String> {
    if !is_mangled(name) || name.len() > MAX_MANGLED {
        return None;
    }
    // A C++ variable in a namespace also parses as a legacy Rust name. So a name is first tried as Rust's only if it
    // has a hash.
    rust_name(name).or_else(|| Some(cpp(name)?.full))
}

pub(crate) fn rust_name(name: &str) -> Option<String> {
    const HASH: usize = "::h0123456789abcdef".len();
    let may_be = name.starts_with("_R") || name.starts_with("_ZN") && name.contains("17h");
    if !may_be || name.len() > MAX_MANGLED {
        return None;
    }
    let found = rust(name)?;
    let has_hash = found.full.len() == found.bare.len() + HASH;
    (has_hash || name.starts_with("_R")).then_some(found.bare)
}

fn rust(name: &str) -> Option<DemangledName> {
    let parsed = rustc_demangle::try_demangle(name).ok()?;
    Some(DemangledName {
        bare: bounded(|out| write!(out, "{parsed:#}"))?,
        full: bounded(|out| write!(out, "{parsed}"))?,
    })
}

/// A compiler's copy (`f.isra.0`) gets the function's name.
fn cpp(name: &str) -> Option<DemangledName> {
    let name = name.split('.').next()?;
    let parse = ParseOptions::default().recursion_limit(MAX_DEPTH);
    let symbol = Symbol::new_with_options(name, &parse).ok()?;
    let full = DemangleOptions::new()
        .no_return_type()
        .recursion_limit(MAX_DEPTH);
    let bare = full.no_params();
    let mut bare = bounded(|out| symbol.structured_demangle(out, &bare))?;
    // Without parameters, only the names of lambdas still end with a qualifier.
    if bare.ends_with("operator() const") {
        bare.truncate(bare.len() - " const".len());
    }
    Some(DemangledName {
        bare,
        full: bounded(|out| symbol.structured_demangle(out, &full))?,
    })
}

#[derive(Default)]
struct BoundedText(String);

impl Write for BoundedText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > MAX_TEXT {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

fn bounded(write: impl FnOnce(&mut BoundedText) -> fmt::Result) -> Option<String> {
    let mut text = BoundedText::default();
    write(&mut text).ok()?;
    Some(text.0)
}

/// Removes white space, so that `f(char const *)` equals `f(char const*)`.
pub(crate) fn squeeze(text: &str) -> Cow<'_, str> {
    match text.contains(char::is_whitespace) {
        true => Cow::Owned(text.chars().filter(|c| !c.is_whitespace()).collect()),
        false => Cow::Borrowed(text),
    }
}

/// Returns `ns::f` for `ns::f<int>` or `ns::f::<int>`.
pub(crate) fn without_arguments(bare: &str) -> Option<&str> {
    let mut depth = 0_i32;
    for (at, byte) in bare.bytes().enumerate().rev() {
        match byte {
            b'>' => depth += 1,
            b'<' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            // The text may be cut only at `<`; other bytes may be parts of a character.
            let name = (byte == b'<' && at > 0).then(|| &bare[..at])?;
            return Some(name.strip_suffix("::").unwrap_or(name));
        }
    }
    None
}

/// Returns `ns::f` for `ns::f[abi:cxx11]`, because sources have no ABI tags.
pub(crate) fn without_tags(name: &str) -> Cow<'_, str> {
    const TAG: &str = "[abi:";
    let mut rest = name;
    let mut bare = String::new();
    while let Some((before, tag)) = rest.split_once(TAG) {
        let Some((_, after)) = tag.split_once(']') else {
            break;
        };
        bare += before;
        rest = after;
    }
    match bare.is_empty() {
        true => Cow::Borrowed(name),
        false => Cow::Owned(bare + rest),
    }
}

/// Returns `T::f(int)` for `T::f(int) const`.
fn without_qualifiers(full: &str) -> Option<&str> {
    let end = full.rfind(')')? + 1;
    (end < full.len()).then(|| &full[..end])
}

impl DemangledName {
    pub(crate) fn forms(&self) -> Vec<Cow<'_, str>> {
        let mut forms = Vec::new();
        let qualified = without_qualifiers(&self.full);
        for form in [Some(&*self.bare), Some(&*self.full), qualified] {
            let Some(form) = form else { continue };
            forms.push(squeeze(form));
            if let Cow::Owned(bare) = without_tags(form) {
                forms.push(Cow::Owned(squeeze(&bare).into_owned()));
            }
        }
        forms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(mangled: &str, bare: &str, full: &str) {
        let form = demangle(mangled).unwrap_or_else(|| panic!("{mangled} is not demangled"));
        assert_eq!((form.bare.as_str(), form.full.as_str()), (bare, full));
    }

    #[test]
    fn cpp_and_rust_names_have_a_short_and_a_long_form() {
        check("_ZN2ns1fEi", "ns::f", "ns::f(int)");
        check("_ZN2ns1gIiEEvT_", "ns::g<int>", "ns::g<int>(int)");
        check(
            "_ZN3foo3bar17h0123456789abcdefE",
            "foo::bar",
            "foo::bar::h0123456789abcdef",
        );
        check("_RNvC6_123foo3bar", "123foo::bar", "123foo::bar");
        check(
            "_ZNK2ns3BoxdeEv",
            "ns::Box::operator*",
            "ns::Box::operator*() const",
        );
        check("_ZN2ns1fEi.constprop.0", "ns::f", "ns::f(int)");
        assert_eq!(demangle("main"), None);
        assert_eq!(demangle("_Znonsense"), None);
    }

    #[test]
    fn exponential_names_stay_mangled() {
        let mut name = String::from("_Z1fSt4pairIiiE");
        for step in 0..40 {
            let last = match step {
                0 => String::from("S0_"),
                n => format!("S{}_", radix36(n)),
            };
            name += &format!("St4pairI{last}{last}E");
        }
        assert!(demangle(&name).is_none_or(|form| form.full.len() <= MAX_TEXT));
    }

    fn radix36(n: u32) -> String {
        char::from_digit(n % 36, 36)
            .map(|c| c.to_ascii_uppercase())
            .into_iter()
            .collect()
    }

    #[test]
    fn template_arguments_may_be_left_out() {
        assert_eq!(without_arguments("ns::f<int>"), Some("ns::f"));
        assert_eq!(without_arguments("ns::f<a<b>, c>"), Some("ns::f"));
        assert_eq!(without_arguments("krate::f::<usize>"), Some("krate::f"));
        assert_eq!(without_arguments("<T as U>"), None);
        assert_eq!(without_arguments("ns::f"), None);
        assert_eq!(without_arguments("ns::operator>"), None);
    }

    /// Regression: functions that return `std::string`, and lambdas, were not found by their source names.
    #[test]
    fn abi_tags_and_qualifiers_may_be_left_out() {
        for (mangled, forms) in [
            (
                "_Z1fB5cxx11i",
                &["f[abi:cxx11]", "f", "f[abi:cxx11](int)", "f(int)"][..],
            ),
            (
                "_ZNK2ns3Box5labelB5cxx11Ev",
                &[
                    "ns::Box::label",
                    "ns::Box::label[abi:cxx11]",
                    "ns::Box::label()",
                    "ns::Box::label()const",
                ],
            ),
            (
                "_ZZ4mainENKUliE_clEi",
                &[
                    "main::{lambda(int)#1}::operator()(int)",
                    "main::{lambda(int)#1}::operator()",
                ],
            ),
            ("_ZN2ns1fEi", &["ns::f", "ns::f(int)"]),
        ] {
            let found = demangle(mangled).expect(mangled);
            let all = found.forms();
            for form in forms {
                assert!(all.iter().any(|has| has == form), "{form}: {all:?}");
            }
        }
        assert_eq!(without_tags("f[abi:a][abi:b]<g[abi:c]>"), "f<g>");
        assert_eq!(without_tags("f[abi:a"), "f[abi:a");
        assert_eq!(without_tags("operator[]"), "operator[]");
    }

    #[test]
    fn names_may_end_with_non_ascii_characters() {
        assert_eq!(without_arguments("krate::maß"), None);
        assert_eq!(without_arguments("krate::maß<é>"), Some("krate::maß"));
        check("_RNvC5krateu6ma_hia", "krate::ma\u{df}", "krate::ma\u{df}");
    }
}
