//! Converts a price (cost of one hit) to numbers, and to its file's only valid text:
//!
//! ```text
//! tiptoe prices 1
//! boot BOOT_ID
//! cpu MODEL
//! tiptoe VERSION FILE
//! KIND
//! YARDSTICK
//! NUMBER...
//! end
//! ```

use std::fmt::Write as _;

use tiptoe_event::Cost;

pub(super) const FORM: &str = "tiptoe prices 1";
/// The last line, which a truncated file lacks.
const END: &str = "end\n";

pub(super) trait Price: Sized {
    /// The prefix of this price's file names.
    const KIND: &'static str;

    fn numbers(&self) -> Vec<f64>;

    /// Returns the price with these finite numbers; `None` if no measurement gives such numbers.
    fn of_numbers(numbers: &[f64]) -> Option<Self>;
}

pub(super) fn encode<P: Price>(key: &str, yardstick: f64, price: &P) -> String {
    let mut text = format!("{FORM}\n{key}{}\n", P::KIND);
    for number in std::iter::once(yardstick).chain(price.numbers()) {
        // `{:?}` writes the shortest text of exactly this number. Writing to a string cannot fail.
        let _ = writeln!(text, "{number:?}");
    }
    text + END
}

/// Returns the yardstick (a test loop's time) and the price; `None` unless [`encode`] makes exactly this text for the
/// key.
pub(super) fn decode<P: Price>(key: &str, text: &[u8]) -> Option<(f64, P)> {
    let text = std::str::from_utf8(text).ok()?;
    let rest = text.strip_prefix(FORM)?.strip_prefix('\n')?;
    let rest = rest.strip_prefix(key)?.strip_prefix(P::KIND)?;
    let numbers = rest.strip_prefix('\n')?.strip_suffix(END)?;
    let numbers: Vec<f64> = numbers.lines().map(number).collect::<Option<_>>()?;
    let (yardstick, price) = numbers.split_first()?;
    let price = P::of_numbers(price).filter(|_| (1e-3..1e6).contains(yardstick))?;
    (encode(key, *yardstick, &price).as_bytes() == text.as_bytes()).then_some((*yardstick, price))
}

fn number(line: &str) -> Option<f64> {
    line.parse().ok().filter(|number: &f64| number.is_finite())
}

/// Returns the numbers if each is a possible duration of a hit, in ns.
pub(super) fn bounded<const N: usize>(numbers: &[f64]) -> Option<[f64; N]> {
    let numbers: [f64; N] = numbers.try_into().ok()?;
    let is_sane = |ns: &f64| (1e-3..=1e7).contains(ns);
    numbers.iter().all(is_sane).then_some(numbers)
}

pub(super) fn costs<const N: usize>(numbers: &[f64]) -> Option<[Cost; N]> {
    let (numbers, []) = numbers.as_chunks::<3>() else {
        return None;
    };
    let cost = |numbers: &[f64; 3]| {
        let [low_ns, ns, high_ns] = bounded(numbers)?;
        (low_ns <= ns && ns <= high_ns).then(|| Cost::between(low_ns, ns, high_ns))
    };
    let costs: Vec<Cost> = numbers.iter().map(cost).collect::<Option<_>>()?;
    costs.try_into().ok()
}

pub(super) fn numbers_of<const N: usize>(costs: [Cost; N]) -> Vec<f64> {
    let costs = costs.iter();
    costs
        .flat_map(|cost| [cost.low_ns, cost.ns, cost.high_ns])
        .collect()
}
