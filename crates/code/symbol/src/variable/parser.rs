//! Parses an [`Expression`].

use tiptoe_event::number;

use super::expression::{ANONYMOUS, Expression, Name, Operator, Root, is_identifier, plain_length};
use crate::demangle::demangle;
use crate::error::watch_error::{WatchError, WatchFault};

/// The deepest recursion, which must not overflow the stack.
const MAX_DEPTH: usize = 32;

impl Expression {
    /// Parses an expression; an error's `at` counts bytes.
    pub fn parse(text: &str) -> Result<Expression, WatchError> {
        let mut rest = Rest { text, at: 0 };
        let expression = rest.expression(0)?;
        rest.space();
        match rest.peek() {
            None => Ok(expression),
            Some(next) if is_start(next) && text[..rest.at].trim_end().ends_with(')') => {
                rest.fault(WatchFault::Cast)
            }
            Some(_) => rest.fault(WatchFault::Unexpected),
        }
    }
}

struct Rest<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Rest<'a> {
    fn fault<T>(&self, fault: WatchFault) -> Result<T, WatchError> {
        Err(WatchError { at: self.at, fault })
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn space(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    fn take(&mut self, token: &str) -> bool {
        let found = self.rest().starts_with(token);
        self.at += if found { token.len() } else { 0 };
        found
    }

    fn expression(&mut self, depth: usize) -> Result<Expression, WatchError> {
        if depth > MAX_DEPTH {
            return self.fault(WatchFault::TooDeep);
        }
        let mut stars = 0;
        self.space();
        while self.take("*") {
            stars += 1;
            self.space();
        }
        let start = self.at;
        let mut expression = self.primary(depth)?;
        while let Some(operator) = self.operator()? {
            expression.operators.push(operator);
        }
        let derefs = std::iter::repeat_n(Operator::Deref, stars);
        expression.operators.extend(derefs);
        if matches!(expression.root, Root::Address(_)) && !expression.operators.is_empty() {
            let fault = WatchFault::UntypedAddress;
            return Err(WatchError { at: start, fault });
        }
        Ok(expression)
    }

    fn primary(&mut self, depth: usize) -> Result<Expression, WatchError> {
        let bracket = self.peek() == Some('(') && !self.rest().starts_with(ANONYMOUS);
        if bracket {
            self.at += 1;
            let inner = self.expression(depth + 1)?;
            self.space();
            return match self.take(")") {
                true => Ok(inner),
                false if self.peek() == Some('*') => self.fault(WatchFault::Cast),
                false => self.fault(WatchFault::NotClosed),
            };
        }
        let root = match self.peek() {
            None => return self.fault(WatchFault::NoVariable),
            Some(digit) if digit.is_ascii_digit() => Root::Address(self.address()?),
            Some(next) if is_start(next) || self.rest().starts_with("::") => {
                Root::Name(self.name()?)
            }
            Some(_) => return self.fault(WatchFault::Unexpected),
        };
        let operators = Vec::new();
        Ok(Expression { root, operators })
    }

    fn operator(&mut self) -> Result<Option<Operator>, WatchError> {
        self.space();
        Ok(Some(if self.take("->") {
            Operator::Arrow(self.member()?)
        } else if self.take(".") {
            Operator::Dot(self.member()?)
        } else if self.take("[") {
            Operator::Index(self.index()?)
        } else {
            return Ok(None);
        }))
    }

    fn member(&mut self) -> Result<String, WatchError> {
        self.space();
        match self.peek() {
            Some('\'') => self.quoted().map(String::from),
            _ => self.part(),
        }
    }

    fn index(&mut self) -> Result<i64, WatchError> {
        self.space();
        let start = self.at;
        let Some(length) = self.rest().find(']') else {
            return self.fault(WatchFault::NotClosed);
        };
        let digits = self.rest()[..length].trim_end();
        self.at += length + 1;
        let (negative, digits) = match digits.strip_prefix('-') {
            Some(digits) => (true, digits),
            None => (false, digits),
        };
        let value = number(digits).and_then(|value| i64::try_from(value).ok());
        let fault = WatchFault::BadIndex;
        let value = value.ok_or(WatchError { at: start, fault })?;
        Ok(if negative { -value } else { value })
    }

    fn address(&mut self) -> Result<u64, WatchError> {
        let is_digit = |c: char| c.is_alphanumeric() || c == '_';
        let digits = self.rest();
        let digits = &digits[..digits.find(|c| !is_digit(c)).unwrap_or(digits.len())];
        let fault = WatchFault::BadAddress;
        let address = number(digits).ok_or(WatchError { at: self.at, fault })?;
        self.at += digits.len();
        Ok(address)
    }

    fn name(&mut self) -> Result<Name, WatchError> {
        let (mut file, mut parts) = (None, Vec::new());
        let mut global = self.take("::");
        loop {
            if self.peek() == Some('\'') {
                let start = self.at;
                let text = self.quoted()?;
                let more = self.rest().starts_with("::");
                if more && parts.is_empty() && !global && file.is_none() && is_file(text) {
                    file = Some(text.to_owned());
                    self.at += 2;
                    global = self.take("::");
                    continue;
                }
                let fault = |fault| WatchError { at: start, fault };
                parts.extend(split_parts(text).map_err(fault)?);
            } else {
                let part = self.part()?;
                parts.extend(demangled(&part).unwrap_or_else(|| vec![part]));
            }
            if !self.take("::") {
                break;
            }
        }
        Ok(Name {
            file,
            is_global: global,
            parts,
        })
    }

    fn part(&mut self) -> Result<String, WatchError> {
        let length = plain_length(self.rest());
        if length == 0 {
            return self.fault(WatchFault::NoName);
        }
        let part = &self.rest()[..length];
        self.at += length;
        Ok(part.to_owned())
    }

    fn quoted(&mut self) -> Result<&'a str, WatchError> {
        let text = self.rest().get(1..).unwrap_or_default();
        match text.find('\'') {
            None => self.fault(WatchFault::OpenQuote),
            Some(0) => self.fault(WatchFault::NoName),
            Some(length) => {
                self.at += length + 2;
                Ok(&text[..length])
            }
        }
    }
}

