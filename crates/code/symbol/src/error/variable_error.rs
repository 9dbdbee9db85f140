#![expect(missing_docs, reason = "the message of a variant says what it means")]

use std::ops::Range;

use thiserror::Error;
use tiptoe_event::LENGTHS;

use super::quoted;

/// Why an expression leads to no address that can be watched.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum VariableError {
    #[error("no variable `{name}`{}{}", near(nearest), note(missing))]
    NoSuchVariable {
        name: String,
        nearest: Vec<String>,
        missing: Option<DebugGap>,
    },
    #[error("`{name}` is the name of several variables: {}", list(choices))]
    Ambiguous { name: String, choices: Vec<String> },
    #[error("`{name}` is a function, not a variable (`{name}:x` watches its execution)")]
    IsFunction { name: String },
    #[error(
        "no function `{name}` whose execution could be watched{}",
        near(nearest)
    )]
    NoSuchFunction { name: String, nearest: Vec<String> },
    #[error(
        "`{name}` is a local variable of `{function}`, on its stack or in a register: only variables with a \
         fixed address have names here; watch it by its address"
    )]
    Local { name: String, function: String },
    #[error(
        "`{name}` is in a register, and only memory can be watched: watch the memory that it is stored to, \
         or, if it is an argument, count calls by it (`tiptoe probe FUNCTION --by arg0`)"
    )]
    InRegister { name: String },
    #[error(
        "`{name}` has no place in memory: it was optimised out{}; build that file with -O0, or watch an address",
        constant(value)
    )]
    OptimisedOut {
        name: String,
        value: Option<Constant>,
    },
    #[error(
        "`{name}` has no fixed address to watch ({what}); give an address instead, such as 0x601040:4"
    )]
    NoSingleAddress { name: String, what: AddressForm },
    #[error("`{name}` is declared here and defined in another file: name that as `BINARY:{name}`")]
    Elsewhere { name: String },
    #[error("the type of `{name}` is unknown, so `{operator}` cannot be followed: {why}")]
    NoType {
        name: String,
        operator: String,
        why: DebugGap,
    },
    #[error(
        "`{type_name}` has no member `{member}`; {}",
        instead(nearest, members)
    )]
    NoSuchMember {
        type_name: String,
        member: String,
        nearest: Vec<String>,
        members: Vec<String>,
    },
    #[error("`{expression}` is of type `{type_name}`, which has no members")]
    NoMembers {
        expression: String,
        type_name: String,
    },
    #[error("`{expression}` is of type `{type_name}`, which is neither a pointer nor an array")]
    NotAPointer {
        expression: String,
        type_name: String,
    },
    #[error("`{expression}` has {count} elements, so there is no [{index}]")]
    OutOfBounds {
        expression: String,
        count: u64,
        index: i64,
    },
    #[error("`{expression}` is a bit field ({}); a byte is the least that can be watched: {}", of_bits(bits), holder(bits, *address))]
    BitField {
        expression: String,
        /// The field's bits, from the start of the (pointed-to) structure.
        bits: Range<u64>,
        /// The structure's link-time address, if known.
        address: Option<u64>,
    },
    #[error(
        "`{member}` is in a virtual base class of `{type_name}`, whose place is only known in the object; watch an address"
    )]
    VirtualBase { type_name: String, member: String },
    #[error(
        "`{expression}` is of type `{type_name}`, which has no size: say how many bytes (`{expression}:4`)"
    )]
    NoSize {
        expression: String,
        type_name: String,
    },
    #[error(
        "`{expression}` is of type `{type_name}`, of {size} bytes, and a watch covers 1, 2, 4 or 8: name a part of it{}, or say how many bytes (`{expression}:8`)",
        element(expression, type_name)
    )]
    BadSize {
        expression: String,
        type_name: String,
        size: u64,
    },
    #[error("say how many bytes at {address:#x} (`{address:#x}:8`)")]
    NoLength { address: u64 },
    #[error("{address:#x} is no multiple of {length}, as a watch of {length} bytes must be; {}", aligned(*address, *length))]
    Unaligned { address: u64, length: u8 },
    #[error("`{pointer}` is null")]
    NullPointer { pointer: String },
    #[error("`{pointer}` cannot be read: the process has no memory at {address:#x}")]
    Unmapped { pointer: String, address: u64 },
    /// Once the file is loaded, the address exceeds 64 bits.
    #[error("`{name}` is beyond the memory of any process")]
    BeyondMemory { name: String },
    #[error("each thread has its own `{name}`: name the thread")]
    WhichThread { name: String },
    #[error("cannot find the thread-local variables of this file: {why}")]
    NoThreadBlock { why: BlockGap },
    #[error("its type is in `{name}`, which does not exist: {remedy}")]
    MissingFile { name: String, remedy: String },
    #[error("damaged debug information: {what}")]
    Damaged { what: Damage },
}

