use core::fmt;

/// An error in a text, and its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TextError<F> {
    /// The fault's offset in bytes.
    pub at: usize,
    /// The fault.
    pub fault: F,
}

impl<F: fmt::Display> fmt::Display for TextError<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (at character {})", self.fault, self.at + 1)
    }
}

impl<F: fmt::Debug + fmt::Display> core::error::Error for TextError<F> {}

/// A part of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TextPart<'a> {
    /// The part's text.
    pub text: &'a str,
    /// The part's offset in the whole text, in bytes.
    pub at: usize,
}

impl<'a> TextPart<'a> {
    pub(crate) fn fault<T, F>(self, fault: F) -> Result<T, TextError<F>> {
        Err(TextError { at: self.at, fault })
    }

    pub(crate) fn split_around(self, cut: usize) -> (TextPart<'a>, TextPart<'a>) {
        let part = |text, at| TextPart { text, at };
        let (before, after) = (&self.text[..cut], &self.text[cut + 1..]);
        (part(before, self.at), part(after, self.at + cut + 1))
    }
}
