use std::fmt::Write as _;

/// The type of a watched value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Type {
    /// The name, without `struct` and the like: `client *`.
    pub name: String,
    /// The size in bytes, if known.
    pub size: Option<u64>,
    /// The format.
    pub kind: ValueKind,
}

/// The format of values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// A number.
    Integer {
        /// Whether it can be negative.
        is_signed: bool,
    },
    /// A character, of one byte or of Unicode.
    Character {
        /// Whether it can be negative.
        is_signed: bool,
    },
    /// `true` or `false`.
    Boolean,
    /// A floating-point number.
    Float,
    /// An address.
    Pointer,
    /// A value with a name.
    Enumeration {
        /// Whether it can be negative.
        is_signed: bool,
        /// The values' names.
        names: Vec<(i64, String)>,
    },
    /// A structure, union or array.
    Compound,
    /// Unknown.
    Unknown,
}

impl Type {
    /// Returns an unknown type.
    pub fn unknown(size: Option<u64>) -> Type {
        Type {
            name: "unknown".to_owned(),
            size,
            kind: ValueKind::Unknown,
        }
    }

    /// Formats the little-endian value, as a number if the bytes are only a part of the value (`x:1` of an `int`).
    pub fn describe(&self, bytes: &[u8]) -> String {
        let whole = self.size == Some(bytes.len() as u64);
        let (Some(value), true) = (unsigned(bytes), !bytes.is_empty()) else {
            return hex(bytes);
        };
        let signed = sign_extended(value, bytes.len());
        if !whole && self.kind != ValueKind::Unknown {
            return value.to_string();
        }
        let number = |is_signed: bool| match is_signed {
            true => signed.to_string(),
            false => value.to_string(),
        };
        match &self.kind {
            ValueKind::Integer { is_signed } => number(*is_signed),
            ValueKind::Unknown => value.to_string(),
            ValueKind::Character { is_signed } => with_character(number(*is_signed), value),
            ValueKind::Boolean if value < 2 => (value == 1).to_string(),
            ValueKind::Boolean => value.to_string(),
            ValueKind::Float => float(bytes).unwrap_or_else(|| hex(bytes)),
            ValueKind::Pointer | ValueKind::Compound => format!("{value:#x}"),
            ValueKind::Enumeration { is_signed, names } => {
                let wanted = match is_signed {
                    true => signed,
                    false => value.cast_signed(),
                };
                let named = names.iter().find(|(value, _)| *value == wanted);
                named.map_or_else(|| number(*is_signed), |(_, name)| name.clone())
            }
        }
    }
}

fn unsigned(bytes: &[u8]) -> Option<u64> {
    let mut word = [0; 8];
    word.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(u64::from_le_bytes(word))
}

fn sign_extended(value: u64, bytes: usize) -> i64 {
    let unused = 64_u32.saturating_sub(8 * bytes as u32);
    (value << (unused & 63)).cast_signed() >> (unused & 63)
}

fn with_character(number: String, value: u64) -> String {
    let shown = u32::try_from(value).ok().and_then(char::from_u32);
    match shown.filter(|c| !c.is_control() && (c.is_ascii() || value > 0xff)) {
        Some(shown) => format!("{number} '{shown}'"),
        None => number,
    }
}

fn float(bytes: &[u8]) -> Option<String> {
    if let Ok(bytes) = bytes.try_into() {
        return Some(short(f32::from_le_bytes(bytes)));
    }
    let bytes = bytes.try_into().ok()?;
    Some(short(f64::from_le_bytes(bytes)))
}

/// Formats a number, with an exponent instead of hundreds of zeros.
fn short(number: impl std::fmt::Display + std::fmt::Debug) -> String {
    let with_exponent = format!("{number:?}");
    match with_exponent.contains('e') {
        true => with_exponent,
        false => number.to_string(),
    }
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        let separator = if text.is_empty() { "" } else { " " };
        // This never fails.
        let _ = write!(text, "{separator}{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(kind: ValueKind, bytes: &[u8], text: &str) {
        let size = Some(bytes.len() as u64);
        let name = String::new();
        let described = Type { name, size, kind }.describe(bytes);
        assert_eq!(described, text, "{bytes:?}");
    }

    #[test]
    fn numbers() {
        let (signed, unsigned) = (
            ValueKind::Integer { is_signed: true },
            ValueKind::Integer { is_signed: false },
        );
        check(signed.clone(), &[0xff], "-1");
        check(unsigned.clone(), &[0xff], "255");
        check(signed.clone(), &[0xfe, 0xff], "-2");
        check(
            signed.clone(),
            &i64::MIN.to_le_bytes(),
            "-9223372036854775808",
        );
        check(unsigned, &u64::MAX.to_le_bytes(), "18446744073709551615");
        check(
            signed,
            &[1; 16],
            "01 01 01 01 01 01 01 01 01 01 01 01 01 01 01 01",
        );
        check(
            ValueKind::Pointer,
            &0x7fff_1000_u64.to_le_bytes(),
            "0x7fff1000",
        );
        check(ValueKind::Float, &1.5_f32.to_le_bytes(), "1.5");
        check(ValueKind::Float, &(-0.25_f64).to_le_bytes(), "-0.25");
        check(ValueKind::Float, &2_f64.to_le_bytes(), "2");
        check(ValueKind::Float, &1e300_f64.to_le_bytes(), "1e300");
        check(ValueKind::Float, &5e-324_f64.to_le_bytes(), "5e-324");
        check(ValueKind::Unknown, &[7, 0], "7");
        check(
            ValueKind::Compound,
            &[1, 0, 0, 0, 2, 0, 0, 0],
            "0x200000001",
        );
    }

    #[test]
    fn words() {
        let character = |signed| ValueKind::Character { is_signed: signed };
        check(character(true), b"A", "65 'A'");
        check(character(true), &[0xff], "-1");
        check(character(false), &[0xff], "255");
        check(character(false), &0x20ac_u32.to_le_bytes(), "8364 '€'");
        check(character(false), &[0], "0");
        check(ValueKind::Boolean, &[1], "true");
        check(ValueKind::Boolean, &[0], "false");
        check(ValueKind::Boolean, &[2], "2");
        let names = vec![(-1, "NONE".to_owned()), (2, "RED".to_owned())];
        let colour = ValueKind::Enumeration {
            is_signed: true,
            names,
        };
        check(colour.clone(), &(-1_i32).to_le_bytes(), "NONE");
        check(colour.clone(), &2_i32.to_le_bytes(), "RED");
        check(colour, &(-3_i32).to_le_bytes(), "-3");
    }

    #[test]
    fn a_part_of_a_value_is_a_number() {
        let int = Type {
            name: "int".into(),
            size: Some(4),
            kind: ValueKind::Integer { is_signed: true },
        };
        assert_eq!(int.describe(&[0xff]), "255");
        assert_eq!(int.describe(&[0xff; 4]), "-1");
        assert_eq!(int.describe(&[]), "");
        assert_eq!(Type::unknown(None).describe(&[1, 0]), "1");
    }
}
