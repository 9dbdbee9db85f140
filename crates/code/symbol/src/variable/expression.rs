//! Expressions for a variable, or a part of what it holds or points to. There is no binary operator.
//!
//! ```text
//! EXPRESSION = {"*"} POSTFIX
//! POSTFIX    = (NAME | "(" EXPRESSION ")") {"." MEMBER | "->" MEMBER | "[" NUMBER "]"}
//! NAME       = ["'" FILE "'" "::"] ["::"] PART {"::" PART}
//! PART       = an identifier with its template arguments; anything between single quotes
//! ```

use std::fmt;

use crate::demangle::is_mangled;

pub(super) const ANONYMOUS: &str = "(anonymous namespace)";

/// A variable, or a part of what it holds or points to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Expression {
    /// The start.
    pub root: Root,
    /// The operators, in order.
    pub operators: Vec<Operator>,
}

/// An expression's start.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Root {
    /// An address.
    Address(u64),
    /// A variable.
    Name(Name),
}

/// The name of a variable.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Name {
    /// The source file.
    pub file: Option<String>,
    /// Whether the name begins with `::`, and so must be the whole path.
    pub is_global: bool,
    /// Namespaces, classes or functions, the variable last.
    pub parts: Vec<String>,
}

/// An operator.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Operator {
    /// `.member`
    Dot(String),
    /// `->member`
    Arrow(String),
    /// `[number]`
    Index(i64),
    /// `*`
    Deref,
}

impl Name {
    /// Returns the parts joined by `::`.
    pub fn path(&self) -> String {
        self.parts.join("::")
    }

    /// Returns the variable's own name.
    pub fn last(&self) -> &str {
        self.parts.last().map_or("", String::as_str)
    }
}

impl Expression {
    /// Returns the part of the expression before an operator.
    pub fn before(&self, operator: usize) -> String {
        let mut text = match &self.root {
            Root::Address(address) => format!("{address:#x}"),
            Root::Name(name) => name.to_string(),
        };
        for operator in self.operators.iter().take(operator) {
            if text.starts_with('*') && *operator != Operator::Deref {
                text = format!("({text})");
            }
            text = match operator {
                Operator::Dot(member) => format!("{text}.{}", quoted(member)),
                Operator::Arrow(member) => format!("{text}->{}", quoted(member)),
                Operator::Index(index) => format!("{text}[{index}]"),
                Operator::Deref => format!("*{text}"),
            };
        }
        text
    }
}

fn quoted(part: &str) -> String {
    match plain_length(part) == part.len() {
        true => part.to_owned(),
        false => format!("'{part}'"),
    }
}

pub(super) fn plain_length(text: &str) -> usize {
    if text.starts_with(ANONYMOUS) {
        return ANONYMOUS.len();
    }
    let mut at = 0;
    while let Some(next) = text[at..].chars().next() {
        at += match next {
            '<' | '{' => match bracketed(&text[at..]) {
                Some(length) => length,
                None => break,
            },
            next if is_identifier(next) => next.len_utf8(),
            _ => break,
        };
    }
    at
}

fn bracketed(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let (mut depth, mut at) = (0_usize, 0);
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'<' | b'{' | b'(' => depth += 1,
            b'>' | b'}' | b')' => depth = depth.checked_sub(1)?,
            b'\'' => return None,
            b':' if bytes.get(at + 1) != Some(&b':') => return None,
            b':' => at += 1,
            _ => {}
        }
        at += 1;
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

pub(super) fn is_identifier(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '$'
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "'{file}'::")?;
        }
        let global = if self.is_global { "::" } else { "" };
        let plain = self
            .parts
            .iter()
            .all(|part| plain_length(part) == part.len());
        let number = self.parts[0].starts_with(|first: char| first.is_ascii_digit());
        let mangled = self.parts.iter().any(|part| is_mangled(part));
        match plain && !number && !mangled {
            true => write!(f, "{global}{}", self.path()),
            false => write!(f, "{global}'{}'", self.path()),
        }
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.before(self.operators.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Expression {
        Expression::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn operators_in_the_order_of_their_application() {
        use Operator::{Arrow, Deref, Dot, Index};
        let check = |text: &str, operators: &[Operator], shown: &str| {
            let expression = parse(text);
            assert_eq!(expression.operators, operators, "{text}");
            assert_eq!(expression.to_string(), shown);
            assert_eq!(parse(shown), expression, "{text}");
        };
        let [a, b] = ["a", "b"].map(String::from);
        check("x", &[], "x");
        check("x.a", &[Dot(a.clone())], "x.a");
        check("x->a", &[Arrow(a.clone())], "x->a");
        check("t[3]->b", &[Index(3), Arrow(b.clone())], "t[3]->b");
        check("t[0x10] [-1]", &[Index(16), Index(-1)], "t[16][-1]");
        check("*x", &[Deref], "*x");
        check("**x.a", &[Dot(a.clone()), Deref, Deref], "**x.a");
        check("(*x).a", &[Deref, Dot(a)], "(*x).a");
        check("(x)->b", &[Arrow(b.clone())], "x->b");
        check("((*(x)))[2].b", &[Deref, Index(2), Dot(b)], "(*x)[2].b");
        check("x.0", &[Dot("0".into())], "x.0");
        check("x.'a b'", &[Dot("a b".into())], "x.'a b'");
    }

    #[test]
    fn names() {
        let check = |text: &str, file: Option<&str>, global, parts: &[&str], shown: &str| {
            let expression = parse(text);
            let Root::Name(name) = &expression.root else {
                panic!("{text}")
            };
            assert_eq!(name.file.as_deref(), file, "{text}");
            assert_eq!(
                (name.is_global, &name.parts[..]),
                (
                    global,
                    &*parts.iter().map(|p| p.to_string()).collect::<Vec<_>>()
                )
            );
            assert_eq!(expression.to_string(), shown);
            assert_eq!(parse(shown), expression, "{text}");
        };
        check("ns::x", None, false, &["ns", "x"], "ns::x");
        check("::x", None, true, &["x"], "::x");
        check("'ns::x'", None, false, &["ns", "x"], "ns::x");
        check("'a.c'::x", Some("a.c"), false, &["x"], "'a.c'::x");
        check(
            "'../src/a.c'::f::x",
            Some("../src/a.c"),
            false,
            &["f", "x"],
            "'../src/a.c'::f::x",
        );
        check("'f(int)'::n", None, false, &["f(int)", "n"], "'f(int)::n'");
        check(
            "Box<ns::T, 2>::n",
            None,
            false,
            &["Box<ns::T, 2>", "n"],
            "Box<ns::T, 2>::n",
        );
        check(
            "(anonymous namespace)::x",
            None,
            false,
            &[ANONYMOUS, "x"],
            "(anonymous namespace)::x",
        );
        check(
            "p::{impl#0}::X",
            None,
            false,
            &["p", "{impl#0}", "X"],
            "p::{impl#0}::X",
        );
        check("'count.0'", None, false, &["count.0"], "'count.0'");
        check(
            "_ZN2ns7counterE",
            None,
            false,
            &["ns", "counter"],
            "ns::counter",
        );
        check("größe", None, false, &["größe"], "größe");
    }
}
