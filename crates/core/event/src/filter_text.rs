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
use crate::text::{TextError, TextPart};

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

impl fmt::Display for FilterFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FilterFault::NoArgument => "an argument (arg0 to arg5) is missing",
            FilterFault::NoSuchArgument => "only arg0 to arg5 are in registers",
            FilterFault::BadWidth => "not a width (u8 s8 u16 s16 u32 s32 u64 s64)",
            FilterFault::NoOperator => "a comparison (== != < <= > >=) is missing",
            FilterFault::NoNumber => "a number is missing",
            FilterFault::OutOfRange => "the number does not fit (arguments are s64 unless :u64)",
            FilterFault::MixedJoin => "&& and || cannot be mixed",
            FilterFault::TooMany => "more than 8 comparisons",
            FilterFault::Trailing => "expected && or ||",
        })
    }
}

/// An error in a filter's text.
pub type FilterError = TextError<FilterFault>;

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

/// Longer operators first; otherwise `<=` would be read as `<`.
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
        let mut reader = TextPart { text, at: 0 };
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

impl<'a> TextPart<'a> {
    fn take(&mut self, len: usize) -> TextPart<'a> {
        let (text, rest) = self.text.split_at(len);
        let taken = TextPart { text, at: self.at };
        (self.text, self.at) = (rest, self.at + len);
        taken
    }

    fn skip_spaces(&mut self) {
        self.take(self.text.len() - self.text.trim_start_matches(' ').len());
    }

    fn takes(&mut self, token: &str) -> bool {
        let found = self.text.starts_with(token);
        self.take(if found { token.len() } else { 0 });
        found
    }

    fn one_of<T: Copy>(&mut self, table: &[(&str, T)]) -> Option<T> {
        self.skip_spaces();
        table
            .iter()
            .find(|(token, _)| self.takes(token))
            .map(|(_, value)| *value)
    }

    fn word(&mut self) -> TextPart<'a> {
        let end = self.text.find(|c: char| !c.is_ascii_alphanumeric());
        self.take(end.unwrap_or(self.text.len()))
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
        let word = self.word();
        match word.text.strip_prefix("arg").map(str::parse) {
            Some(Ok(arg)) if arg < 6 => Ok(arg),
            Some(_) => word.fault(FilterFault::NoSuchArgument),
            None => word.fault(FilterFault::NoArgument),
        }
    }

    fn width(&mut self) -> Result<Width, FilterError> {
        let word = self.word();
        match WIDTHS.iter().find(|(name, _)| *name == word.text) {
            Some((_, width)) => Ok(*width),
            None => word.fault(FilterFault::BadWidth),
        }
    }

    fn value(&mut self, width: Width) -> Result<i64, FilterError> {
        self.skip_spaces();
        let negative = self.takes("-");
        let word = self.word();
        let Some(number) = number(word.text).map(i128::from) else {
            return word.fault(FilterFault::NoNumber);
        };
        let value = if negative { -number } else { number };
        match width.range().contains(&value) {
            true => Ok(value as i64),
            false => word.fault(FilterFault::OutOfRange),
        }
    }

    fn join(&mut self, before: Option<Join>) -> Result<Option<Join>, FilterError> {
        self.skip_spaces();
        let rest = *self;
        match self.one_of(&JOINS) {
            Some(join) if before.is_some_and(|before| before != join) => {
                rest.fault(FilterFault::MixedJoin)
            }
            None if !rest.text.is_empty() => rest.fault(FilterFault::Trailing),
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
