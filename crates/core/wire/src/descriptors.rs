//! The environment entry that gives descriptors to the *agent*, the library that tiptoe preloads into a command.
//!
//! Any process can forge an entry for its children, and an agent injected by root would read it. So an entry is valid
//! only with the key that tiptoe wrote into the preloaded agent's image.

use core::fmt;

/// The entry's name.
pub const NAME: &[u8] = b"TIPTOE_AGENT=";

/// A random number known to tiptoe and the preloaded image; 0 is none.
pub type Key = [u64; 2];

const HALF: usize = 16;

/// A command's descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DescriptorEntry {
    /// The agent's own file.
    pub agent: i32,
    /// The data segment.
    pub data: i32,
    /// The plan segment.
    pub plan: i32,
}

impl DescriptorEntry {
    /// Writes the entry.
    pub fn write(&self, [high, low]: Key, to: &mut impl fmt::Write) -> fmt::Result {
        let name = core::str::from_utf8(NAME).map_err(|_| fmt::Error)?;
        let DescriptorEntry { agent, data, plan } = self;
        write!(to, "{name}{high:016x}{low:016x},{agent},{data},{plan}")
    }

    /// Reads an entry; `None` without this key, or if the key is 0.
    pub fn read(entry: &[u8], key: Key) -> Option<DescriptorEntry> {
        let value = entry.strip_prefix(NAME)?;
        let (high, value) = value.split_at_checked(HALF)?;
        let (low, mut rest) = value.split_at_checked(HALF)?;
        if key == [0; 2] || [hexadecimal(high)?, hexadecimal(low)?] != key {
            return None;
        }
        let mut descriptors = [0; 3];
        for descriptor in &mut descriptors {
            let text = rest.strip_prefix(b",")?;
            let digits = text.iter().take_while(|byte| byte.is_ascii_digit());
            let (digits, after) = text.split_at_checked(digits.count())?;
            *descriptor = decimal(digits)?;
            rest = after;
        }
        let [agent, data, plan] = descriptors;
        rest.is_empty()
            .then_some(DescriptorEntry { agent, data, plan })
    }
}

fn hexadecimal(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0, |sum: u64, digit| {
        Some(sum << 4 | u64::from(char::from(*digit).to_digit(16)?))
    })
}

fn decimal(digits: &[u8]) -> Option<i32> {
    let mut digits = digits.iter().map(|digit| i32::from(digit - b'0'));
    let first = digits.next()?;
    digits.try_fold(first, |sum, digit| sum.checked_mul(10)?.checked_add(digit))
}

/// The seals of each memfd (`fcntl(F_GET_SEALS)`).
pub mod seals {
    const SEAL: i32 = 1;
    const SHRINK: i32 = 2;
    const GROW: i32 = 4;
    const WRITE: i32 = 8;
    const FUTURE_WRITE: i32 = 16;
    /// For the data segment, written by both sides.
    pub const DATA: i32 = SEAL | SHRINK | GROW;
    /// For the plan segment, written only through tiptoe's mapping.
    pub const PLAN: i32 = DATA | FUTURE_WRITE;
    /// For the agent's file.
    pub const AGENT: i32 = DATA | WRITE;
}

#[cfg(all(test, not(tiptoe_loom)))]
mod tests {
    use super::*;
    extern crate std;
    use std::string::String;

    const KEY: Key = [0x0123_4567_89ab_cdef, 7];
    const ENTRY: DescriptorEntry = DescriptorEntry {
        agent: 200,
        data: 201,
        plan: i32::MAX,
    };

    fn entry(key: Key) -> String {
        let mut entry = String::new();
        ENTRY.write(key, &mut entry).expect("a string");
        entry
    }

    #[test]
    fn an_entry_is_read_as_it_was_written() {
        assert_eq!(
            DescriptorEntry::read(entry(KEY).as_bytes(), KEY),
            Some(ENTRY)
        );
    }

    #[test]
    fn an_entry_without_the_images_key_is_none() {
        let read = |entry: &str, key| DescriptorEntry::read(entry.as_bytes(), key);
        assert_eq!(read(&entry(KEY), [KEY[0], 8]), None);
        assert_eq!(read(&entry([0; 2]), [0; 2]), None);
        assert_eq!(read("TIPTOE_AGENT=10,11,12", KEY), None);
        assert_eq!(read("TIPTOE_AGENT=10,11,12", [0; 2]), None);
    }

    #[test]
    fn every_cut_or_longer_entry_is_none() {
        let whole = entry(KEY);
        let shorter =
            (0..whole.len()).filter(|len| !whole[*len..].bytes().all(|b| b.is_ascii_digit()));
        for len in shorter {
            assert_eq!(
                DescriptorEntry::read(&whole.as_bytes()[..len], KEY),
                None,
                "{len}"
            );
        }
        for tail in ["0", ",", "x"] {
            assert_eq!(
                DescriptorEntry::read((whole.clone() + tail).as_bytes(), KEY),
                None
            );
        }
    }
}
