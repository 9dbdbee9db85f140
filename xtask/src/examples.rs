//! Requires an example for every public item that programs link.

use crate::read;
use crate::sources::tracked;

const ITEMS: [&str; 9] = [
    "pub fn ",
    "pub const ",
    "pub struct ",
    "pub enum ",
    "pub trait ",
    "pub type ",
    "pub static ",
    "pub unsafe ",
    "macro_rules! ",
];
const OF_TRAITS: [&str; 3] = ["fn ", "const ", "type "];

/// Returns a crate's public items without an example.
pub fn missing(folder: &str) -> Vec<String> {
    let paths = tracked(&[&format!("{folder}/src/*.rs")]);
    let of_file = |path: &std::path::PathBuf| {
        let path = path.display().to_string();
        let missing = missing_in(&read(&path)).into_iter();
        missing
            .map(move |item| format!("{path}: {item}"))
            .collect::<Vec<_>>()
    };
    paths.iter().flat_map(of_file).collect()
}

fn missing_in(source: &str) -> Vec<String> {
    let (mut documented, mut has_example, mut hidden) = (false, false, false);
    let (mut in_trait, mut missing) = (false, Vec::new());
    let lines = source
        .lines()
        .take_while(|line| !line.starts_with("mod tests"));
    for line in lines {
        let bare = line.trim_start();
        if let Some(text) = bare.strip_prefix("///") {
            documented = true;
            has_example |= text.trim_start().starts_with("```");
            continue;
        }
        if bare.starts_with("#[") || bare.starts_with(")]") {
            hidden |= bare.contains("doc(hidden)");
            continue;
        }
        let begins = |words: &[&str]| words.iter().any(|word| bare.starts_with(word));
        let is_own = in_trait && line.starts_with("    ") && !line.starts_with("     ");
        // A macro without documentation is assumed to be private.
        let is_macro = bare.starts_with("macro_rules!") && !documented;
        let is_item = begins(&ITEMS) || (is_own && begins(&OF_TRAITS));
        if is_item && !is_macro && !has_example && !hidden {
            missing.push(bare.trim_end_matches('{').trim_end().to_owned());
        }
        in_trait = (in_trait || bare.starts_with("pub trait ")) && line != "}";
        // Any other line ends the documentation.
        (documented, has_example, hidden) = (false, false, false);
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_without_an_example_are_found() {
        let with = "/// A.\n///\n/// ```\n/// ```\n";
        let without = "/// A.\n";
        let check =
            |source: String, want: &[&str]| assert_eq!(missing_in(&source), want, "{source}");
        check(format!("{with}pub fn a() {{\n}}\n"), &[]);
        check(format!("{with}#[inline]\npub struct A;\n"), &[]);
        check(
            format!("{without}#[inline]\npub struct A;\n"),
            &["pub struct A;"],
        );
        check(
            format!("{without}fn a() {{}}\n{without}pub(crate) fn b() {{}}\n"),
            &[],
        );
        let of_trait = format!("{with}pub trait A {{\n    {without}    fn a();\n}}\nfn b() {{}}\n");
        check(of_trait, &["fn a();"]);
        check(
            format!("{without}#[doc(hidden)]\npub const A: u8 = 1;\n"),
            &[],
        );
        check("macro_rules! own {\n}\n".to_owned(), &[]);
    }
}
