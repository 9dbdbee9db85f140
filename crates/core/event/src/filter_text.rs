//! Filters as text: `arg1 > 4096 && arg0:u32 == 0x3`.
//!
//! ```text
//! FILTER     = COMPARISON {"&&" COMPARISON} | COMPARISON {"||" COMPARISON}
//! COMPARISON = "arg" DIGIT [":" WIDTH] OPERATOR ["-"] NUMBER
//! WIDTH      = ("u" | "s") ("8" | "16" | "32" | "64")
//! ```

use core::fmt;
use core::str::FromStr;

use crate::filter::{Comparison, Filter, Join, MAX_COMPARISONS, Operator, Width};
use crate::number::number;

/// What is wrong in a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FilterFault {
    /// An argument is missing.
    NoArgument,
    /// Not one of `arg0` to `arg5`.
    NoSuchArgument,
    /// Not one of `u8` to `s64`.
    BadWidth,
    /// An operator is missing.
    NoOperator,
    /// A number is missing.
    NoNumber,
    /// The number does not fit the width.
    OutOfRange,
    /// `&&` and `||` in one filter.
    MixedJoin,
    /// More than [`MAX_COMPARISONS`].
    TooMany,
    /// Other text follows a comparison.
    Trailing,
}

/// An error and its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FilterError {
    /// The fault's offset in bytes.
    pub at: usize,
    /// The error.
    pub fault: FilterFault,
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.fault {
            FilterFault::NoArgument => "an argument (arg0 to arg5) is missing",
            FilterFault::NoSuchArgument => "only arg0 to arg5 are in registers",
            FilterFault::BadWidth => "not a width (u8 s8 u16 s16 u32 s32 u64 s64)",
            FilterFault::NoOperator => "a comparison (== != < <= > >=) is missing",
            FilterFault::NoNumber => "a number is missing",
            FilterFault::OutOfRange => "the number does not fit (arguments are s64 unless :u64)",
            FilterFault::MixedJoin => "&& and || cannot be mixed",
            FilterFault::TooMany => "more than 8 comparisons",
            FilterFault::Trailing => "expected && or ||",
        };
        write!(f, "{what} (at character {})", self.at + 1)
    }
}

impl core::error::Error for FilterError {}

const WIDTHS: [(&str, Width); 8] = [
    ("u8", Width::U8),
    ("s8", Width::S8),
    ("u16", Width::U16),
    ("s16", Width::S16),
    ("u32", Width::U32),
    ("s32", Width::S32),
    ("u64", Width::U64),
    ("s64", Width::S64),
];

/// The operators, longer ones first; otherwise `<=` would be read as `<`.
const OPERATORS: [(&str, Operator); 6] = [
    ("==", Operator::Eq),
    ("!=", Operator::Ne),
    ("<=", Operator::Le),
    (">=", Operator::Ge),
    ("<", Operator::Lt),
    (">", Operator::Gt),
];

const JOINS: [(&str, Join); 2] = [("&&", Join::All), ("||", Join::Any)];

