//! Rules inside a crate: no circle of files that use each other, because a reader could begin with none of them; no
//! type name twice; no tuple as a parameter; at most [`MOST_IMPL_LINES`] lines of inherent `impl` for a type.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};

use crate::crate_modules::{CrateModules, Edges, attributes, is_for_tests};

/// The most lines, without blank lines and comments.
pub const MOST_IMPL_LINES: usize = 400;

/// Returns the faults that are not in `exceptions`, and the exceptions that match no fault.
pub fn faults<'a>(folders: impl Iterator<Item = &'a str>, exceptions: &[&str]) -> Vec<String> {
    let mut faults: Vec<String> = folders.flat_map(of_crate).collect();
    let unused = exceptions.iter().filter(|exception| {
        let mut faults = faults.iter();
        !faults.any(|fault| fault.starts_with(**exception))
    });
    let unused: Vec<String> = unused
        .map(|exception| format!("no exception is needed for {exception}"))
        .collect();
    faults.retain(|fault| {
        !exceptions
            .iter()
            .any(|exception| fault.starts_with(exception))
    });
    faults.extend(unused);
    faults
}

fn of_crate(folder: &str) -> Vec<String> {
    let faults = faults_in(&CrateModules::read(folder)).into_iter();
    faults.map(|fault| format!("{folder}: {fault}")).collect()
}

fn faults_in(crate_modules: &CrateModules) -> Vec<String> {
    let paths = &crate_modules.paths;
    let mut faults = circles(paths, &crate_modules.edges());
    let mut definitions = Definitions::default();
    for (index, module) in crate_modules.modules.iter().enumerate() {
        definitions.module = index;
        definitions.path.clone_from(&paths[module.file]);
        definitions
            .text
            .clone_from(&crate_modules.texts[module.file]);
        for item in &module.items {
            definitions.visit_item(item);
        }
    }
    for (name, places) in &definitions.types {
        if places.len() > 1 {
            let files: Vec<&str> = places.values().map(String::as_str).collect();
            faults.push(format!("type `{name}` twice: {}", files.join(", ")));
        }
    }
    for (name, lines) in &definitions.impl_lines {
        if *lines > MOST_IMPL_LINES {
            faults.push(format!("impl of `{name}`: {lines} lines"));
        }
    }
    faults.extend(definitions.tuples);
    faults
}

fn circles(paths: &[String], edges: &Edges) -> Vec<String> {
    let reached: Vec<BTreeSet<usize>> = (0..paths.len()).map(|file| reached(edges, file)).collect();
    let mut circles = BTreeSet::new();
    for (file, others) in reached.iter().enumerate() {
        let circle = others
            .iter()
            .filter(|other| reached[**other].contains(&file));
        circles.insert(circle.copied().collect::<Vec<_>>());
    }
    circles.remove(&Vec::new());
    let texts = circles.iter().map(|circle| {
        let mut text = format!("circle of {} files", circle.len());
        for ((from, to), names) in edges {
            if circle.contains(from) && circle.contains(to) {
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                text += &format!(
                    "\n      {} uses {}: {}",
                    paths[*from],
                    paths[*to],
                    names.join(", ")
                );
            }
        }
        text
    });
    texts.collect()
}

fn reached(edges: &Edges, file: usize) -> BTreeSet<usize> {
    let mut reached = BTreeSet::new();
    let mut next = vec![file];
    while let Some(from) = next.pop() {
        let uses = edges.keys().filter(|(user, _)| *user == from);
        next.extend(uses.filter_map(|(_, used)| reached.insert(*used).then_some(*used)));
    }
    reached
}

#[derive(Default)]
struct Definitions {
    module: usize,
    path: String,
    text: String,
    types: BTreeMap<String, BTreeMap<usize, String>>,
    impl_lines: BTreeMap<String, usize>,
    tuples: Vec<String>,
}