fn is_start(next: char) -> bool {
    is_identifier(next) || ['\'', '(', '<', '{'].contains(&next)
}

/// Returns the parts of a linker's name, `_ZN2ns1xE`.
fn demangled(part: &str) -> Option<Vec<String>> {
    let bare = demangle(part)?.bare;
    let sayable = !bare.contains('\'');
    sayable.then(|| split_parts(&bare).ok()).flatten()
}

fn is_file(text: &str) -> bool {
    text.contains(['.', '/']) && !text.contains("::") && !text.contains(['(', '<', '{'])
}

pub(super) fn split_parts(text: &str) -> Result<Vec<String>, WatchFault> {
    let bytes = text.as_bytes();
    let (mut parts, mut depth, mut start, mut at) = (Vec::new(), 0_usize, 0, 0);
    while at < bytes.len() {
        match bytes[at] {
            b'<' | b'{' | b'(' => depth += 1,
            b'>' | b'}' | b')' => {
                depth = depth.checked_sub(1).ok_or(WatchFault::OpenBracket)?;
            }
            b':' if depth == 0 && bytes.get(at + 1) == Some(&b':') => {
                parts.push(&text[start..at]);
                at += 1;
                start = at + 1;
            }
            _ => {}
        }
        at += 1;
    }
    if depth != 0 {
        return Err(WatchFault::OpenBracket);
    }
    parts.push(&text[start..]);
    // A final `:` would form a `::` with the next part.
    match parts.iter().any(|part| part.is_empty()) || text.ends_with(':') {
        true => Err(WatchFault::NoName),
        false => Ok(parts.into_iter().map(String::from).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults() {
        use WatchFault as F;
        let check = |text: &str, at, fault| {
            assert_eq!(
                Expression::parse(text),
                Err(WatchError { at, fault }),
                "{text}"
            );
        };
        check("  ", 2, F::NoVariable);
        check("*", 1, F::NoVariable);
        check("x.", 2, F::NoName);
        check("x->[1]", 3, F::NoName);
        check("ns::", 4, F::NoName);
        check("''", 0, F::NoName);
        check("'a::'", 0, F::NoName);
        check("'a:'::b", 0, F::NoName);
        check("'a<b'", 0, F::OpenBracket);
        check("x[i]", 2, F::BadIndex);
        check("x[]", 2, F::BadIndex);
        check("x[9223372036854775808]", 2, F::BadIndex);
        check("x[1", 2, F::NotClosed);
        check("(x", 2, F::NotClosed);
        check("(int *)x", 5, F::Cast);
        check("(int)x", 5, F::Cast);
        check("*(int *)0x601040", 6, F::Cast);
        check("*0x601040", 1, F::UntypedAddress);
        check("0x10.a", 0, F::UntypedAddress);
        check("0xzz", 0, F::BadAddress);
        check("0x11112222333344445", 0, F::BadAddress);
        check("1.5", 0, F::UntypedAddress);
        check("&x", 0, F::Unexpected);
        check("a + 1", 2, F::Unexpected);
        check("a b", 2, F::Unexpected);
        check(&"(".repeat(100), 33, F::TooDeep);
    }
}