/// What the debug information lacks.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DebugGap {
    #[error("a part of the debug information is too large to be read")]
    TooLarge,
    #[error(
        "{files} of its source files have their debug information in `.dwo` files, which are not read (build without -gsplit-dwarf)"
    )]
    Split { files: usize },
    #[error("a part of the debug information is in `{name}`, which does not exist: {remedy}")]
    SharedFile { name: String, remedy: String },
    #[error("the file has no debug information: {remedy}")]
    Package { remedy: String },
    #[error("the file has no debug information (build it with -g, or install that of its package)")]
    File,
    #[error("no debug information describes it (was its source built with -g?)")]
    Source,
    #[error("it is only declared: its definition is in no file with debug information")]
    Definition,
}

/// The value of a variable that is not in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Constant {
    Signed(i64),
    Unsigned(u64),
}

/// Why a variable has no single address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AddressForm {
    #[error("the optimiser split it up")]
    Split,
    #[error("its address is computed")]
    Computed,
}

/// Why thread-local variables are not found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BlockGap {
    #[error("it is no 64-bit program")]
    Foreign,
    #[error("it has no thread-local variables")]
    NoVariables,
    #[error("its memory cannot be read")]
    Unreadable,
    #[error("the library gets their address in an unknown way")]
    UnknownAccess,
    #[error("the loader has not set the library up yet")]
    NotLoaded,
    #[error("the thread has not used any of them yet")]
    Unused,
}

/// What is inconsistent in the debug information.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Damage {
    #[error("it refers to itself over and over")]
    Circle,
    #[error("a reference leads nowhere")]
    Reference,
    #[error("a type that has no end")]
    EndlessType,
    #[error("a member without a place")]
    Member,
    #[error("a type is described in a file that does not exist (made by dwz)")]
    MissingFile,
}

fn list(names: &[String]) -> String {
    let mut quoted = quoted(names);
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

/// Lists all members, or the most similar members if there are many.
fn instead(nearest: &[String], members: &[String]) -> String {
    const FEW: usize = 12;
    match members.len().checked_sub(FEW) {
        None | Some(0) => format!("it has {}", list(members)),
        Some(more) if nearest.is_empty() => {
            let first = quoted(&members[..FEW]).join(", ");
            format!("it has {first} and {more} more")
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

fn note(missing: &Option<DebugGap>) -> String {
    missing
        .as_ref()
        .map_or_else(String::new, |missing| format!("; {missing}"))
}

fn constant(value: &Option<Constant>) -> String {
    match value {
        Some(Constant::Unsigned(value)) => format!(", as it is always {value}"),
        Some(Constant::Signed(value)) => format!(", as it is always {value}"),
        None => String::new(),
    }
}

fn of_bits(bits: &Range<u64>) -> String {
    match bits.end.saturating_sub(bits.start) {
        1 => "one bit".to_owned(),
        count => format!("{count} bits"),
    }
}

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
    format!("use one of: {}", list(&choices))
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
             use one of: `0x1000:4`, `0x1004:4`, `0x1002:2` and `0x1000:8`"
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
