//! Errors of finding a variable to watch.

use std::ops::Range;

use thiserror::Error;
use tiptoe_event::LENGTHS;

/// Why an expression leads to no address, or to one that cannot be watched.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum VariableError {
    /// No variable has this name.
    #[error("no variable `{name}`{}{}", near(nearest), note(missing))]
    NoSuchVariable {
        /// The requested name.
        name: String,
        /// The most similar names, the best first.
        nearest: Vec<String>,
        /// Missing debug information that could name it.
        missing: Option<String>,
    },
    /// Several variables have this name.
    #[error("`{name}` is the name of several variables: {}", list(choices))]
    Ambiguous {
        /// The requested name.
        name: String,
        /// Names that select one of the variables.
        choices: Vec<String>,
    },
    /// The name belongs to a function.
    #[error("`{name}` is a function, not a variable (`{name}:x` watches its execution)")]
    IsFunction {
        /// The requested name.
        name: String,
    },
    /// Execution was to be watched, but no function has the name.
    #[error(
        "no function `{name}` whose execution could be watched{}",
        near(nearest)
    )]
    NoSuchFunction {
        /// The requested name.
        name: String,
        /// The most similar names, the best first.
        nearest: Vec<String>,
    },
    /// A function's local variable, which exists only while that runs.
    #[error(
        "`{name}` is a local variable of `{function}`, on its stack or in a register: only variables with a \
         fixed address have names here; watch it by its address"
    )]
    Local {
        /// The requested name.
        name: String,
        /// The variable's function.
        function: String,
    },
    /// The variable is always in a register.
    #[error(
        "`{name}` is in a register, and only memory can be watched: watch the memory that it is stored to, \
         or, if it is an argument, count calls by it (`tiptoe probe FUNCTION --by arg0`)"
    )]
    InRegister {
        /// The requested name.
        name: String,
    },
    /// The compiler or linker gave the variable no address.
    #[error(
        "`{name}` has no place in memory: it was optimised out{}; build that file with -O0, or watch an address",
        constant(value)
    )]
    OptimisedOut {
        /// The requested name.
        name: String,
        /// The variable's value, if it is constant.
        value: Option<i64>,
    },
    /// The variable's address is computed in an unsupported way.
    #[error("`{name}` has no single address to watch ({what}); watch an address")]
    NoSingleAddress {
        /// The requested name.
        name: String,
        /// What the debug information says of the address.
        what: &'static str,
    },
    /// The variable is defined in another file.
    #[error("`{name}` is declared here and defined in another file: name that as `BINARY:{name}`")]
    Elsewhere {
        /// The requested name.
        name: String,
    },
    /// No debug information has the type of the variable, which an operator needs.
    #[error("the type of `{name}` is unknown, so `{operator}` cannot be followed: {why}")]
    NoType {
        /// The variable.
        name: String,
        /// The requested operator.
        operator: String,
        /// What is missing.
        why: String,
    },
    /// The type has no member of the requested name.
    #[error(
        "`{type_name}` has no member `{member}`; {}",
        instead(nearest, members)
    )]
    NoSuchMember {
        /// The type.
        type_name: String,
        /// The requested name.
        member: String,
        /// The most similar names, the best first.
        nearest: Vec<String>,
        /// The members of the type.
        members: Vec<String>,
    },
    /// `.` or `->` after a type without members.
    #[error("`{expression}` is of type `{type_name}`, which has no members")]
    NoMembers {
        /// The operand.
        expression: String,
        /// The operand's type.
        type_name: String,
    },
    /// `*` or `[]` on neither a pointer nor an array.
    #[error("`{expression}` is of type `{type_name}`, which is neither a pointer nor an array")]
    NotAPointer {
        /// The operand.
        expression: String,
        /// The operand's type.
        type_name: String,
    },
    /// An index outside its array.
    #[error("`{expression}` has {count} elements, so there is no [{index}]")]
    OutOfBounds {
        /// The array.
        expression: String,
        /// The array's length.
        count: u64,
        /// The requested index.
        index: i64,
    },
    /// A bit field: no breakpoint watches less than a byte.
    #[error("`{expression}` is a bit field ({}); a byte is the least that can be watched: {}", of_bits(bits), holder(bits, *address))]
    BitField {
        /// The member.
        expression: String,
        /// The bit field's bits, from the start of the (pointed-to) structure.
        bits: Range<u64>,
        /// The structure's link-time address, if known.
        address: Option<u64>,
    },
    /// A member of a virtual base class, whose offset only the object has.
    #[error(
        "`{member}` is in a virtual base class of `{type_name}`, whose place is only known in the object; watch an address"
    )]
    VirtualBase {
        /// The type.
        type_name: String,
        /// The requested name.
        member: String,
    },
    /// A type without a size: `void`, a function, a declared structure.
    #[error(
        "`{expression}` is of type `{type_name}`, which has no size: say how many bytes (`{expression}:4`)"
    )]
    NoSize {
        /// The requested expression.
        expression: String,
        /// The expression's type.
        type_name: String,
    },
    /// A size that no breakpoint has.
    #[error(
        "`{expression}` is of type `{type_name}`, of {size} bytes, and a watch covers 1, 2, 4 or 8: name a part of it{}, or say how many bytes (`{expression}:8`)",
        element(expression, type_name)
    )]
    BadSize {
        /// The requested expression.
        expression: String,
        /// The expression's type.
        type_name: String,
        /// The size of the type.
        size: u64,
    },
    /// An address without a length.
    #[error("say how many bytes at {address:#x} (`{address:#x}:8`)")]
    NoLength {
        /// The requested address.
        address: u64,
    },
    /// An address that is not a multiple of the length.
    #[error("{address:#x} is no multiple of {length}, as a watch of {length} bytes must be; {}", aligned(*address, *length))]
    Unaligned {
        /// The address of the watch.
        address: u64,
        /// The watch's length in bytes.
        length: u8,
    },
    /// A pointer on the way is null.
    #[error("`{pointer}` is null")]
    NullPointer {
        /// The pointer, as an expression.
        pointer: String,
    },
    /// A pointer on the way is not in mapped memory.
    #[error("`{pointer}` cannot be read: the process has no memory at {address:#x}")]
    Unmapped {
        /// The pointer, as an expression.
        pointer: String,
        /// The address to which the pointer leads.
        address: u64,
    },
    /// An address of a file that is larger than any address in memory once the file is loaded.
    #[error("`{name}` is beyond the memory of any process")]
    BeyondMemory {
        /// The requested address.
        name: String,
    },
    /// A thread-local variable without a thread.
    #[error("each thread has its own `{name}`: name the thread")]
    WhichThread {
        /// The variable.
        name: String,
    },
    /// The address of a thread's own variables is unknown.
    #[error("cannot find the thread-local variables of this file: {why}")]
    NoThreadBlock {
        /// What is missing.
        why: &'static str,
    },
    /// The variable's type is in a file that does not exist.
    #[error("its type is in `{name}`, which does not exist: {remedy}")]
    MissingFile {
        /// The file's path, relative to the referring file.
        name: String,
        /// The commands that bring the file.
        remedy: String,
    },
    /// The debug information contradicts itself, or exceeds the budget.
    #[error("damaged debug information: {what}")]
    Damaged {
        /// The inconsistent part.
        what: &'static str,
    },
}