impl Visit<'_> for Definitions {
    fn visit_item(&mut self, item: &syn::Item) {
        if is_for_tests(attributes(item)) {
            return;
        }
        let name = match item {
            syn::Item::Struct(item) => Some(&item.ident),
            syn::Item::Enum(item) => Some(&item.ident),
            syn::Item::Union(item) => Some(&item.ident),
            syn::Item::Trait(item) => Some(&item.ident),
            syn::Item::Type(item) => Some(&item.ident),
            _ => None,
        };
        if let Some(name) = name {
            let places = self.types.entry(name.to_string()).or_default();
            places.insert(self.module, self.path.clone());
        }
        visit::visit_item(self, item);
    }

    fn visit_item_impl(&mut self, item: &syn::ItemImpl) {
        // The trait, not this `impl`, chose the parameters.
        if item.trait_.is_some() {
            return;
        }
        if let syn::Type::Path(of) = &*item.self_ty
            && let Some(name) = of.path.segments.last()
        {
            let first = item.impl_token.span.start().line;
            let last = item.brace_token.span.close().end().line;
            let lines = self.text.lines().take(last).skip(first - 1).map(str::trim);
            let code = lines.filter(|line| !line.is_empty() && !line.starts_with("//"));
            *self.impl_lines.entry(name.ident.to_string()).or_default() += code.count();
        }
        visit::visit_item_impl(self, item);
    }

    fn visit_signature(&mut self, signature: &syn::Signature) {
        let types = signature.inputs.iter().filter_map(|input| match input {
            syn::FnArg::Typed(typed) => Some(&*typed.ty),
            syn::FnArg::Receiver(_) => None,
        });
        if types.into_iter().any(is_tuple) {
            let (name, file) = (&signature.ident, &self.path);
            let fault = format!("a tuple as a parameter of `{name}` in {file}");
            self.tuples.push(fault);
        }
        visit::visit_signature(self, signature);
    }
}

fn is_tuple(parameter: &syn::Type) -> bool {
    match parameter {
        syn::Type::Tuple(tuple) => !tuple.elems.is_empty(),
        syn::Type::Reference(reference) => is_tuple(&reference.elem),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(files: &[(&str, &str)]) -> Vec<String> {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder is made");
            std::fs::write(path, text).expect("a file is written");
        }
        faults_in(&CrateModules::under(&folder.path().join("lib.rs")))
    }

    #[test]
    fn files_that_use_each_other_are_a_circle() {
        let lib = "mod a;\nmod b;\npub use a::A;\n";
        let faults = check(&[
            ("lib.rs", lib),
            ("a.rs", "pub struct A(pub crate::b::B);"),
            ("b.rs", "use crate::A;\npub struct B(Box<A>);"),
        ]);
        let circle = "circle of 2 files\n      a.rs uses b.rs: B\n      b.rs uses a.rs: A";
        assert_eq!(faults, [circle]);
        // a.rs uses b.rs by a path inside a macro; b.rs uses a.rs through `*`.
        let faults = check(&[
            ("lib.rs", lib),
            (
                "a.rs",
                "use crate::b;\npub struct A;\nfn f() { assert!(b::is_good()); }",
            ),
            (
                "b.rs",
                "use super::a::*;\npub fn is_good() -> bool { let _ = A; true }",
            ),
        ]);
        assert_eq!(faults.len(), 1, "{faults:?}");
    }

    #[test]
    fn tests_and_inner_modules_make_no_circle() {
        let faults = check(&[
            ("lib.rs", "mod a;\nmod b;\n"),
            (
                "a.rs",
                "mod inner;\nuse inner::Inner;\npub struct A(Inner);",
            ),
            ("a/inner.rs", "pub struct Inner;\nfn f(_: super::A) {}"),
            (
                "b.rs",
                "#[cfg(test)]\nmod tests { use crate::a::A; fn f((a, b): (A, A)) {} struct A; }",
            ),
        ]);
        assert!(faults.is_empty(), "{faults:?}");
    }

    #[test]
    fn names_tuples_and_long_impls_are_found() {
        let many = "fn f(self) {}\n".repeat(MOST_IMPL_LINES / 2);
        let half = format!("impl crate::b::Long {{\n// A comment\n\n{many}}}\n");
        let faults = check(&[
            ("lib.rs", "mod a;\nmod b;\n"),
            ("a.rs", &format!("struct Twice;\n{half}")),
            (
                "b.rs",
                &format!("struct Twice;\npub struct Long;\n{half}fn f((a, b): &(u8, u8)) {{}}"),
            ),
        ]);
        let lines = MOST_IMPL_LINES + 4;
        let wanted = [
            "type `Twice` twice: a.rs, b.rs".to_owned(),
            format!("impl of `Long`: {lines} lines"),
            "a tuple as a parameter of `f` in b.rs".to_owned(),
        ];
        assert_eq!(faults, wanted);
    }
}
