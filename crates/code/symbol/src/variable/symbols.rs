//! Variables of the symbol table: address and size, no type.

use super::expression::Name;
use super::names::NameMatch;
use crate::demangle::{demangle, is_mangled, shown, squeeze};
use crate::image::Image;
use crate::tables::Variable;

/// Returns the symbols with this linker name, else with this demangled name, each address once. In a loose fit a
/// demangled name need only end with the given name.
pub(super) fn named<'i>(image: &'i Image, name: &Name, fit: NameMatch) -> Vec<&'i Variable> {
    if name.file.is_some() {
        return Vec::new();
    }
    let path = name.path();
    let mut found: Vec<&Variable> = image.data_with_symbol(&path).collect();
    if found.is_empty() {
        let wanted = squeeze(&path);
        let is = |bare: &str| {
            let before = squeeze(bare).strip_suffix(&*wanted).map(String::from);
            before.is_some_and(|before| {
                before.is_empty()
                    || fit == NameMatch::Suffix && !name.is_global && before.ends_with("::")
            })
        };
        let fits = |symbol: &str| {
            is_mangled(symbol)
                && symbol.contains(name.last())
                && demangle(symbol).is_some_and(|form| !is_about(&form.bare) && is(&form.bare))
        };
        found = image.data.iter().filter(|v| fits(&v.name)).collect();
    }
    found.sort_by_key(|v| (v.is_thread_local, v.address));
    found.dedup_by_key(|v| (v.is_thread_local, v.address));
    found
}

/// Returns whether a name is like `guard variable for ns::x`.
fn is_about(bare: &str) -> bool {
    bare.contains(" for ")
}

pub(super) fn names(image: &Image) -> impl Iterator<Item = String> {
    image.data.iter().map(|v| shown(&v.name).into_owned())
}
