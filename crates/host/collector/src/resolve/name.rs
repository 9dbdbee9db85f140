//! Chooses the names under which functions are counted.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};

use tiptoe_event::spec::{Function as FunctionSpec, Kind, Spec};
use tiptoe_symbol::Function;

/// Returns a name for each function. Functions that share a name (overloads, an old version of a symbol) get a longer
/// name or another symbol, if that name is unique. An IFUNC keeps the name by which programs call it.
pub fn of<F: Borrow<Function>>(spec: &Spec, functions: &[F]) -> Vec<String> {
    let short: Vec<String> = functions
        .iter()
        .map(|function| short(spec, function.borrow()))
        .collect();
    let bearers = count(short.iter().map(String::as_str));
    let longer: Vec<Vec<String>> = functions
        .iter()
        .zip(&short)
        .map(|(function, short)| match bearers[short.as_str()] {
            1 => Vec::new(),
            _ => longer(function.borrow()),
        })
        .collect();
    let all = short.iter().chain(longer.iter().flatten());
    let bearers = count(all.map(String::as_str));
    let own = |names: &Vec<String>| {
        names
            .iter()
            .find(|name| bearers[name.as_str()] == 1)
            .cloned()
    };
    let chosen = short.iter().zip(&longer);
    chosen
        .map(|(short, longer)| own(longer).unwrap_or_else(|| short.clone()))
        .collect()
}

pub fn event(kind: Kind, module: &str, name: &str, offset: u64) -> String {
    match offset {
        0 => format!("{kind}:{module}:{name}"),
        offset => format!("{kind}:{module}:{name}+{offset:#x}"),
    }
}

pub fn others(function: &Function, shown: &str) -> Vec<String> {
    let symbols = || function.names.iter().map(|name| name.to_string());
    match symbols().any(|symbol| symbol == shown) {
        true => symbols().filter(|symbol| symbol != shown).collect(),
        // The first symbol is displayed, demangled.
        false => symbols().skip(1).collect(),
    }
}

/// The name has parameters if the spec has them.
fn short(spec: &Spec, function: &Function) -> String {
    match spec.function {
        FunctionSpec::Name(name) if name.contains('(') => name.to_owned(),
        _ => function.display_name().into_owned(),
    }
}

fn longer(function: &Function) -> Vec<String> {
    if function.is_ifunc {
        return Vec::new();
    }
    let symbols = function.names.iter().map(|name| name.to_string());
    let shown = function.display_name();
    let full = function.full_name();
    let mut seen = BTreeSet::from([shown.into_owned()]);
    let names = full.into_iter().chain(symbols);
    names.filter(|name| seen.insert(name.clone())).collect()
}

fn count<'a>(names: impl Iterator<Item = &'a str>) -> BTreeMap<&'a str, usize> {
    let mut bearers = BTreeMap::new();
    for name in names {
        *bearers.entry(name).or_insert(0) += 1;
    }
    bearers
}

#[cfg(test)]
mod tests {
    use super::*;
    use tiptoe_symbol::{Kind, Source};

    fn function(address: u64, names: &[&str], is_ifunc: bool) -> Function {
        Function {
            address,
            offset_in_file: address,
            size: 16,
            names: names.iter().map(|name| (*name).into()).collect(),
            is_ifunc,
            is_cold: false,
            is_unwinder: false,
            is_outermost: false,
            source: Source::Symtab,
            kind: Kind::Plain,
        }
    }

    #[track_caller]
    fn check(spec: &str, functions: &[(&[&str], bool)], shown: &[&str]) {
        let functions: Vec<Function> = (1..)
            .zip(functions)
            .map(|(at, (names, is_ifunc))| function(at * 16, names, *is_ifunc))
            .collect();
        let spec = Spec::parse(spec).unwrap();
        assert_eq!(of(&spec, &functions), shown);
    }

    #[test]
    fn overloads_are_named_with_their_parameters() {
        let put: &[(&[&str], bool)] = &[(&["_ZN2ns1fEi"], false), (&["_ZN2ns1fEd"], false)];
        check("ns::f", put, &["ns::f(int)", "ns::f(double)"]);
        check("ns::f", &put[..1], &["ns::f"]);
        check("ns::f(int)", &put[..1], &["ns::f(int)"]);
    }

    #[test]
    fn an_old_version_is_named_by_another_symbol_and_the_ifunc_by_its_own() {
        let memcpy: &[(&[&str], bool)] = &[(&["memcpy"], true), (&["memcpy", "__old"], false)];
        check("memcpy", memcpy, &["memcpy", "__old"]);
        assert_eq!(
            others(&function(16, memcpy[1].0, false), "__old"),
            ["memcpy"]
        );
    }

    #[test]
    fn functions_without_a_unique_name_keep_theirs() {
        check("f", &[(&["f"], false), (&["f"], false)], &["f", "f"]);
        let twin: (&[&str], bool) = (&["_ZN2ns1fEi"], false);
        check("ns::f", &[twin; 2], &["ns::f", "ns::f"]);
    }
}