fn list(names: &[String]) -> String {
    let mut quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    let last = quoted.pop();
    match (quoted.is_empty(), last) {
        (_, None) => "none".to_owned(),
        (true, Some(last)) => last,
        (false, Some(last)) => format!("{} and {last}", quoted.join(", ")),
    }
}

fn near(nearest: &[String]) -> String {
    match nearest.is_empty() {
        true => String::new(),
        false => format!("; the nearest: {}", list(nearest)),
    }
}

/// Returns the names to offer: all members, or if many the most similar.
fn instead(nearest: &[String], members: &[String]) -> String {
    const FEW: usize = 12;
    match members.len().checked_sub(FEW) {
        None | Some(0) => format!("it has {}", list(members)),
        Some(more) if nearest.is_empty() => {
            let first: Vec<String> = members[..FEW]
                .iter()
                .map(|name| format!("`{name}`"))
                .collect();
            format!("it has {} and {more} more", first.join(", "))
        }
        Some(_) => format!("the nearest: {}", list(nearest)),
    }
}

fn element(expression: &str, type_name: &str) -> String {
    match type_name.ends_with(']') {
        true => format!(" (`{expression}[0]`)"),
        false => String::new(),
    }
}

fn note(missing: &Option<String>) -> String {
    missing
        .as_ref()
        .map_or_else(String::new, |missing| format!("; {missing}"))
}

