//! Parses `/proc/PID/maps`. The kernel appends ` (deleted)` to an unlinked file's name, and the parser removes that. So
//! the path of a file whose own name ends with ` (deleted)` is wrong, and only [`super::Process::open_mapped`] can open
//! that file.

use std::prelude::rust_2024::*;

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use crate::host::error::{Error, Result};

/// A mapping's permissions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Perms {
    /// `r`
    pub read: bool,
    /// `w`
    pub write: bool,
    /// `x`
    pub exec: bool,
    /// `s` instead of `p`: other processes see writes.
    pub shared: bool,
}

/// A device number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Device {
    /// Major.
    pub major: u32,
    /// Minor.
    pub minor: u32,
}

/// A mapping: `[start, end) -> (file, offset)`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// First address after the mapping.
    pub end: u64,
    /// The permissions.
    pub perms: Perms,
    /// The first address's offset in the file.
    pub offset: u64,
    /// The device; on some file systems stat(2) shows another device.
    pub dev: Device,
    /// The file's inode; 0 without a file.
    pub inode: u64,
    /// The path as the process sees it, or a name such as `[heap]`.
    pub path: Option<PathBuf>,
    /// The file was unlinked (or replaced).
    pub deleted: bool,
}

impl Mapping {
    /// Parses a maps file.
    pub fn parse_all(bytes: &[u8]) -> Result<Vec<Mapping>> {
        let lines = bytes.split(|b| *b == b'\n').filter(|l| !l.is_empty());
        lines
            .map(|line| parse_line(line).ok_or_else(|| bad(line)))
            .collect()
    }

    /// Returns whether this is code from a file, neither writable nor shared.
    pub fn is_text(&self) -> bool {
        self.has_perms(b"r-xp") && self.inode != 0
    }

    /// Returns whether the mapping has exactly these permissions.
    pub fn has_perms(&self, word: &[u8; 4]) -> bool {
        perms(word) == Some(self.perms)
    }

    /// Returns whether both mappings are of one file, or both of none.
    pub fn same_file(&self, other: &Mapping) -> bool {
        (self.inode, self.dev, &self.path) == (other.inode, other.dev, &other.path)
    }

    /// Returns whether `address` is inside.
    pub fn contains(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }

    /// Returns the mapped file's path, if a file is mapped.
    pub fn file(&self) -> Option<&Path> {
        let path = self.path.as_deref()?;
        (self.inode != 0 && path.is_absolute()).then_some(path)
    }

    /// Returns `address`'s offset in the file, if inside.
    pub fn file_offset(&self, address: u64) -> Option<u64> {
        self.contains(address)
            .then(|| (address - self.start).wrapping_add(self.offset))
    }
}

fn bad(line: &[u8]) -> Error {
    Error::malformed(format!("the mapping `{}`", String::from_utf8_lossy(line)))
}

fn parse_line(line: &[u8]) -> Option<Mapping> {
    let mut rest = line;
    let (start, end) = split(word(&mut rest)?, '-')?;
    let perms = perms(word(&mut rest)?.as_bytes())?;
    let offset = hex(word(&mut rest)?)?;
    let (major, minor) = split(word(&mut rest)?, ':')?;
    let inode = word(&mut rest)?.parse().ok()?;
    let (path, deleted) = name(rest.trim_ascii_start());
    Some(Mapping {
        start,
        end,
        perms,
        offset,
        dev: Device {
            major: u32::try_from(major).ok()?,
            minor: u32::try_from(minor).ok()?,
        },
        inode,
        path,
        deleted,
    })
}

fn word<'a>(rest: &mut &'a [u8]) -> Option<&'a str> {
    let end = rest.iter().position(|b| *b == b' ').unwrap_or(rest.len());
    let (word, tail) = rest.split_at(end);
    *rest = tail.strip_prefix(b" ").unwrap_or(tail);
    std::str::from_utf8(word).ok()
}

fn hex(word: &str) -> Option<u64> {
    u64::from_str_radix(word, 16).ok()
}

fn split(word: &str, at: char) -> Option<(u64, u64)> {
    let (left, right) = word.split_once(at)?;
    Some((hex(left)?, hex(right)?))
}

fn perms(word: &[u8]) -> Option<Perms> {
    let &[r, w, x, s] = word else { return None };
    Some(Perms {
        read: r == b'r',
        write: w == b'w',
        exec: x == b'x',
        shared: s == b's',
    })
}

fn name(text: &[u8]) -> (Option<PathBuf>, bool) {
    if text.is_empty() {
        return (None, false);
    }
    let kept = text.strip_suffix(b" (deleted)");
    let path = OsString::from_vec(unescape(kept.unwrap_or(text)));
    (Some(path.into()), kept.is_some())
}

/// The kernel escapes only newlines.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, tail)) = rest.split_first() {
        if let Some(after) = rest.strip_prefix(br"\012") {
            out.push(b'\n');
            rest = after;
        } else {
            out.push(first);
            rest = tail;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, path: Option<&str>, deleted: bool) -> Mapping {
        let mapping = parse_line(line.as_bytes()).expect(line);
        assert_eq!(mapping.path.as_deref(), path.map(Path::new), "{line}");
        assert_eq!(mapping.deleted, deleted, "{line}");
        mapping
    }

    #[test]
    fn names() {
        let head = "7f00-7fff r-xp 0001a000 fe:00 247026";
        check(head, None, false);
        check(&format!("{head} "), None, false);
        check(
            &format!("{head}      /usr/bin/a b  c"),
            Some("/usr/bin/a b  c"),
            false,
        );
        check(
            &format!("{head}      /tmp/x y (deleted)"),
            Some("/tmp/x y"),
            true,
        );
        check(
            &format!("{head}      /tmp/two\\012lines"),
            Some("/tmp/two\nlines"),
            false,
        );
        check(
            &format!("{head}      /memfd:agent (deleted)"),
            Some("/memfd:agent"),
            true,
        );
    }

    #[test]
    fn numbers_and_permissions() {
        let m = check(
            "ffffffffff600000-ffffffffff601000 --xs 00000000 103:1f 0 [vsyscall]",
            Some("[vsyscall]"),
            false,
        );
        assert_eq!(
            (m.start, m.end),
            (0xffff_ffff_ff60_0000, 0xffff_ffff_ff60_1000)
        );
        assert_eq!((m.dev.major, m.dev.minor), (0x103, 0x1f));
        assert!(m.perms.shared && m.perms.exec && !m.perms.read && !m.perms.write);
        assert_eq!(m.file(), None);
        assert_eq!(m.file_offset(m.start + 5), Some(5));
        assert_eq!(m.file_offset(m.end), None);
    }

    #[test]
    fn nonsense_is_refused() {
        for line in ["x", "1-2", "1-2 r-xp", "1-2 rx 0 0:0 0", "1-2 r-xp g 0:0 0"] {
            assert!(Mapping::parse_all(line.as_bytes()).is_err(), "{line}");
        }
    }
}
