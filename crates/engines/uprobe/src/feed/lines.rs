//! Parses /proc/self/maps byte by byte. Skips the file's name, which may have any length.

use super::FileId;

const BUFFER: usize = 2048;

/// A line's mapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// The first address.
    pub start: u64,
    /// The first address after the mapping.
    pub end: u64,
    /// Whether the mapping is executable.
    pub is_executable: bool,
    /// The file offset at `start`.
    pub offset: u64,
    /// The file; inode 0 means none.
    pub file: FileId,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LineField {
    Start,
    End,
    Permissions,
    Offset,
    Major,
    Minor,
    Inode,
    Name,
}

/// An iterator over the lines of /proc/self/maps.
pub struct Lines<R> {
    read: R,
    buffer: [u8; BUFFER],
    at: usize,
    len: usize,
    has_failed: bool,
}

impl<R: FnMut(&mut [u8]) -> Option<usize>> Lines<R> {
    /// Returns the lines of the text that `read` returns in pieces; see [`super::Feed::read_again`].
    pub fn new(read: R) -> Self {
        Lines {
            read,
            buffer: [0; BUFFER],
            at: 0,
            len: 0,
            has_failed: false,
        }
    }

    /// Returns whether reading failed, or ended within a line.
    pub fn has_failed(&self) -> bool {
        self.has_failed
    }

    fn byte(&mut self) -> Option<u8> {
        if self.at >= self.len {
            let read = (self.read)(&mut self.buffer);
            self.has_failed |= read.is_none();
            (self.at, self.len) = (0, read.unwrap_or(0).min(BUFFER));
        }
        let byte = self.buffer.get(self.at).filter(|_| self.at < self.len)?;
        self.at += 1;
        Some(*byte)
    }
}

impl<R: FnMut(&mut [u8]) -> Option<usize>> Iterator for Lines<R> {
    type Item = Line;

    fn next(&mut self) -> Option<Line> {
        if self.has_failed {
            return None;
        }
        let (mut line, mut field) = (Line::default(), LineField::Start);
        let mut byte = self.byte()?;
        while byte != b'\n' {
            field = line.take(field, byte);
            let next = self.byte();
            self.has_failed |= next.is_none();
            byte = next?;
        }
        Some(line)
    }
}

impl Line {
    /// Adds a byte to `field`. Returns the field of the next byte.
    fn take(&mut self, field: LineField, byte: u8) -> LineField {
        use LineField::{End, Inode, Major, Minor, Name, Offset, Permissions, Start};
        let hex = |number: u64| number << 4 | u64::from((byte as char).to_digit(16).unwrap_or(0));
        match (field, byte) {
            (Start, b'-') => return End,
            (End, b' ') => return Permissions,
            (Permissions, b' ') => return Offset,
            (Offset, b' ') => return Major,
            (Major, b':') => return Minor,
            (Minor, b' ') => return Inode,
            (Inode, b' ') => return Name,
            (Start, _) => self.start = hex(self.start),
            (End, _) => self.end = hex(self.end),
            (Permissions, _) => self.is_executable |= byte == b'x',
            (Offset, _) => self.offset = hex(self.offset),
            (Major, _) => {
                let major = hex(self.file.device >> 32);
                self.file.device = major << 32;
            }
            (Minor, _) => {
                let (major, minor) = (self.file.device >> 32, self.file.device as u32);
                self.file.device = major << 32 | hex(minor.into()) & 0xffff_ffff;
            }
            (Inode, _) => {
                let digit = u64::from(byte.wrapping_sub(b'0'));
                self.file.inode = self.file.inode.wrapping_mul(10).wrapping_add(digit);
            }
            (Name, _) => {}
        }
        field
    }
}