impl FromStr for Filter {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Filter, FilterError> {
        let mut reader = Reader { text, at: 0 };
        let first = reader.comparison()?;
        let (mut held, mut len, mut joined) = ([first; MAX_COMPARISONS], 1, None);
        while let Some(join) = reader.join(joined)? {
            joined = Some(join);
            let Some(place) = held.get_mut(len) else {
                return reader.fault(FilterFault::TooMany);
            };
            *place = reader.comparison()?;
            len += 1;
        }
        let filter = Filter::new(joined.unwrap_or(Join::All), &held[..len]);
        filter.ok_or(FilterError {
            at: 0,
            fault: FilterFault::NoSuchArgument,
        })
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn fault<T>(&self, fault: FilterFault) -> Result<T, FilterError> {
        Err(FilterError { at: self.at, fault })
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn skip_spaces(&mut self) {
        self.at = self.text.len() - self.rest().trim_start_matches(' ').len();
    }

    fn takes(&mut self, token: &str) -> bool {
        let found = self.rest().starts_with(token);
        self.at += if found { token.len() } else { 0 };
        found
    }

    fn one_of<T: Copy>(&mut self, table: &[(&str, T)]) -> Option<T> {
        self.skip_spaces();
        table
            .iter()
            .find(|(token, _)| self.takes(token))
            .map(|(_, value)| *value)
    }

    fn word(&mut self) -> (&'a str, usize) {
        let (rest, start) = (self.rest(), self.at);
        let end = rest
            .find(|c: char| !c.is_ascii_alphanumeric())
            .unwrap_or(rest.len());
        self.at += end;
        (&rest[..end], start)
    }

    fn comparison(&mut self) -> Result<Comparison, FilterError> {
        let arg = self.argument()?;
        let width = if self.takes(":") {
            self.width()?
        } else {
            Width::S64
        };
        let Some(operator) = self.one_of(&OPERATORS) else {
            return self.fault(FilterFault::NoOperator);
        };
        Ok(Comparison {
            arg,
            width,
            operator,
            value: self.value(width)?,
        })
    }

    fn argument(&mut self) -> Result<u8, FilterError> {
        self.skip_spaces();
        let (word, at) = self.word();
        let Some(digits) = word.strip_prefix("arg") else {
            return Err(FilterError {
                at,
                fault: FilterFault::NoArgument,
            });
        };
        let arg = digits.parse().ok().filter(|arg| *arg < 6);
        arg.ok_or(FilterError {
            at,
            fault: FilterFault::NoSuchArgument,
        })
    }

    fn width(&mut self) -> Result<Width, FilterError> {
        let (word, at) = self.word();
        let found = WIDTHS
            .iter()
            .find(|(name, _)| *name == word)
            .map(|(_, width)| *width);
        found.ok_or(FilterError {
            at,
            fault: FilterFault::BadWidth,
        })
    }

    fn value(&mut self, width: Width) -> Result<i64, FilterError> {
        self.skip_spaces();
        let negative = self.takes("-");
        let (word, at) = self.word();
        let number = number(word).ok_or(FilterError {
            at,
            fault: FilterFault::NoNumber,
        })?;
        let value = if negative {
            -i128::from(number)
        } else {
            i128::from(number)
        };
        let bits = width.bits();
        let (low, high) = match width.signed() {
            true => (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1),
            false => (0, (1i128 << bits) - 1),
        };
        let fits = (low..=high).contains(&value);
        fits.then_some(value as i64).ok_or(FilterError {
            at,
            fault: FilterFault::OutOfRange,
        })
    }

    /// Reads a join, which must be the same as the one before.
    fn join(&mut self, before: Option<Join>) -> Result<Option<Join>, FilterError> {
        self.skip_spaces();
        let at = self.at;
        match self.one_of(&JOINS) {
            Some(join) if before.is_some_and(|before| before != join) => Err(FilterError {
                at,
                fault: FilterFault::MixedJoin,
            }),
            None if !self.rest().is_empty() => self.fault(FilterFault::Trailing),
            join => Ok(join),
        }
    }
}

fn token_of<T: PartialEq>(table: &[(&'static str, T)], value: T) -> &'static str {
    table
        .iter()
        .find(|(_, held)| *held == value)
        .map_or("", |(token, _)| token)
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "arg{}", self.arg)?;
        if self.width != Width::S64 {
            write!(f, ":{}", token_of(&WIDTHS, self.width))?;
        }
        write!(f, " {} ", token_of(&OPERATORS, self.operator))?;
        match self.width.signed() {
            true => write!(f, "{}", self.value),
            false => write!(f, "{}", self.value as u64),
        }
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, comparison) in self.comparisons().iter().enumerate() {
            if at > 0 {
                write!(f, " {} ", token_of(&JOINS, self.join()))?;
            }
            write!(f, "{comparison}")?;
        }
        Ok(())
    }
}
