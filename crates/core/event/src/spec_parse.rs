use core::fmt;

use crate::number::number;
use crate::spec::{Function, Kind, OtherKind, ProbeSpec, Spec, is_glob};
use crate::text::{TextError, TextPart};

/// What is wrong in a spec.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SpecFault {
    /// The function is missing.
    NoFunction,
    /// The binary is missing before the `:`.
    NoBinary,
    /// A path without a function.
    PathWithoutFunction,
    /// An offset that is no number of 64 bits.
    BadOffset,
    /// A return probe with an offset.
    OffsetOfReturn,
    /// An option without a name, or with invalid letters.
    BadOption,
    /// An unknown option.
    NoSuchOption,
    /// An event of another kind.
    NotAProbe(OtherKind),
    /// A control character.
    ControlCharacter,
}

impl fmt::Display for SpecFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SpecFault::NoFunction => "a function is missing",
            SpecFault::NoBinary => "a binary is missing before the ':'",
            SpecFault::PathWithoutFunction => "a path without ':FUNCTION' after it",
            SpecFault::BadOffset => "not an offset (write +16 or +0x10)",
            SpecFault::OffsetOfReturn => "a return has no offset",
            SpecFault::BadOption => "not an option (write /NAME,NAME=VALUE/)",
            SpecFault::NoSuchOption => "no option has this name",
            SpecFault::NotAProbe(_) => "not a function",
            SpecFault::ControlCharacter => "a control character",
        })
    }
}

/// An error in a [`Spec`]'s text.
pub type SpecError = TextError<SpecFault>;