fn constant(value: &Option<i64>) -> String {
    value.map_or_else(String::new, |value| format!(", as it is always {value}"))
}

fn of_bits(bits: &Range<u64>) -> String {
    match bits.end.saturating_sub(bits.start) {
        1 => "one bit".to_owned(),
        count => format!("{count} bits"),
    }
}

/// Returns the bytes that hold these bits, with known addresses.
fn holder(bits: &Range<u64>, address: Option<u64>) -> String {
    let (first, last) = (bits.start / 8, bits.end.saturating_sub(1) / 8);
    let from = address.unwrap_or(0);
    let bytes = match first == last {
        true => format!("byte {:#x}", from.wrapping_add(first)),
        false => format!(
            "bytes {:#x} to {:#x}",
            from.wrapping_add(first),
            from.wrapping_add(last)
        ),
    };
    match address {
        Some(_) => format!(
            "it is in {bytes} of the file (`BINARY:ADDRESS:1`), which other fields may share"
        ),
        None => format!("it is in {bytes} of its structure, which other fields may share"),
    }
}

fn aligned(address: u64, length: u8) -> String {
    let length = u64::from(length);
    let below = address - address % length;
    let mut choices = vec![format!("{below:#x}:{length}")];
    choices.extend(
        below
            .checked_add(length)
            .map(|above| format!("{above:#x}:{length}")),
    );
    let fits = LENGTHS
        .iter()
        .rev()
        .find(|&&fit| address.is_multiple_of(fit.into()));
    choices.extend(fits.map(|fit| format!("{address:#x}:{fit}")));
    let wide = address - address % 8;
    if length < 8 && address % 8 + length <= 8 {
        choices.push(format!("{wide:#x}:8"));
    }
    format!("those are: {}", list(&choices))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligned_alternatives() {
        let error = |address, length| VariableError::Unaligned { address, length }.to_string();
        assert_eq!(
            error(0x1002, 4),
            "0x1002 is no multiple of 4, as a watch of 4 bytes must be; \
             those are: `0x1000:4`, `0x1004:4`, `0x1002:2` and `0x1000:8`"
        );
        assert!(error(0x1006, 8).ends_with("`0x1000:8`, `0x1008:8` and `0x1006:2`"));
        assert!(error(u64::MAX, 8).ends_with("`0xfffffffffffffff8:8` and `0xffffffffffffffff:1`"));
    }

    #[test]
    fn the_nearest_of_many_members_are_named() {
        let error = |nearest: &[&str], count: usize| {
            let names = |names: &mut dyn Iterator<Item = String>| names.collect::<Vec<_>>();
            VariableError::NoSuchMember {
                type_name: "s".into(),
                member: "x".into(),
                nearest: names(&mut nearest.iter().map(|name| (*name).to_owned())),
                members: names(&mut (0..count).map(|number| format!("m{number}"))),
            }
            .to_string()
        };
        assert_eq!(error(&[], 2), "`s` has no member `x`; it has `m0` and `m1`");
        assert!(error(&["m1"], 12).ends_with("`m10` and `m11`"));
        assert!(error(&["m1"], 13).ends_with("; the nearest: `m1`"));
        assert!(error(&[], 15).ends_with("`m11` and 3 more"));
    }

    #[test]
    fn an_element_of_an_array_is_named() {
        let error = |type_name: &str| {
            VariableError::BadSize {
                expression: "a.b".into(),
                type_name: type_name.into(),
                size: 12,
            }
            .to_string()
        };
        assert!(error("int[3]").contains("name a part of it (`a.b[0]`), or"));
        assert!(error("pair").contains("name a part of it, or"));
    }

    #[test]
    fn bit_fields_name_their_bytes() {
        let error = |bits, address| {
            let expression = "s.flag".to_owned();
            VariableError::BitField {
                expression,
                bits,
                address,
            }
            .to_string()
        };
        assert!(error(35..38, Some(0x4010)).contains("it is in byte 0x4014 of the file"));
        assert!(error(6..9, None).contains("(3 bits)"));
        assert!(error(6..9, None).contains("bytes 0x0 to 0x1 of its structure"));
    }
}