impl<'a> Spec<'a> {
    /// Parses a spec.
    pub fn parse(text: &'a str) -> Result<Spec<'a>, SpecError> {
        let (kind, rest) = head(text)?;
        read(kind, rest, single_colon(rest.text, 0))
    }

    /// Returns all ways to read a spec: as [`parse`](Spec::parse) does, then with the binary up to each later single
    /// colon, then without a binary.
    pub fn readings(text: &'a str) -> impl Iterator<Item = Result<Spec<'a>, SpecError>> {
        let (first, head) = match head(text) {
            Ok(head) => (None, Some(head)),
            Err(error) => (Some(Err(error)), None),
        };
        let all = head.into_iter().flat_map(|(kind, rest)| {
            let colons = core::iter::successors(single_colon(rest.text, 0), move |at| {
                single_colon(rest.text, at + 1)
            });
            let all = colons.map(Some).chain(core::iter::once(None));
            all.map(move |colon| read(kind, rest, colon))
        });
        first.into_iter().chain(all)
    }
}

impl<'a> ProbeSpec<'a> {
    /// Parses a probe.
    pub fn parse(text: &'a str) -> Result<ProbeSpec<'a>, SpecError> {
        let spec = Spec::parse(text)?;
        Ok(ProbeSpec { text, spec })
    }

    /// Returns the readings after the first.
    pub fn other_readings(&self) -> impl Iterator<Item = Spec<'a>> + use<'a> {
        Spec::readings(self.text).skip(1).flatten()
    }
}

/// Returns the kind before a name, with its `:`.
pub fn kind_prefix(name: &str) -> Option<&str> {
    let (word, prefix) = single_colon(name, 0).map(|end| (&name[..end], &name[..=end]))?;
    let is_kind = Kind::of_word(word).is_some() || OtherKind::of_word(word).is_some();
    is_kind.then_some(prefix)
}

fn head(text: &str) -> Result<(Kind, TextPart<'_>), SpecError> {
    match text.find(char::is_control) {
        Some(at) => TextPart { text, at }.fault(SpecFault::ControlCharacter),
        None => split_kind(TextPart { text, at: 0 }),
    }
}

fn read(kind: Kind, rest: TextPart<'_>, colon: Option<usize>) -> Result<Spec<'_>, SpecError> {
    let (binary, rest) = split_binary(rest, colon)?;
    let (rest, options) = split_options(rest)?;
    let (function, offset) = split_offset(rest)?;
    if split_options(function)?.1.is_some() {
        return function.fault(SpecFault::BadOption); // options must come last
    }
    if binary.is_none() && looks_like_path(function.text) {
        return function.fault(SpecFault::PathWithoutFunction);
    }
    if kind == Kind::Uretprobe && offset != 0 {
        return Err(SpecError {
            at: function.at + function.text.len(),
            fault: SpecFault::OffsetOfReturn,
        });
    }
    let function = read_function(function)?;
    match options {
        None => Ok(Spec {
            kind,
            binary,
            function,
            offset,
        }),
        Some(options) => options.fault(SpecFault::NoSuchOption),
    }
}

/// Returns the first single `:` from byte `from` on. In a run of three colons, the first is single: `bin:::f` is the
/// function `::f` of `bin`.
///
/// ```
/// # use tiptoe_event::single_colon;
/// assert_eq!(single_colon("prog:ns::f", 0), Some(4));
/// assert_eq!(single_colon("prog:f[abi:cxx11]", 5), None);
/// ```
pub fn single_colon(text: &str, from: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let run = bytes[at..].iter().take_while(|b| **b == b':').count();
        match run % 2 {
            1 if at >= from => return Some(at),
            _ => at = closing(&bytes[at..], byte).map_or(at + run.max(1), |len| at + len),
        }
    }
    None
}

fn closing(text: &[u8], open: u8) -> Option<usize> {
    let close = match open {
        b'[' => b']',
        b'(' => b')',
        b'{' => b'}',
        _ => return None,
    };
    let mut depth = 0_usize;
    let end = text.iter().position(|byte| {
        depth += usize::from(*byte == open);
        depth -= usize::from(*byte == close);
        depth == 0
    });
    end.map(|end| end + 1)
}

fn split_kind(rest: TextPart<'_>) -> Result<(Kind, TextPart<'_>), SpecError> {
    let Some(colon) = single_colon(rest.text, 0) else {
        return Ok((Kind::Uprobe, rest));
    };
    let (word, after) = rest.split_around(colon);
    match Kind::of_word(word.text) {
        Some(kind) => Ok((kind, after)),
        None => match OtherKind::of_word(word.text) {
            Some(_) if after.text.is_empty() => after.fault(SpecFault::NoFunction),
            Some(other) => word.fault(SpecFault::NotAProbe(other)),
            None => Ok((Kind::Uprobe, rest)),
        },
    }
}

fn split_binary(
    rest: TextPart<'_>,
    colon: Option<usize>,
) -> Result<(Option<&str>, TextPart<'_>), SpecError> {
    let Some(colon) = colon else {
        return Ok((None, rest));
    };
    let (binary, function) = rest.split_around(colon);
    if binary.text.is_empty() {
        return binary.fault(SpecFault::NoBinary);
    }
    Ok((Some(binary.text), function))
}

/// Splits off the options: the text between the last two slashes, if the spec ends with a slash.
fn split_options(rest: TextPart<'_>) -> Result<(TextPart<'_>, Option<TextPart<'_>>), SpecError> {
    let none = (rest, None);
    if looks_like_path(rest.text) {
        return Ok(none);
    }
    let Some(open) = rest.text.strip_suffix('/').and_then(|text| text.rfind('/')) else {
        return Ok(none);
    };
    let (function, mut options) = rest.split_around(open);
    options.text = &options.text[..options.text.len() - 1];
    if !options.text.split(',').all(is_option) {
        return options.fault(SpecFault::BadOption);
    }
    Ok((function, Some(options)))
}

fn is_option(option: &str) -> bool {
    let name = option.split_once('=').map_or(option, |(name, _)| name);
    !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte == b'-')
}

fn looks_like_path(text: &str) -> bool {
    ["/", "./", "../", "~/"]
        .iter()
        .any(|start| text.starts_with(start))
}

/// Returns the last `+`, if a word or nothing follows it; not that of `operator+`, `operator++` or `f(1+2)`.
fn offset_plus(text: &str) -> Option<usize> {
    let plus = text.rfind('+')?;
    let (before, after) = (&text[..plus], &text[plus + 1..]);
    let operator = if after.is_empty() {
        before.trim_end_matches('+')
    } else {
        before
    };
    let word = after
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    (word && !operator.ends_with("operator")).then_some(plus)
}

fn split_offset(rest: TextPart<'_>) -> Result<(TextPart<'_>, u64), SpecError> {
    let Some(plus) = offset_plus(rest.text) else {
        return Ok((rest, 0));
    };
    let (function, digits) = rest.split_around(plus);
    let Some(offset) = number(digits.text) else {
        return digits.fault(SpecFault::BadOffset);
    };
    if let Some(second) = offset_plus(function.text) {
        return function.split_around(second).1.fault(SpecFault::BadOffset);
    }
    Ok((function, offset))
}

fn read_function(rest: TextPart<'_>) -> Result<Function<'_>, SpecError> {
    if rest.text.is_empty() {
        return rest.fault(SpecFault::NoFunction);
    }
    if matches!(rest.text, "." | ".." | "~") {
        return rest.fault(SpecFault::PathWithoutFunction);
    }
    if is_glob(rest.text) {
        return Ok(Function::Glob(rest.text));
    }
    if !rest.text.starts_with("0x") {
        return Ok(Function::Name(rest.text));
    }
    match number(rest.text) {
        Some(offset) => Ok(Function::Offset(offset)),
        None => rest.fault(SpecFault::BadOffset),
    }
}
